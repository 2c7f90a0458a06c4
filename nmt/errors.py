"""Errors the user can fix: one sentence that names the file, line or option, and the way out.

The command line prints the sentence and exits with the class's code. Any other exception is a bug in nmt, or memory that ran
out.
"""

import re
import signal
from typing import Any

# Recognised by name and text, so that torch need not be imported: PyTorch's for a GPU, for a CPU, and the CUDA libraries'.
OUT_OF_MEMORY = re.compile("OutOfMemoryError|MemoryError|DefaultCPUAllocator|out of memory|_ALLOC_FAILED")


class NmtError(Exception):
    """The work failed: exit code 1."""

    exit_code = 1
    everywhere = False  # whether all processes of a run raise it together, so that only the first needs to print it


class EverywhereError(NmtError):
    """The work failed on all ranks of a run alike."""

    everywhere = True


class UsageError(NmtError):
    """Wrong usage or bad input: exit code 2."""

    exit_code = 2


class Interrupted(EverywhereError):
    """A signal asked the run to stop, and all is saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a CPU or a GPU, whichever library noticed."""
    return OUT_OF_MEMORY.search(repr(error)) is not None


def first_line(error: BaseException) -> str:
    """An error's message without the pages of advice that PyTorch adds."""
    return str(error).partition("\n")[0] or type(error).__name__


def check_kind(name: str, value: object, kind: Any, wanted: str) -> None:
    """Raise TypeError where an argument of the Python interface is not of this kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")


def stop_signals() -> list[signal.Signals]:
    """The signals that ask a command to stop as Ctrl-C does, except those that the caller ignores, as nohup does SIGHUP.

    A closed terminal sends SIGHUP; Slurm sends SIGUSR1 before a job's time is over.
    """
    return [s for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1) if signal.getsignal(s) != signal.SIG_IGN]
