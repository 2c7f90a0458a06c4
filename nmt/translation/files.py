"""`nmt translate`'s input and output: files in large windows, pipes and terminals as their lines arrive."""

import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nmt.errors import NmtError, UsageError
from nmt.lines import decode_lines, read_lines, standard_input, standard_output
from nmt.reporting import Reporter
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.loading import load_translator
from nmt.translation.translator import WINDOW_CHARACTERS, WINDOW_LINES, windows

PATIENCE = 0.05  # seconds without a further line after which a pipe is answered
SOONEST = 0.5  # seconds after its first line by which a group is answered, though more keep coming
READ_AHEAD = 2 * WINDOW_LINES  # lines of a pipe held at the most


def translate(
    model: Path,
    file: str,
    output: Path | None,
    options: SearchOptions,
    batch_tokens: int | None,
    device: str | None,
    precision: str | None,
    engine: str,
    reporter: Reporter,
) -> None:
    """Translate a file or stdin to a file or stdout, a line for a line. Raises UsageError, NmtError."""
    if batch_tokens is not None and batch_tokens < 1:
        raise UsageError(f"--batch-tokens {batch_tokens}: must be at least 1")
    path = Path(file)
    try:
        streamed = file == "-" or not stat.S_ISREG(path.stat().st_mode)
    except OSError as error:  # not there, or a sentence where a name belongs
        raise UsageError(f"{file}: {error.strerror}") from None
    if file != "-" and path.is_dir():
        raise UsageError(f"{file}: a folder; name a file")
    if not streamed:
        count = sum(1 for _ in read_lines(path))  # every line is read before the first is written: no half translations
        if output and output.exists() and output.samefile(path):
            raise UsageError(f"--output {output}: that is the input; name another file")
    translator = load_translator(model, device or "auto", precision or "auto", batch_tokens, engine)
    if streamed:
        if file == "-" and sys.stdin is not None and sys.stdin.isatty():
            reporter.say("reading from the terminal: a sentence a line, Ctrl-D to end")
        groups: Iterable[list[str]] = _arriving(_own(standard_input()) if file == "-" else path.open("rb"), file)
    else:
        groups = windows(read_lines(path))
    cut: list[int] = []
    limited: list[int] = []
    number = 0
    with _open_output(output) as out:
        for group in groups:
            for translation in translator.translate_stream([group], options):
                number += 1
                out.write(translation.text.encode("utf-8") + b"\n")
                if translation.parts > 1:
                    cut.append(number)
                if translation.at_limit:
                    limited.append(number)
            out.flush()
        if not streamed and number != count:
            raise NmtError(f"{file}: {count:,} lines were read but {number:,} written; the file changed meanwhile")
    if cut:
        reporter.warn(f"too long for one search, so translated in parts: {_line_numbers(cut)}")
    if limited:
        reporter.warn(f"ended by the length limit, so perhaps repetitive: {_line_numbers(limited)}")


@contextmanager
def _open_output(path: Path | None) -> Iterator[IO[bytes]]:
    """stdout, or a file written beside and renamed when all is well; a device or named pipe is written into."""
    if path is None:
        yield standard_output()
        return
    plain = path.is_file() or not path.exists()
    part = path.with_name(f"{path.name}.{os.getpid()}.part") if plain else path
    try:
        out = part.open("xb" if plain else "wb")
    except OSError as error:
        raise UsageError(f"--output {path}: {error.strerror}; name a file that can be written") from None
    try:
        with out:
            yield out
        if plain:
            part.replace(path)
    except OSError as error:
        raise NmtError(f"--output {path}: {error.strerror}") from None
    finally:
        if plain:
            part.unlink(missing_ok=True)


def _own(stream: IO[bytes]) -> IO[bytes]:
    """Another reader of the stream's descriptor: at exit Python takes the lock of sys.stdin, and aborts if a thread
    that waits for input holds it."""
    try:
        return open(stream.fileno(), "rb", closefd=False)
    except OSError:  # no descriptor
        return stream


def _arriving(stream: Iterable[bytes], name: str) -> Iterator[list[str]]:
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


def _line_numbers(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"
