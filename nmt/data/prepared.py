"""Training pairs as ids: flat arrays that hold any number of sentences compactly, in memory or on disk."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.cache import Entry
from nmt.data.cleaning import CleaningReport
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary
from nmt.errors import NmtError

CHUNK = 10_000  # pairs encoded at a time
CHUNK_CHARACTERS = 4_000_000  # a chunk of long lines has fewer pairs, so that documents fit into memory too
MIN_RATIO_PIECES = 10  # a pair whose longer side has at most this many pieces may have any length ratio
SIDES = ("source", "target")


@dataclass(frozen=True)
class Encoded:
    """The pairs of a chunk that were kept, and their ids: source and target each flat, with the lengths (int32)."""

    pairs: list[Pair]
    ids: tuple[np.ndarray, np.ndarray]
    lengths: tuple[np.ndarray, np.ndarray]
    dropped: Counter[str]  # the other pairs, by reason


@dataclass(frozen=True)
class Encoder:
    """Encodes pairs, and drops those that are too long or too different in length. Nothing is truncated."""

    vocabulary: Vocabulary
    max_pieces: int
    max_ratio: float
    threads: int = 1

    @property
    def dtype(self) -> np.dtype:
        """Two bytes an id where the vocabulary allows it, else four."""
        return np.dtype("<u2" if len(self.vocabulary) <= 2**16 else "<i4")

    def __call__(self, pairs: Sequence[Pair]) -> Encoded:
        sides = [self.vocabulary.encode_all([pair[side] for pair in pairs], self.threads) for side in (0, 1)]
        reasons = [self._reason_to_drop(len(source), len(target)) for source, target in zip(*sides, strict=True)]
        kept = [number for number, reason in enumerate(reasons) if not reason]
        ids, lengths = zip(*(self._flat([side[number] for number in kept]) for side in sides), strict=True)
        return Encoded([pairs[number] for number in kept], ids, lengths, Counter(filter(None, reasons)))

    def _reason_to_drop(self, source: int, target: int) -> str:
        """Why a pair of these lengths is dropped, or ""."""
        short, long = sorted((source, target))
        if long > self.max_pieces:
            return f"over {self.max_pieces} pieces"
        if long > MIN_RATIO_PIECES and long > self.max_ratio * short:
            return f"with a length ratio over {self.max_ratio:g}"
        return ""

    def _flat(self, sentences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all sentences in one array, and the sentences' lengths."""
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        return np.fromiter(chain.from_iterable(sentences), self.dtype, int(lengths.sum(dtype=np.int64))), lengths


@dataclass(frozen=True)
class Side:
    """One language of the training pairs: sentence i is ids[starts[i] : starts[i + 1]], without BOS or EOS."""

    ids: np.ndarray  # uint16 if the vocabulary allows it, else int32
    starts: np.ndarray  # int64 [sentences + 1]

    @property
    def lengths(self) -> np.ndarray:
        """Pieces of each sentence: a new int32 array [sentences]."""
        return np.subtract(self.starts[1:], self.starts[:-1], dtype=np.int32, casting="unsafe")

    def __getitem__(self, sentence: int) -> np.ndarray:
        return self.ids[self.starts[sentence] : self.starts[sentence + 1]]


@dataclass(frozen=True)
class PreparedPairs:
    """The training pairs that passed every filter."""

    source: Side
    target: Side

    def __len__(self) -> int:
        return len(self.source.starts) - 1

    @classmethod
    def open(cls, folder: Path) -> "PreparedPairs":
        """The pairs that `write_pairs` wrote, memory-mapped and read-only. Raises NmtError if the folder is damaged."""
        try:
            dtype = Entry.open(folder).manifest["dtype"]
            sides = [Side(_mapped(folder / f"{side}.ids", dtype), _mapped(folder / f"{side}.starts")) for side in SIDES]
        except (OSError, ValueError) as error:
            raise NmtError(f"{folder}: the prepared pairs are damaged ({error}); remove the folder") from None
        return cls(*sides)


def prepare(pairs: Iterable[Pair], encoder: Encoder, report: CleaningReport) -> PreparedPairs:
    """Encode pairs into memory; the report counts those that the encoder drops."""
    chunks = [encoder(chunk) for chunk in chunks_of(pairs)]
    for chunk in chunks:
        report.dropped.update(chunk.dropped)
    sides = []
    for side in (0, 1):
        lengths = np.concatenate([chunk.lengths[side] for chunk in chunks])
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        sides.append(Side(np.concatenate([chunk.ids[side] for chunk in chunks]), starts))
    return PreparedPairs(*sides)


def write_pairs(folder: Path, pairs: Iterable[Pair], encoder: Encoder, done: Callable[[Encoded], None]) -> dict[str, Any]:
    """Encode pairs into files that `PreparedPairs.open` opens, in bounded memory. Returns the manifest.

    Each chunk is handed to `done` once it is written.
    """
    with ExitStack() as stack:
        ids, starts = (
            [stack.enter_context((folder / f"{side}.{kind}").open("wb")) for side in SIDES] for kind in ("ids", "starts")
        )
        ends = [0, 0]
        for file in starts:
            file.write(np.zeros(1, "<i8").data)
        for chunk in map(encoder, chunks_of(pairs)):
            for side in (0, 1):
                ids[side].write(chunk.ids[side].data)
                starts[side].write((ends[side] + np.cumsum(chunk.lengths[side], dtype="<i8")).data)
                ends[side] += len(chunk.ids[side])
            done(chunk)
    return {"dtype": encoder.dtype.str}


def chunks_of(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """At least one list of up to CHUNK pairs, or fewer where their lines are long; the last one may be empty."""
    chunk: list[Pair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == CHUNK or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    yield chunk


def _mapped(path: Path, dtype: str = "<i8") -> np.ndarray:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r").view(np.ndarray)  # slices of a plain array cost less
