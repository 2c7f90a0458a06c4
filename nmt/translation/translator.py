"""Text in, text out: one translation a line, in the order of the lines, whatever the batches were.

Lines are translated in windows that bound the memory. Within a window all sentences are sorted by length, so that batches
hold little padding, and put back afterwards.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import TypeVar

from nmt.data.vocabulary import Vocabulary
from nmt.errors import NmtError, UsageError, check_kind
from nmt.lines import clean, is_blank, needs_no_translation
from nmt.translation.hypothesis import Engine, SearchOptions
from nmt.translation.joining import Gap, Line, Segment, Translation, join
from nmt.translation.splitting import cut, has_rules, sentences, trimmed
from nmt.writing import writes_spaces

LONGEST = 512  # pieces; a longer source is translated in parts
# A window is a part of a file too: some minute's work on two cores, which is what a sudden end may cost. A quarter of it would
# cost a tenth of the speed, for the last batches of each have no others beside them.
WINDOW_LINES = 4_096
WINDOW_CHARACTERS = 125_000

Item = TypeVar("Item")
Progress = Callable[[int, float], None]  # told of each batch: its sentences, and how many lines they amount to


def untold(_sentences: int, _lines: float) -> None:
    """The progress of which nobody is told."""


class Translator:
    """A vocabulary and an engine that searches over its ids, from one language into another."""

    def __init__(
        self,
        engine: Engine,
        vocabulary: Vocabulary,
        source: str,
        target: str,
        batch_tokens: int | None = None,
        form: str = "",
        copies: bool = True,
    ) -> None:
        """Of the languages' codes, that of the source tells how sentences end, and both what stands between them.

        A batch has `batch_tokens` source pieces at the most, padding included, else as many as the engine likes. `form` is the
        Unicode form of the text that the model was trained on, where it is known (see looks.py), and `copies` whether it
        copies what holds no letter: both as config.json tells.
        """
        self.engine, self.vocabulary, self.source = engine, vocabulary, source
        self.spaced = writes_spaces(source), writes_spaces(target)
        self.form, self.copies = form, copies
        self.batch_tokens = batch_tokens or engine.batch_tokens
        self.process = os.getpid()
        self.by_other_rules = False  # whether a line was cut into sentences by the rules of another language

    def translate(
        self,
        lines: Iterable[str],
        beam: int = SearchOptions.beam,
        length_penalty: float = SearchOptions.length_penalty,
        split: bool = True,
    ) -> list[str]:
        """The best translation of each line. Blank lines stay blank, lines without a letter are copied (see `copies`).

        A line of several sentences is translated sentence by sentence, unless `split` is false. Raises TypeError for an
        argument of another kind, UsageError for a number that is out of range, and NmtError as `translate_lines` does.
        """
        check_kind("beam", beam, Integral, "an int")
        check_kind("length_penalty", length_penalty, Real, "a number")
        check_kind("split", split, bool, "True or False")
        options = search_options(int(beam), float(length_penalty))
        if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
            raise TypeError(f"lines must be a list of str, one a line, not {type(lines).__name__}")
        lines = list(lines)
        for number, line in enumerate(lines):
            check_kind(f"lines[{number}]", line, str, "a str")
        groups = (self.translate_lines(window, options, split) for window in windows(lines))
        return [found[0].text for group in groups for found in group]

    def translate_lines(
        self, texts: Sequence[str], options: SearchOptions, split: bool = True, progress: Progress = untold
    ) -> list[list[Translation]]:
        """The n-best translations of each line, the best first; one only of a line in which nothing is translated.

        All lines are searched together: `windows` bound the memory. Raises NmtError in a fork of the process that loaded the
        model: the engine's threads are not in it, and would be waited for without end.
        """
        if os.getpid() != self.process:
            raise NmtError(
                "the model was loaded before this process was forked, which leaves its threads behind; load it in each "
                "process, after the fork"
            )
        lines = [self._read(text, split) for text in texts]
        waiting = [piece for line in lines for piece in line if isinstance(piece, Segment)]
        waiting.sort(key=lambda segment: len(segment.ids), reverse=True)  # the longest first: memory fails early
        total = sum(len(segment.ids) for segment in waiting)
        searched = list(batches(waiting, lambda segment: len(segment.ids), self.batch_tokens))
        sources = [[segment.ids for segment in batch] for batch in searched]
        for batch, found in zip(searched, self.engine.search_all(sources, options), strict=True):
            for segment, hypotheses in zip(batch, found, strict=True):
                segment.hypotheses = hypotheses
            progress(len(batch), len(texts) * sum(len(segment.ids) for segment in batch) / total)
        return [join(line, self.vocabulary, options.n_best, options.details, self.copies) for line in lines]

    def _read(self, text: str, split: bool) -> Line:
        """White space is kept, and not shown to the model, around a line and between its sentences (but see `_between`)."""
        text = clean(text)
        if is_blank(text):
            return [""]
        taken = [trimmed(sentence) for sentence in (sentences(text, self.source) if split else [text])]
        self.by_other_rules |= len(taken) > 1 and not has_rules(self.source)
        line: Line = [taken[0][0], *self._segments(taken[0][1])]
        for (_, _, after), (before, core, _) in pairwise(taken):
            line += [self._between(after + before), *self._segments(core)]
        return [*line, taken[-1][2]]

    def _between(self, gap: str) -> Gap:
        """As it stands in the source, but for languages of which only one has spaces between its sentences."""
        from_spaced, to_spaced = self.spaced
        if to_spaced and not from_spaced:
            return Gap(gap, gap or " ")
        return Gap(gap, "" if gap == " " and not to_spaced else gap)

    def _segments(self, sentence: str) -> Line:
        if needs_no_translation(sentence, self.copies):
            return [sentence]
        parts = list(cut(self.vocabulary, self.vocabulary.encode(sentence), LONGEST))
        line: Line = []
        for ids in parts:
            line += [self._between(" "), Segment(ids, len(parts) > 1)]
        return line[1:]


def search_options(beam: int, length_penalty: float, n_best: int = 1, details: bool = False) -> SearchOptions:
    """Checked options. Raises UsageError for what cannot be searched with."""
    if beam < 1:
        raise UsageError(f"--beam {beam}: must be at least 1")
    if not 0 <= length_penalty < 10:
        raise UsageError(f"--length-penalty {length_penalty}: must be from 0 up to 10")
    if n_best < 1:
        raise UsageError(f"--n-best {n_best}: must be at least 1")
    if n_best > beam:
        raise UsageError(f"--n-best {n_best}: a beam of {beam} holds fewer; ask for --beam {n_best} too")
    return SearchOptions(beam=beam, length_penalty=length_penalty, n_best=n_best, details=details)


def windows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Consecutive lines in groups that bound the memory."""
    window: list[str] = []
    characters = 0
    for line in lines:
        window.append(line)
        characters += len(line)
        if len(window) == WINDOW_LINES or characters > WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def batches(items: Sequence[Item], size: Callable[[Item], int], tokens: int) -> Iterator[Sequence[Item]]:
    """Items, the longest first, in batches of so many tokens, padding included, or of one that is longer."""
    start = 0
    while start < len(items):
        rows = max(1, tokens // size(items[start]))
        yield items[start : start + rows]
        start += rows
