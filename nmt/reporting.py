"""What a person reads while nmt works. It goes to stderr, so that stdout carries results alone."""

import os
import sys
from contextlib import suppress
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from nmt.lines import clean
from nmt.process import this_process


class _Console(Console):
    """rich's console, except that a closed stderr does not end the program: the rest is written to nowhere."""

    def on_broken_pipe(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # not only here: the interpreter flushes stderr as it exits


class Reporter:
    """Prints plain lines, and on a terminal a progress bar below them. A quiet one prints warnings only.

    Where torchrun started several processes, only the first prints anything.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.muted = sys.stderr is None or not this_process().first
        self.quiet = quiet or self.muted
        on_terminal = sys.stderr is not None and sys.stderr.isatty()  # rich would believe FORCE_COLOR instead
        self.console = _Console(stderr=True, highlight=False, soft_wrap=True, force_terminal=on_terminal)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),  # leaves room for speed and time left in 80 columns
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            transient=True,
            disable=self.quiet or not self.console.is_terminal,
        )

    def __enter__(self) -> "Reporter":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):  # the terminal may have been closed
            self.bar.stop()

    def say(self, text: str) -> None:
        if not self.quiet:
            self._print(text)

    def warn(self, text: str) -> None:
        if not self.muted:
            self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        # File names and corpus names may hold control characters, which a terminal would obey.
        with suppress(OSError):  # a log on a full disk is no reason to stop
            self.console.print("\n".join(map(clean, text.split("\n"))), markup=False)
