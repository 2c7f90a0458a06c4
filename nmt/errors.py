"""Errors that are the user's to mend: one sentence naming the file, line or option, and the way out.

The command line prints the sentence and leaves with the class's exit code; any other exception is a bug in nmt.
"""

import signal


class NmtError(Exception):
    """The work failed: exit code 1."""

    exit_code = 1
    everywhere = False  # whether all ranks of a run raise it together, so that one of them need say it


class UsageError(NmtError):
    """Wrong usage or bad input: exit code 2."""

    exit_code = 2


def stop_signals() -> list[signal.Signals]:
    """The signals that ask a command to stop as Ctrl-C does: a terminal that is closed sends SIGHUP, Slurm SIGUSR1 before a
    job's time is over. Without those that the caller has had ignored, as nohup does.
    """
    asking = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    return [number for number in asking if signal.getsignal(number) != signal.SIG_IGN]
