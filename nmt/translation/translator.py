"""Text in, text out: one translation a line, in the order of the lines, whatever the batches were.

Lines are translated in windows that bound the memory. Within a window the sentences are sorted by length, so that batches
hold little padding, and put back afterwards.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError
from nmt.lines import clean, is_blank, needs_no_translation
from nmt.translation.hypothesis import Engine, Hypothesis, SearchOptions

LONGEST = 512  # pieces; a longer source is translated in parts
WINDOW_LINES = 4_096
WINDOW_CHARACTERS = 500_000
BATCH_TOKENS = 2_048  # source pieces, padding included, that go through search at once


@dataclass
class Translation:
    """The translation of one line, and what a reader should know of it."""

    text: str
    parts: int = 1  # more where the source was too long for one search
    at_limit: bool = False  # some part was ended by its length limit


@dataclass
class _Line:
    """A line on its way through the model."""

    text: str  # what comes out if nothing is to be translated
    parts: list[list[int]] = field(default_factory=list)  # ids to translate
    found: dict[int, Hypothesis] = field(default_factory=dict)  # by part


class Translator:
    """A vocabulary and an engine that searches over its ids."""

    def __init__(self, engine: Engine, vocabulary: Vocabulary, batch_tokens: int = BATCH_TOKENS) -> None:
        self.engine, self.vocabulary, self.batch_tokens = engine, vocabulary, batch_tokens

    def translate(
        self,
        lines: Sequence[str],
        beam: int = SearchOptions.beam,
        length_penalty: float = SearchOptions.length_penalty,
    ) -> list[str]:
        """The best translation of each line. Blank lines stay blank, lines without a letter are copied."""
        options = search_options(beam, length_penalty)
        return [translation.text for translation in self.translate_stream(windows(lines), options)]

    def translate_stream(self, groups: Iterable[Sequence[str]], options: SearchOptions) -> Iterator[Translation]:
        """The translations of the lines of each group, yielded as soon as their group is done."""
        for group in groups:
            yield from self._translate_group(group, options)

    def _translate_group(self, texts: Sequence[str], options: SearchOptions) -> list[Translation]:
        lines = [self._read(text) for text in texts]
        jobs = [(line, number) for line in lines for number in range(len(line.parts))]
        jobs.sort(key=lambda job: len(job[0].parts[job[1]]), reverse=True)  # the longest first: memory fails early
        batches = list(self._batches(jobs))
        sources = ([line.parts[number] for line, number in batch] for batch in batches)
        for batch, found in zip(batches, self.engine.search_all(sources, options), strict=True):
            for (line, number), hypotheses in zip(batch, found, strict=True):
                line.found[number] = hypotheses[0]
        return [self._write(line) for line in lines]

    def _read(self, text: str) -> _Line:
        text = clean(text)
        if is_blank(text):
            return _Line("")
        if needs_no_translation(text):
            return _Line(text)
        return _Line(text, list(split(self.vocabulary, self.vocabulary.encode(text), LONGEST)))

    def _write(self, line: _Line) -> Translation:
        if not line.parts:
            return Translation(line.text)
        hypotheses = [line.found[number] for number in range(len(line.parts))]
        text = " ".join(self.vocabulary.decode(hypothesis.ids) for hypothesis in hypotheses)
        return Translation(text, len(hypotheses), any(hypothesis.at_limit for hypothesis in hypotheses))

    def _batches(self, jobs: Sequence[tuple[_Line, int]]) -> Iterator[Sequence[tuple[_Line, int]]]:
        start = 0
        while start < len(jobs):
            line, number = jobs[start]
            rows = max(1, self.batch_tokens // len(line.parts[number]))
            yield jobs[start : start + rows]
            start += rows


def search_options(beam: int, length_penalty: float) -> SearchOptions:
    """Checked options. Raises UsageError for what cannot be searched with."""
    if beam < 1:
        raise UsageError(f"--beam {beam}: must be at least 1")
    if not 0 <= length_penalty < 10:
        raise UsageError(f"--length-penalty {length_penalty}: must be from 0 up to 10")
    return SearchOptions(beam=beam, length_penalty=length_penalty)


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


def split(vocabulary: Vocabulary, ids: list[int], longest: int) -> Iterator[list[int]]:
    """Cut ids into parts of at most `longest`, before the last piece that begins a word; a word that long is cut too."""
    while len(ids) > longest:
        starts = (i for i in range(longest, 0, -1) if vocabulary.begins_word(ids[i]))
        cut = next(starts, longest)
        yield ids[:cut]
        ids = ids[cut:]
    yield ids
