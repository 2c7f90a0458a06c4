"""`nmt translate`'s input and output: files in large windows and by parts, pipes and terminals as their lines arrive."""

import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nmt.destination import Destination
from nmt.errors import NmtError, UsageError
from nmt.formatting import counted, duration, line_numbers
from nmt.lines import read_lines, standard_input, standard_output
from nmt.looks import form_of, unlike
from nmt.reporting import Reporter
from nmt.translation.arriving import arriving, own
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.joining import FLAGS
from nmt.translation.output import Format
from nmt.translation.parts import Flagged, Part, Parts, process
from nmt.translation.translator import WINDOW_CHARACTERS, WINDOW_LINES, Progress, Translator, untold, windows

Work = Callable[[list[str], int, Progress], Part]  # lines and the number of the first -> what is written of them


def translate(
    load: Callable[[], Translator],
    file: str,
    output: Path | None,
    options: SearchOptions,
    split: bool,
    write: Format,
    job: Sequence[object],
    reporter: Reporter,
) -> None:
    """Translate a file or stdin to a file or stdout, a line for a line, each as `write` has it.

    A file is translated into a file by parts, see parts.py; `job` is all that the translation follows from but the text.
    Raises UsageError, NmtError.
    """
    _, processes = process()
    path, streamed = _input(file, output)
    destination = None if output is None else Destination(output)
    in_parts = destination if destination and destination.has_room and not streamed else None
    if processes > 1 and not in_parts:
        raise UsageError(
            "torchrun: the processes share a file and write a file; name FILE and --output, in a folder that can be written"
        )
    # Every line is read before the first is written: no half translations.
    sizes = [] if streamed else [len(window) for window in windows(read_lines(path))]
    parts = None
    if in_parts:
        parts = Parts(in_parts, path, (WINDOW_LINES, WINDOW_CHARACTERS, *job))  # other windows are other parts
    translator, doubt = load(), None

    def work(group: list[str], first: int, progress: Progress) -> Part:
        nonlocal doubt
        if not doubt and (doubt := unlike(form_of(group), translator.form)):
            reporter.warn(f"{'standard input' if file == '-' else file}: {doubt}")
        return _work(translator, options, split, write, group, first, progress)

    if parts is not None:
        flagged = _put_parts(parts, path, sizes, work, reporter)
    elif streamed:
        if file == "-" and sys.stdin is not None and sys.stdin.isatty():
            reporter.say("reading from the terminal: a sentence a line, Ctrl-D to end")
        groups = arriving(own(standard_input()) if file == "-" else path.open("rb"), file)
        with _opened(destination) as out:
            flagged = _put(out, _each(groups, work, untold))
    else:
        with _opened(destination) as out, _speed(reporter, sum(sizes), not out.isatty()) as progress:
            flagged = _put(out, _each(windows(read_lines(path)), work, progress), sum(sizes), file)
    if translator.by_other_rules:
        reporter.say(
            f"sentences of {translator.source} were told apart by the rules of another language; --no-split keeps lines whole"
        )
    for flag, told in FLAGS.items():
        if flag in flagged:
            reporter.warn(f"{told}: {line_numbers(flagged[flag])}")


def _put_parts(parts: Parts, path: Path, sizes: list[int], work: Work, reporter: Reporter) -> Flagged:
    """Make this process's parts of the file; the first process then puts all together, and returns what is flagged in them."""
    rank, processes = parts.rank, parts.processes
    mine = [number for number in range(rank, len(sizes), processes) if number not in parts]
    if rank and not mine:
        parts.sign_off()
        return {}
    with _kept(parts, len(sizes), reporter):
        with _speed(reporter, sum(sizes[number] for number in mine), True) as progress:
            first = 1
            for number, group in enumerate(windows(read_lines(path))):
                if number in mine:
                    parts.put(number, work(group, first, progress))
                first += len(group)
            changed = parts.text_changed()
            if (changed or first - 1 != sum(sizes)) and rank == 0:
                parts.discard()  # of no use: the file that they are of is no more
            _refuse_change(str(path), sum(sizes), first - 1)
            if changed:
                raise NmtError(f"{path}: changed while it was translated; the same command begins anew")
        if rank:
            parts.sign_off()
            return {}
        parts.wait(len(sizes))
        with parts.destination.open() as out:
            flagged = _put(out, map(parts.get, range(len(sizes))), sum(sizes), str(path))
        parts.discard()
        return flagged


