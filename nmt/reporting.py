"""What a person reads while nmt works: on stderr always, so that stdout carries results alone."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from nmt.errors import NmtError
from nmt.lines import clean


class _Voice(Console):
    """rich's, but for a reader of stderr who leaves: that is no reason to stop, and nothing is heard from there on."""

    def on_broken_pipe(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # so that nothing complains at exit either


class Reporter:
    """Plain lines, and on a terminal a progress bar below them. Quiet, it says nothing but warnings."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.muted = quiet, False
        on_terminal = sys.stderr is not None and sys.stderr.isatty()  # rich would believe FORCE_COLOR instead
        self.console = _Voice(stderr=True, highlight=False, soft_wrap=True, force_terminal=on_terminal)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),  # so that speed and time left fit into 80 columns
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )

    def __enter__(self) -> "Reporter":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # a terminal that was closed
            self.bar.stop()

    @property
    def on_terminal(self) -> bool:
        return not self.bar.disable

    def mute(self) -> None:
        """Say nothing at all from here on: another rank of the same run does."""
        self.quiet = self.muted = self.bar.disable = True

    def say(self, text: str) -> None:
        if not self.quiet:
            self._print(text)

    def warn(self, text: str) -> None:
        self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        if sys.stderr is None or self.muted:
            return
        # Names of files and of corpora are not ours, and a terminal obeys control characters.
        shown = "\n".join(map(clean, text.split("\n")))
        with suppress(OSError):  # a log on a full disk is no reason to stop
            self.console.print(shown, markup=False)


@contextmanager
def one_voice(reporter: Reporter, alike: Callable[[NmtError], bool]) -> Iterator[None]:
    """Under torchrun, let rank 0 speak for all: another rank only tells of a failure that is its own.

    `alike` says whether an error is one that all ranks of a machine have: the first of them tells it.
    """
    rank = os.environ["RANK"] if "TORCHELASTIC_RUN_ID" in os.environ else "0"
    if rank != "0":
        reporter.mute()
    try:
        yield
    except NmtError as error:
        if rank != "0":
            told = error.everywhere or (alike(error) and os.environ.get("LOCAL_RANK") != "0")
            error.args = ("" if told else f"rank {rank}: {error}",)
        raise
