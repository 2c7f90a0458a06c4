"""Errors that are the user's to mend: one sentence naming the file, line or option, and the way out.

The command line prints the sentence and leaves with the class's exit code; any other exception is a bug in nmt.
"""

from typing import Any


class NmtError(Exception):
    """The work failed: exit code 1."""

    exit_code = 1
    everywhere = False  # whether all ranks of a run raise it together, so that one of them need say it


class UsageError(NmtError):
    """Wrong usage or bad input: exit code 2."""

    exit_code = 2


def check_kind(name: str, value: object, kind: Any, wanted: str) -> None:
    """Raises TypeError where what a program gave under this name is of another kind than `wanted`; True is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")