def _input(file: str, output: Path | None) -> tuple[Path, bool]:
    """The file, and whether it must be read as it comes: stdin, a pipe, a device. Raises UsageError for what is no input."""
    path = Path(file)
    try:
        streamed = file == "-" or not stat.S_ISREG(path.stat().st_mode)
    except OSError as error:  # not there, or a sentence where a name belongs
        raise UsageError(f"{file}: {error.strerror}") from None
    if file != "-" and path.is_dir():
        raise UsageError(f"{file}: a folder; name a file")
    if not streamed and output and output.exists() and output.samefile(path):
        raise UsageError(f"--output {output}: that is the input; name another file")
    return path, streamed


def _work(
    translator: Translator,
    options: SearchOptions,
    split: bool,
    write: Format,
    group: list[str],
    first: int,
    progress: Progress,
) -> Part:
    """What is written of a group of lines, of which the first has this number, and which lines have which flags."""
    written: list[str] = []
    flagged: Flagged = {}
    for source, found in zip(group, translator.translate_lines(group, options, split, progress), strict=True):
        number = first + len(written)
        written.append(write(number, source, found))
        for flag in found[0].flags:
            flagged.setdefault(flag, []).append(number)
    return written, flagged


def _each(groups: Iterable[list[str]], work: Work, progress: Progress) -> Iterator[Part]:
    first = 1
    for group in groups:
        yield work(group, first, progress)
        first += len(group)


def _put(out: IO[bytes], parts: Iterable[Part], count: int | None = None, file: str = "") -> Flagged:
    """Write the parts, and return which lines have which flags. Raises NmtError if they are not `count` lines of the file."""
    flagged: Flagged = {}
    number = 0
    for lines, more in parts:
        out.writelines(line.encode("utf-8") + b"\n" for line in lines)
        out.flush()
        number += len(lines)
        for flag, numbers in more.items():
            flagged.setdefault(flag, []).extend(numbers)
    if count is not None:
        _refuse_change(file, count, number)
    return flagged


def _refuse_change(file: str, count: int, number: int) -> None:
    """Raises NmtError where a file's lines were not as many when they were translated as they had been before."""
    if number != count:
        raise NmtError(f"{file}: {count:,} lines were read but {number:,} translated; the file changed meanwhile")


@contextmanager
def _kept(parts: Parts, count: int, reporter: Reporter) -> Iterator[None]:
    """The folder of the parts, which stays where the end comes before they are put together."""
    parts.open()
    if done := sum(number in parts for number in range(count)):
        reporter.say(f"going on: {done:,} of {counted(count, 'part')} were done before")
    try:
        yield
    except BaseException as error:
        left = parts.leave()
        if left or not isinstance(error, Exception):  # the second where it was stopped
            again = "goes on from there" if left else "begins anew"
            reporter.say(f"{left:,} of {counted(count, 'part')} are done; the same command {again}")
        raise


@contextmanager
def _speed(reporter: Reporter, lines: int, shown: bool) -> Iterator[Progress]:
    """Show sentences a second and time left in a progress bar, and what they were in a line at the end.

    Only on a terminal; not `shown` where that is where the translation goes as well.
    """
    if not (shown and lines and reporter.on_terminal):
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
    reporter.say(f"{counted(lines, 'line')} in {duration(time.perf_counter() - began)}, {rate()}")


@contextmanager
def _opened(destination: Destination | None) -> Iterator[IO[bytes]]:
    """The destination, or stdout."""
    if destination is None:
        yield standard_output()
        return
    with destination.open() as out:
        yield out
