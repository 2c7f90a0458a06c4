"""Text to ids, for a chunk of pairs at a time: what the processes that prepare a corpus do.

It imports neither torch nor the settings, for every process that works at it would pay for them.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from nmt.data.vocabulary import Vocabulary

RATIO_FROM = 10  # pieces; in shorter pairs a large ratio of lengths is nothing odd


def normalise(line: str) -> str:
    """A line as it is compared between training and held-out text: in NFC, without case, every white space one space."""
    return unicodedata.normalize("NFC", " ".join(line.casefold().split()))


@dataclass
class Encoded:
    """The pairs of a chunk that fit: per side a flat array of ids and one of lengths (int32). What became of the others."""

    ids: tuple[np.ndarray, np.ndarray]
    lengths: tuple[np.ndarray, np.ndarray]
    dropped: Counter[str]
    met: tuple[Counter[str], Counter[str]]  # per side, the watched lines among them, with their pairs


@dataclass
class Encoder:
    """Encodes pairs and drops those too long or too unlike in length. Nothing is truncated."""

    vocabulary: Vocabulary
    max_pieces: int
    max_ratio: float
    watched: tuple[frozenset[str], frozenset[str]] = field(default=(frozenset(), frozenset()))  # normalised lines

    @property
    def dtype(self) -> np.dtype:
        """Two bytes an id where the vocabulary fits them, else four."""
        return np.dtype("<u2" if len(self.vocabulary) <= 2**16 else "<i4")

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Encoded:
        dropped: Counter[str] = Counter()
        fitting = list(self._fitting(pairs, dropped))
        met: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        for side, lines in enumerate(self.watched):
            if lines:
                met[side].update(line for number, _ in fitting if (line := normalise(pairs[number][side])) in lines)
        ids, lengths = zip(*(self._flat([pair[side] for _, pair in fitting]) for side in (0, 1)), strict=True)
        return Encoded(ids, lengths, dropped, met)

    def _fitting(
        self, pairs: Sequence[tuple[str, str]], dropped: Counter[str]
    ) -> Iterator[tuple[int, tuple[list[int], list[int]]]]:
        """(number, ids of both sides) of the pairs that are kept."""
        sources, targets = (self.vocabulary.encode_all([pair[side] for pair in pairs]) for side in (0, 1))
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            short, long = sorted((len(source), len(target)))
            if long > self.max_pieces:
                dropped[f"over {self.max_pieces} pieces"] += 1
            elif long > RATIO_FROM and long > self.max_ratio * short:
                dropped[f"with a length ratio over {self.max_ratio:g}"] += 1
            else:
                yield number, (source, target)

    def _flat(self, sentences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        return np.fromiter(chain.from_iterable(sentences), self.dtype, int(lengths.sum(dtype=np.int64))), lengths
