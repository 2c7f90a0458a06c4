"""The input and output of `nmt translate`: files in large windows, pipes and terminals as their lines arrive."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
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
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.joining import FLAGS
from nmt.translation.output import Format
from nmt.translation.parts import Flag, Parts, Window
from nmt.translation.splitting import has_rules
from nmt.translation.translator import load_translator
from nmt.translation.windows import CheckedFile, arriving, reopened, windows


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

    def translated(self, windows: Iterable[list[str]], pending: range, name: str, reporter: Reporter) -> Iterator[Window]:
        """Load the model, and translate the pending ones of all windows.

        Warns once, with the text's name, if its Unicode form is not that of the model's training text.
        """
        model = SavedModel.open(self.model)
        translator = load_translator(model, self.device, self.precision, self.batch_tokens, self.engine)
        if self.split and not has_rules(translator.source):
            found = f"sentences of {translator.source} are split by another language's rules"
            reporter.say(f"{found}; --no-split keeps lines whole")
        task = reporter.bar.add_task("translating", total=len(pending), status="")

        def progress(share: float) -> None:
            left = reporter.bar.tasks[0].time_remaining
            reporter.bar.update(task, advance=share, status=f"parts, {duration(left)} left" if left else "parts")

        warning, first = None, 1
        for number, lines in enumerate(windows):
            if number in pending:
                if not warning and (warning := unlike(form_of(lines), model.description.data.form)):
                    reporter.warn(f"{name}: {warning}")
                lists = translator.translate_lines(lines, self.options, self.split, progress)
                rows = list(zip(range(first, first + len(lines)), lines, lists, strict=True))
                flags = [(flag, place) for place, _, translations in rows for flag in translations[0].flags]
                yield [self.write(*row) for row in rows], flags
            first += len(lines)


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
    name = "standard input" if file == "-" else file
    in_windows = text.windows() if text else windows(_stream(file, name, reporter))
    pending = parts.pending if parts else range(len(text.digests) if text else sys.maxsize)
    found = job.translated(in_windows, pending, name, reporter)
    on_terminal = not destination and standard_output().isatty()
    with reporter if text and not on_terminal else nullcontext():
        if parts:
            flags = _share(parts, found, reporter)
        else:
            with destination.open() if destination else nullcontext(standard_output()) as out:
                flags = _write(out, found)
    for flag, description in FLAGS.items():
        if numbers := [number for found, number in flags if found == flag]:
            reporter.warn(f"{description}: {line_numbers(numbers)}")


def _stream(file: str, name: str, reporter: Reporter) -> Iterator[str | None]:
    """The lines of stdin, or of a pipe, as they arrive."""
    if file != "-":
        return arriving(open(file, "rb"), name)
    if sys.stdin is not None and sys.stdin.isatty():
        reporter.say("reading from the terminal: one sentence per line, Ctrl-D to end")
    return arriving(reopened(standard_input()), name)


def _share(parts: Parts, found: Iterable[Window], reporter: Reporter) -> list[Flag]:
    """Save this process's windows. The first process then writes the output, and returns the flags of all lines."""
    if parts.done:
        share = counted(parts.done + len(parts.pending), "part")
        reporter.say(f"resuming: {parts.done:,} of {share} already translated")
    try:
        for window in found:
            parts.append(window)
    finally:  # also at Ctrl-C and SIGTERM
        if parts.pending:
            reporter.say(f"{counted(parts.done, 'part')} translated and kept; the same command continues from there")
    parts.finish()
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
