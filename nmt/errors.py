"""Errors that are the user's to mend: one sentence naming the file, line or option, and the way out.

The command line prints the sentence and leaves with the class's exit code; any other exception is a bug in nmt, or memory
that ran out.
"""

import re
import signal
from typing import Any

# By name and text, so that torch need not be imported: PyTorch's for a GPU, for a CPU, and what the CUDA libraries say.
OUT_OF_MEMORY = re.compile("OutOfMemoryError|MemoryError|DefaultCPUAllocator|out of memory|_ALLOC_FAILED")


class NmtError(Exception):
    """The work failed: exit code 1."""

    exit_code = 1
    everywhere = False  # whether all ranks of a run raise it together, so that one of them need say it


class UsageError(NmtError):
    """Wrong usage or bad input: exit code 2."""

    exit_code = 2


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of a CPU or of a GPU, whichever library noticed it."""
    return OUT_OF_MEMORY.search(repr(error)) is not None


def first_line(error: BaseException) -> str:
    """What an error says, without the pages of advice that PyTorch adds."""
    return str(error).partition("\n")[0] or type(error).__name__


def check_kind(name: str, value: object, kind: Any, wanted: str) -> None:
    """Raises TypeError where what a program gave under this name is of another kind than `wanted`; True is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")


def stop_signals() -> list[signal.Signals]:
    """The signals that ask a command to stop as Ctrl-C does: a terminal that is closed sends SIGHUP, Slurm SIGUSR1 before a
    job's time is over. Without those that the caller has had ignored, as nohup does.
    """
    asking = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    return [number for number in asking if signal.getsignal(number) != signal.SIG_IGN]
