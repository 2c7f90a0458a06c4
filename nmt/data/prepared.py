"""Training pairs as ids: flat arrays that hold a corpus compactly, however many sentences it has."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from nmt.config import TrainingConfig
from nmt.data.corpus import CleaningReport, Pair
from nmt.data.vocabulary import Vocabulary

CHUNK = 10_000  # pairs encoded at a time
RATIO_FROM = 10  # pieces; in shorter pairs a large ratio of lengths is nothing odd


@dataclass(frozen=True)
class Side:
    """One language of the training pairs: sentence i is ids[starts[i] : starts[i + 1]], without BOS or EOS."""

    ids: np.ndarray  # uint16 where the vocabulary fits it, else int32
    starts: np.ndarray  # int64, one more than there are sentences

    @property
    def lengths(self) -> np.ndarray:
        """Pieces of each sentence, int64."""
        return np.diff(self.starts)

    def __getitem__(self, sentence: int) -> np.ndarray:
        return self.ids[self.starts[sentence] : self.starts[sentence + 1]]


@dataclass(frozen=True)
class PreparedPairs:
    """The training pairs that passed every filter."""

    source: Side
    target: Side

    def __len__(self) -> int:
        return len(self.source.starts) - 1


def prepare(
    pairs: Iterable[Pair], vocabulary: Vocabulary, settings: TrainingConfig, report: CleaningReport
) -> PreparedPairs:
    """Encode the pairs and drop those too long or too unlike in length, counted in the report. Nothing is truncated."""
    dtype = np.uint16 if len(vocabulary) <= 2**16 else np.int32
    ids: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])  # per side, a flat array for each chunk of pairs
    lengths: tuple[list[int], list[int]] = ([], [])
    pairs = iter(pairs)
    while chunk := list(islice(pairs, CHUNK)):
        fitting = list(_fitting(chunk, vocabulary, settings, report))
        for side in (0, 1):
            flat = chain.from_iterable(pair[side] for pair in fitting)
            ids[side].append(np.fromiter(flat, dtype))
            lengths[side].extend(len(pair[side]) for pair in fitting)
    source, target = (
        Side(np.concatenate([np.empty(0, dtype), *ids[side]]), np.cumsum([0, *lengths[side]], dtype=np.int64))
        for side in (0, 1)
    )
    return PreparedPairs(source, target)


def _fitting(
    chunk: list[Pair], vocabulary: Vocabulary, settings: TrainingConfig, report: CleaningReport
) -> Iterator[tuple[list[int], list[int]]]:
    sources, targets = (vocabulary.encode_all(texts) for texts in zip(*chunk, strict=True))
    for source, target in zip(sources, targets, strict=True):
        short, long = sorted((len(source), len(target)))
        if long > settings.max_pieces:
            report.dropped[f"over {settings.max_pieces} pieces"] += 1
        elif long > RATIO_FROM and long > settings.max_ratio * short:
            report.dropped[f"with a length ratio over {settings.max_ratio:g}"] += 1
        else:
            yield source, target
