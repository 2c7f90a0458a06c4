"""Text in windows: consecutive lines that are translated together, few enough to bound the memory.

A file is cut into large windows, and so is what a fast writer sends through a pipe; where the writer pauses, a window ends.
"""

import hashlib
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import IO

from nmt.errors import NmtError
from nmt.lines import decode_lines, read_lines

# About a minute's work on two cores, which is what a killed command loses. A quarter of it would cost a tenth of the speed:
# the last batches of each window are small.
MAX_WINDOW_LINES = 4_096
MAX_WINDOW_CHARACTERS = 125_000

PAUSE = 0.05  # seconds without a further line after which the lines so far are translated
MAX_DELAY = 0.5  # seconds after which a line waits for no further one
MAX_QUEUED_LINES = 2 * MAX_WINDOW_LINES


def windows(lines: Iterable[str | None]) -> Iterator[list[str]]:
    """Cut lines into windows. None ends a window; the last line of a window may exceed MAX_WINDOW_CHARACTERS."""
    window: list[str] = []
    characters = 0
    for line in chain(lines, [None]):
        if line is not None:
            window.append(line)
            characters += len(line)
        if window and (line is None or len(window) == MAX_WINDOW_LINES or characters > MAX_WINDOW_CHARACTERS):
            yield window
            window, characters = [], 0


class CheckedFile:
    """A text file that is read twice: whole, before anything is written, and again window by window."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises UsageError if any of its lines cannot be read."""
        self.path = path
        self.digests = list(map(_digest, windows(read_lines(path))))  # the SHA-256 of each window

    def windows(self) -> Iterator[list[str]]:
        """Read the file again. Raises NmtError at the first window that is not as it was."""
        for window, digest in zip_longest(windows(read_lines(self.path)), self.digests):
            if window is None or _digest(window) != digest:
                raise NmtError(f"{self.path}: changed while it was translated; give the same command again")
            yield window


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def arriving(stream: Iterable[bytes], name: str) -> Iterator[str | None]:
    """The lines of a stream, and None where the next one keeps them waiting. Raises UsageError like `decode_lines`."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(MAX_QUEUED_LINES)  # None at the end of the stream

    def read() -> None:
        try:
            for line in decode_lines(stream, name):
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        item = arrived.get()
        deadline = time.monotonic() + MAX_DELAY
        with suppress(queue.Empty):
            while isinstance(item, str):
                yield item
                item = arrived.get(timeout=PAUSE if time.monotonic() < deadline else 0)
            break
        yield None
    if item:
        yield None  # the lines before the fault count
        raise item


def reopened(stream: IO[bytes]) -> IO[bytes]:
    """A second reader of the same descriptor, if it has one.

    At exit Python locks sys.stdin, and aborts if the thread that waits for input holds the lock.
    """
    try:
        return open(stream.fileno(), "rb", closefd=False)
    except OSError:
        return stream
