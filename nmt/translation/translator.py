"""Text in, text out: the n-th translation is that of the n-th line, however the lines are batched."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import TypeVar

from nmt.config import ModelConfig
from nmt.data.vocabulary import Vocabulary
from nmt.errors import NmtError, UsageError, check_kind
from nmt.lines import clean, is_blank, needs_no_translation
from nmt.saved_model import SavedModel
from nmt.translation.hypothesis import Engine, SearchOptions
from nmt.translation.joining import Copied, Line, Segment, Translation, join
from nmt.translation.splitting import cut, sentences, trimmed
from nmt.translation.windows import windows
from nmt.writing import writes_spaces

MAX_SOURCE_PIECES = 512  # a longer sentence is translated in parts, and with few learned positions even a shorter one

Item = TypeVar("Item")
Progress = Callable[[float], None]  # called after each batch with its share of the work, a fraction


class Translator:
    """Translates text from one language into another by an engine that searches over a vocabulary's ids."""

    def __init__(
        self,
        engine: Engine,
        vocabulary: Vocabulary,
        source: str,
        target: str,
        batch_tokens: int | None = None,
        copies: bool = True,
        network: ModelConfig | None = None,
    ) -> None:
        """The source language selects the sentence splitter; both languages decide the spacing between sentences.

        `batch_tokens` is the most source pieces in a batch, including padding; by default the engine decides. `copies` says
        whether lines without a letter are copied. `network` is given where its positions may end.
        """
        self.engine, self.vocabulary, self.source = engine, vocabulary, source
        self.spaced = writes_spaces(source), writes_spaces(target)
        self.copies, self.batch_tokens = copies, batch_tokens or engine.batch_tokens
        self.process_id = os.getpid()
        lengths = range(MAX_SOURCE_PIECES, 0, -1)
        self.max_pieces = next(n for n in lengths if not network or network.can_number(n, n + SearchOptions.extra))

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
                progress(sum(map(_length, batch)) / total)
        return [join(line, self.vocabulary, options.n_best, options.details, self.copies) for line in lines]

    def _parse(self, text: str, split: bool) -> Line:
        """White space around a line and between its sentences is kept, and not shown to the model."""
        text = clean(text)
        if is_blank(text):
            return [("", "")]
        line: Line = []
        space = ""  # behind the sentences so far
        for sentence in sentences(text, self.source) if split else [text]:
            before, core, after = trimmed(sentence)
            line += [self._gap(space + before) if line else (before, before), *self._segments(core)]
            space = after
        return [*line, (space, space)]

    def _gap(self, space: str) -> Copied:
        """White space between sentences: a single space is dropped, or added, if only one of the languages writes spaces."""
        from_spaced, to_spaced = self.spaced
        if to_spaced and not from_spaced:
            return space, space or " "
        return space, "" if space == " " and not to_spaced else space

    def _segments(self, sentence: str) -> Line:
        if needs_no_translation(sentence, self.copies):
            return [(sentence, sentence)]
        first, *rest = cut(self.vocabulary, self.vocabulary.encode(sentence), self.max_pieces)
        line: Line = [Segment(first, is_part=bool(rest))]
        for ids in rest:
            line += [self._gap(" "), Segment(ids, is_part=True)]
        return line


def load_translator(
    model: SavedModel, device: str = "auto", precision: str = "auto", batch_tokens: int | None = None, engine: str = "torch"
) -> Translator:
    """The translator of a saved model, by `torch`, or by `ctranslate2` if `nmt export` has written its files.

    Imports the chosen engine only. Raises UsageError where an option is wrong, a file missing or damaged, or the device not
    available. `batch_tokens` is at least 1, or None for what suits the device.
    """
    searcher: Engine
    if engine == "torch":
        from nmt.translation import engine as torch_engine

        searcher = torch_engine.load(model, device, precision)
    elif engine == "ctranslate2":
        from nmt.translation import ctranslate2_engine

        searcher = ctranslate2_engine.load(model, device, precision)
    else:
        raise UsageError(f"--engine {engine}: must be torch or ctranslate2")
    described = model.description
    copies = described.data.copies_letterless
    return Translator(searcher, model.vocabulary, *described.languages, batch_tokens, copies, described.model)


def batches(items: Sequence[Item], size: Callable[[Item], int], tokens: int) -> Iterator[Sequence[Item]]:
    """Cut items, sorted longest first, into batches of at most this many tokens, including padding, or of a single item."""
    start = 0
    while start < len(items):
        rows = max(1, tokens // size(items[start]))
        yield items[start : start + rows]
        start += rows


def _length(segment: Segment) -> int:
    return len(segment.ids)
