"""The input and output of `nmt translate`: files in large windows, pipes and terminals as their lines arrive."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from nmt import __version__
from nmt.destination import Destination
from nmt.errors import UsageError
from nmt.formatting import counted, duration, line_numbers
from nmt.lines import standard_input, standard_output
from nmt.looks import form_of, unlike
from nmt.model_directory import WEIGHTS
from nmt.process import this_process
from nmt.reporting import Reporter
from nmt.saved_model import SavedModel
from nmt.translation import loading
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.joining import FLAGS
from nmt.translation.output import Format
from nmt.translation.parts import Flag, Parts, Window
from nmt.translation.translator import Progress, Translator
from nmt.translation.windows import CheckedFile, NumberedLines, arriving, numbered, reopened


@dataclass(frozen=True)
class Job:
    """How to translate: everything that decides the output, except the text."""

    model: Path
    options: SearchOptions
    split: bool  # whether to translate the sentences of a line one by one
    write: Format
    device: str
    precision: str
    batch_tokens: int | None
    engine: str

    def __post_init__(self) -> None:
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise UsageError(f"--batch-tokens {self.batch_tokens}: must be at least 1")

    def key(self) -> str:
        """Equal for jobs that translate any text alike: the same options, weights and version of nmt."""
        weights = [path for path in (self.model / WEIGHTS, self.model / "ctranslate2" / "model.bin") if path.exists()]
        values = [value for name, value in vars(self).items() if name != "write"]
        return repr((__version__, [path.stat().st_mtime_ns for path in weights], self.write.__name__, values))


def translate(file: str, output: Path | None, job: Job, reporter: Reporter) -> None:
    """Translate a file, or stdin if it is "-", to a file or to stdout: the n-th line is the translation of the n-th line.

    A file is checked whole before anything is written. From file to file the translation can be resumed, and shared by several
    processes (parts.py). Raises UsageError and NmtError.
    """
    destination = Destination(output) if output else None
    if output and output.exists() and os.path.isfile(file) and output.samefile(file):
        raise UsageError(f"--output {output}: is the input; name another file")
    is_stream = file == "-" or (os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file))
    text = None if is_stream else CheckedFile(Path(file))
    parts = Parts(destination, text.digests, job.key()) if text and destination and destination.has_room else None
    if this_process().count > 1 and not parts:
        raise UsageError("torchrun: to share the work, name FILE and --output, in a folder that can be written")
    model = SavedModel.open(job.model)
    translator = loading.load_translator(model, job.device, job.precision, job.batch_tokens, job.engine)
    name = "standard input" if file == "-" else file
    translated = partial(_translated, translator, job, lambda warning: reporter.warn(f"{name}: {warning}"))
    if text and parts:
        flags = _translate_in_parts(text, parts, translated, reporter)
    else:
        windows, lines = (text.windows(), sum(text.sizes)) if text else (_stream(file, name, reporter), 0)
        opened = destination.open() if destination else nullcontext(standard_output())
        with opened as out, _progress_bar(reporter, lines, shown=not out.isatty()) as progress:
            flags = _write(out, translated(numbered(windows), progress))
    _report(translator, flags, reporter)


def _report(translator: Translator, flags: list[Flag], reporter: Reporter) -> None:
    if translator.used_foreign_rules:
        found = f"sentences of {translator.source} were split by another language's rules"
        reporter.say(f"{found}; --no-split keeps lines whole")
    for flag, description in FLAGS.items():
        if numbers := [number for found, number in flags if found == flag]:
            reporter.warn(f"{description}: {line_numbers(numbers)}")


def _stream(file: str, name: str, reporter: Reporter) -> Iterator[list[str]]:
    """Groups of lines of stdin, or of a pipe."""
    if file != "-":
        return arriving(open(file, "rb"), name)
    if sys.stdin is not None and sys.stdin.isatty():
        reporter.say("reading from the terminal: one sentence per line, Ctrl-D to end")
    return arriving(reopened(standard_input()), name)


def _translated(
    translator: Translator,
    job: Job,
    warn: Callable[[str], None],
    groups: Iterable[NumberedLines],
    progress: Progress | None,
) -> Iterator[Window]:
    """Translate groups of lines. Warns once if their Unicode form is not that of the model's training text."""
    warning = None
    for first, lines in groups:
        if not warning and (warning := unlike(form_of(lines), translator.form)):
            warn(warning)
        found = translator.translate_lines(lines, job.options, job.split, progress)
        rows = list(zip(range(first, first + len(lines)), lines, found, strict=True))
        flags = [(flag, number) for number, _, translations in rows for flag in translations[0].flags]
        yield [job.write(*row) for row in rows], flags


def _translate_in_parts(
    text: CheckedFile, parts: Parts, translated: Callable[..., Iterator[Window]], reporter: Reporter
) -> list[Flag]:
    """Translate this process's share. The first process then writes the output, and returns the flags of all lines."""
    share = counted(parts.done + len(parts.pending), "part")
    if parts.done:
        reporter.say(f"resuming: {parts.done:,} of {share} already translated")
    pending = parts.pending
    groups = (group for number, group in enumerate(numbered(text.windows())) if number in pending)
    try:
        with _progress_bar(reporter, sum(text.sizes[number] for number in pending)) as progress:
            for window in translated(groups, progress):
                parts.append(window)
        parts.finish()
    except BaseException:  # also Ctrl-C and SIGTERM
        if parts.done:
            reporter.say(f"{parts.done:,} of {share} translated; the same command resumes from there")
        raise
    if not this_process().first:
        return []
    parts.wait()
    with parts.destination.open() as out:
        flags = _write(out, parts.windows())
    parts.delete()
    return flags


def _write(out: IO[bytes], windows: Iterable[Window]) -> list[Flag]:
    """Write each window as it comes; returns the flags of all."""
    flags: list[Flag] = []
    for lines, more in windows:
        out.writelines(line.encode() + b"\n" for line in lines)
        out.flush()
        flags += more
    return flags


@contextmanager
def _progress_bar(reporter: Reporter, lines: int, shown: bool = True) -> Iterator[Progress | None]:
    """A progress bar with the speed and the time left, followed by a summary; nothing where stderr is no terminal."""
    if not (shown and lines and reporter.on_terminal):
        yield None
        return
    started, done = time.perf_counter(), 0.0
    task = reporter.bar.add_task("translating", total=lines, status="")

    def progress(more_lines: float) -> None:
        nonlocal done
        done += more_lines
        seconds = time.perf_counter() - started
        left = duration(seconds * (lines / done - 1))
        reporter.bar.update(task, completed=done, status=f"{done / seconds:,.0f} lines/s, {left} left")

    with reporter:
        yield progress
    seconds = time.perf_counter() - started
    reporter.say(f"{counted(lines, 'line')} in {duration(seconds)}, {lines / seconds:,.0f} lines/s")
