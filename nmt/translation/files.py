"""`nmt translate`'s input and output: files in large windows, pipes and terminals as their lines arrive."""

import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nmt.errors import NmtError, UsageError
from nmt.lines import decode_lines, read_lines, standard_input, standard_output
from nmt.reporting import Reporter, duration
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.joining import FLAGS
from nmt.translation.output import Format
from nmt.translation.translator import WINDOW_CHARACTERS, WINDOW_LINES, Progress, Translator, untold, windows

PATIENCE = 0.05  # seconds without a further line after which a pipe is answered
SOONEST = 0.5  # seconds after its first line by which a group is answered, though more keep coming
READ_AHEAD = 2 * WINDOW_LINES  # lines of a pipe held at the most


def translate(
    load: Callable[[], Translator],
    file: str,
    output: Path | None,
    options: SearchOptions,
    split: bool,
    write: Format,
    reporter: Reporter,
) -> None:
    """Translate a file or stdin to a file or stdout, a line for a line, each as `write` has it.

    Raises UsageError, NmtError.
    """
    path = Path(file)
    try:
        streamed = file == "-" or not stat.S_ISREG(path.stat().st_mode)
    except OSError as error:  # not there, or a sentence where a name belongs
        raise UsageError(f"{file}: {error.strerror}") from None
    if file != "-" and path.is_dir():
        raise UsageError(f"{file}: a folder; name a file")
    count = None  # of lines, where that can be known
    if not streamed:
        count = sum(1 for _ in read_lines(path))  # every line is read before the first is written: no half translations
        if output and output.exists() and output.samefile(path):
            raise UsageError(f"--output {output}: that is the input; name another file")
    translator = load()
    if streamed:
        if file == "-" and sys.stdin is not None and sys.stdin.isatty():
            reporter.say("reading from the terminal: a sentence a line, Ctrl-D to end")
        groups: Iterable[list[str]] = _arriving(_own(standard_input()) if file == "-" else path.open("rb"), file)
    else:
        groups = windows(read_lines(path))
    flagged: dict[str, list[int]] = {flag: [] for flag in FLAGS}
    number = 0
    with _open_output(output) as out, _speed(reporter, count, out) as progress:
        for group in groups:
            translations = translator.translate_stream([group], options, split, progress)
            for source, found in zip(group, translations, strict=True):
                number += 1
                out.write(write(number, source, found).encode("utf-8") + b"\n")
                for flag in found[0].flags:
                    flagged[flag].append(number)
            out.flush()
        if count is not None and number != count:
            raise NmtError(f"{file}: {count:,} lines were read but {number:,} written; the file changed meanwhile")
    for flag, numbers in flagged.items():
        if numbers:
            reporter.warn(f"{FLAGS[flag]}: {_line_numbers(numbers)}")


@contextmanager
def _speed(reporter: Reporter, lines: int | None, out: IO[bytes]) -> Iterator[Progress]:
    """Show sentences a second and time left in a progress bar, and what they were in a line at the end.

    Only for a file, of so many lines, and on a terminal to which its translation does not go as well.
    """
    if lines is None or not reporter.on_terminal or out.isatty():
        yield untold
        return
    began, sentences, done = time.perf_counter(), 0, 0.0
    task = reporter.bar.add_task("translating", total=lines, status="")

    def rate() -> str:
        return f"{sentences / (time.perf_counter() - began):,.0f} sentences/s"

    def progress(more_sentences: int, more_lines: float) -> None:
        nonlocal sentences, done
        sentences, done = sentences + more_sentences, done + more_lines
        left = (time.perf_counter() - began) * (lines / done - 1)
        reporter.bar.update(task, completed=done, status=f"{rate()}, {duration(left)} left")

    with reporter:
        yield progress
    reporter.say(f"{lines:,} lines in {duration(time.perf_counter() - began)}, {rate()}")


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
