"""Lines of a pipe or a terminal in groups, each as large as what has arrived: many of a fast writer, one of a slow one."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import IO

from nmt.lines import decode_lines
from nmt.translation.translator import WINDOW_CHARACTERS, WINDOW_LINES

PATIENCE = 0.05  # seconds without a further line after which a pipe is answered
SOONEST = 0.5  # seconds after its first line by which a group is answered, though more keep coming
READ_AHEAD = 2 * WINDOW_LINES  # lines of a pipe held at the most


def arriving(stream: Iterable[bytes], name: str) -> Iterator[list[str]]:
    """Lines in groups, each as large as what has arrived, so that a slow writer is answered line by line."""
    lines: queue.Queue[str | BaseException | None] = queue.Queue(READ_AHEAD)

    def read() -> None:
        try:
            for line in decode_lines(stream, "standard input" if name == "-" else name):
                lines.put(line)
            lines.put(None)
        except BaseException as error:  # handed to the reader of the queue, after the lines before it
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    end: BaseException | None = None
    ended = False
    while not ended:
        group: list[str] = []
        characters, began = 0, 0.0
        while len(group) < WINDOW_LINES and characters < WINDOW_CHARACTERS:
            try:
                line = lines.get(timeout=PATIENCE if group else None)
            except queue.Empty:
                break
            if not isinstance(line, str):
                end, ended = line, True
                break
            began = began or time.monotonic()
            group.append(line)
            characters += len(line)
            if time.monotonic() - began > SOONEST and lines.empty():
                break
        if group:
            yield group
    if end:
        raise end


def own(stream: IO[bytes]) -> IO[bytes]:
    """Another reader of the stream's descriptor: at exit Python takes the lock of sys.stdin, and aborts if a thread
    that waits for input holds it."""
    try:
        return open(stream.fileno(), "rb", closefd=False)
    except OSError:  # no descriptor
        return stream
