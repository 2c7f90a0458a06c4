"""Text in windows: consecutive lines that are translated together, few enough to bound the memory.

A file is cut into large windows. Lines of a pipe or a terminal form groups of those that have arrived: many from a fast
writer, one from a slow one.
"""

import hashlib
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO

from nmt.errors import NmtError
from nmt.lines import decode_lines, read_lines

# About a minute's work on two cores, which is what a killed command loses. A quarter of it would cost a tenth of the speed:
# the last batches of each window are small.
MAX_WINDOW_LINES = 4_096
MAX_WINDOW_CHARACTERS = 125_000

PAUSE = 0.05  # seconds without a further line after which the lines so far are translated
MAX_DELAY = 0.5  # seconds after which the first line of a group waits for no further one
MAX_QUEUED_LINES = 2 * MAX_WINDOW_LINES

NumberedLines = tuple[int, list[str]]  # the number of the first line, counted from 1, and the lines


def windows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Cut lines into windows. The last line of a window may exceed MAX_WINDOW_CHARACTERS."""
    window: list[str] = []
    characters = 0
    for line in lines:
        window.append(line)
        characters += len(line)
        if len(window) == MAX_WINDOW_LINES or characters > MAX_WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def numbered(groups: Iterable[list[str]]) -> Iterator[NumberedLines]:
    """Each group with the number of its first line."""
    first = 1
    for lines in groups:
        yield first, lines
        first += len(lines)


class CheckedFile:
    """A text file that is read twice: whole, before anything is written, and again window by window."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises UsageError if any of its lines cannot be read."""
        self.path = path
        self.sizes: list[int] = []  # the number of lines in each window
        self.digests: list[str] = []  # the SHA-256 of each window
        for window in windows(read_lines(path)):
            self.sizes.append(len(window))
            self.digests.append(_digest(window))

    def windows(self) -> Iterator[list[str]]:
        """Read the file again. Raises NmtError at the first window that is not as it was."""
        for window, digest in zip_longest(windows(read_lines(self.path)), self.digests):
            if window is None or _digest(window) != digest:
                raise NmtError(f"{self.path}: changed while it was translated; give the same command again")
            yield window


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def arriving(stream: Iterable[bytes], name: str) -> Iterator[list[str]]:
    """The lines of a stream in groups. Raises UsageError like `decode_lines`, after the lines before the fault."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(MAX_QUEUED_LINES)  # None at the end of the stream

    def read() -> None:
        try:
            for line in decode_lines(stream, name):
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    item = arrived.get()
    while isinstance(item, str):
        group, characters, deadline = [item], len(item), time.monotonic() + MAX_DELAY
        try:
            while len(group) < MAX_WINDOW_LINES and characters < MAX_WINDOW_CHARACTERS:
                item = arrived.get(timeout=PAUSE if time.monotonic() < deadline else 0)
                if not isinstance(item, str):
                    break
                group.append(item)
                characters += len(item)
        except queue.Empty:
            pass
        yield group
        if isinstance(item, str):
            item = arrived.get()
    if item:
        raise item


def reopened(stream: IO[bytes]) -> IO[bytes]:
    """A second reader of the same descriptor, if it has one.

    At exit Python locks sys.stdin, and aborts if the thread that waits for input holds the lock.
    """
    try:
        return open(stream.fileno(), "rb", closefd=False)
    except OSError:
        return stream
