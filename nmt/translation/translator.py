"""Text in, text out: the n-th translation is that of the n-th line, however the lines are batched."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import TypeVar

from nmt.data.vocabulary import Vocabulary
from nmt.errors import NmtError, check_kind
from nmt.lines import clean, is_blank, needs_no_translation
from nmt.translation.hypothesis import Engine, SearchOptions
from nmt.translation.joining import Gap, Line, Segment, Translation, join
from nmt.translation.splitting import cut, has_rules, sentences, trimmed
from nmt.translation.windows import windows
from nmt.writing import writes_spaces

MAX_SOURCE_PIECES = 512  # a longer sentence is translated in parts

Item = TypeVar("Item")
Progress = Callable[[float], None]  # called after each batch with the number of lines it amounts to, a fraction


class Translator:
    """Translates text from one language into another by an engine that searches over a vocabulary's ids."""

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
        """The source language selects the sentence splitter; both languages decide the spacing between sentences.

        `batch_tokens` is the most source pieces in a batch, including padding; by default the engine decides. `form` is the
        Unicode form of the model's training text, or "" if unknown (see looks.py). `copies` says whether lines without a
        letter are copied.
        """
        self.engine, self.vocabulary, self.source = engine, vocabulary, source
        self.spaced = writes_spaces(source), writes_spaces(target)
        self.form, self.copies = form, copies
        self.batch_tokens = batch_tokens or engine.batch_tokens
        self.process_id = os.getpid()
        self.used_foreign_rules = False  # whether the rules of another language have split a line

    def translate(
        self,
        lines: Iterable[str],
        beam: int = SearchOptions.beam,
        length_penalty: float = SearchOptions.length_penalty,
        split: bool = True,
    ) -> list[str]:
        """The best translation of each line. Blank lines stay blank; lines without a letter are copied (see `copies`).

        If `split`, each sentence of a line is translated by itself. Raises TypeError for an argument of the wrong type,
        UsageError for a number out of range, and NmtError like `translate_lines`.
        """
        check_kind("beam", beam, Integral, "an int")
        check_kind("length_penalty", length_penalty, Real, "a number")
        check_kind("split", split, bool, "True or False")
        options = SearchOptions(int(beam), float(length_penalty))
        if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
            raise TypeError(f"lines must be a list of str, one per line, not {type(lines).__name__}")
        lines = list(lines)
        for number, line in enumerate(lines):
            check_kind(f"lines[{number}]", line, str, "a str")
        found = (self.translate_lines(window, options, split) for window in windows(lines))
        return [translations[0].text for window in found for translations in window]

    def translate_lines(
        self, texts: Sequence[str], options: SearchOptions, split: bool = True, progress: Progress | None = None
    ) -> list[list[Translation]]:
        """The n-best translations of each line, best first; a line that is copied has a single one.

        The sentences of all lines are batched by length, so that the batches hold little padding. Raises NmtError in a fork of
        the process that loaded the model: a fork lacks the engine's threads, and would wait for them forever.
        """
        if os.getpid() != self.process_id:
            raise NmtError("the model is of the process that forked this one; load it in each process, after the fork")
        lines = [self._parse(text, split) for text in texts]
        segments = [piece for line in lines for piece in line if isinstance(piece, Segment)]
        segments.sort(key=_length, reverse=True)  # the longest first, so that memory that does not suffice shows early
        total = sum(map(_length, segments))
        batched = list(batches(segments, _length, self.batch_tokens))
        sources = [[segment.ids for segment in batch] for batch in batched]
        for batch, found in zip(batched, self.engine.search_all(sources, options), strict=True):
            for segment, hypotheses in zip(batch, found, strict=True):
                segment.hypotheses = hypotheses
            if progress:
                progress(len(texts) * sum(map(_length, batch)) / total)
        return [join(line, self.vocabulary, options.n_best, options.details, self.copies) for line in lines]

    def _parse(self, text: str, split: bool) -> Line:
        """White space around a line and between its sentences is kept, and not shown to the model."""
        text = clean(text)
        if is_blank(text):
            return [""]
        parts = [trimmed(sentence) for sentence in (sentences(text, self.source) if split else [text])]
        self.used_foreign_rules |= len(parts) > 1 and not has_rules(self.source)
        line: Line = [parts[0][0], *self._segments(parts[0][1])]
        for (_, _, after), (before, sentence, _) in pairwise(parts):
            line += [self._gap(after + before), *self._segments(sentence)]
        return [*line, parts[-1][2]]

    def _gap(self, space: str) -> Gap:
        """White space between sentences: a single space is dropped, or added, if only one of the languages writes spaces."""
        from_spaced, to_spaced = self.spaced
        if to_spaced and not from_spaced:
            return Gap(space, space or " ")
        return Gap(space, "" if space == " " and not to_spaced else space)

    def _segments(self, sentence: str) -> Line:
        if needs_no_translation(sentence, self.copies):
            return [sentence]
        first, *rest = cut(self.vocabulary, self.vocabulary.encode(sentence), MAX_SOURCE_PIECES)
        line: Line = [Segment(first, is_part=bool(rest))]
        for ids in rest:
            line += [self._gap(" "), Segment(ids, is_part=True)]
        return line


def batches(items: Sequence[Item], size: Callable[[Item], int], tokens: int) -> Iterator[Sequence[Item]]:
    """Cut items, sorted longest first, into batches of at most this many tokens, including padding, or of a single item."""
    start = 0
    while start < len(items):
        rows = max(1, tokens // size(items[start]))
        yield items[start : start + rows]
        start += rows


def _length(segment: Segment) -> int:
    return len(segment.ids)
