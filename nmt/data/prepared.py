"""Training pairs as ids: flat arrays that hold a corpus compactly, however many sentences it has, in memory or on disk."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.cache import Damaged, Entry
from nmt.data.cleaning import CleaningReport
from nmt.data.encoding import Encoder
from nmt.data.splits import Pair
from nmt.data.workers import in_order
from nmt.errors import NmtError

CHUNK = 10_000  # pairs encoded at a time, or ...
CHARACTERS = 4_000_000  # ... fewer where these many fill a chunk, so that documents a line fit into memory too
SIDES = ("source", "target")


@dataclass(frozen=True)
class Side:
    """One language of the training pairs: sentence i is ids[starts[i] : starts[i + 1]], without BOS or EOS."""

    ids: np.ndarray  # uint16 where the vocabulary fits it, else int32
    starts: np.ndarray  # int64, one more than there are sentences

    @property
    def lengths(self) -> np.ndarray:
        """Pieces of each sentence, int32: a new array of four bytes a sentence, made in a hundredth of a second a million."""
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
        """The pairs that `write_pairs` wrote, memory-mapped and read-only: nothing is read until it is used.

        Raises NmtError where the folder is not whole.
        """
        try:
            dtype = Entry.open(folder).manifest["dtype"]
            sides = [Side(_mapped(folder / f"{side}.ids", dtype), _mapped(folder / f"{side}.starts")) for side in SIDES]
        except (Damaged, OSError, KeyError) as error:
            raise NmtError(f"{folder}: the prepared pairs are damaged ({error}); remove the folder") from None
        return cls(*sides)


def prepare(pairs: Iterable[Pair], encoder: Encoder, report: CleaningReport) -> PreparedPairs:
    """Encode pairs into memory; what the encoder drops is counted in the report."""
    nothing = np.empty(0, encoder.dtype), np.empty(0, np.int32)
    parts = ([nothing], [nothing])
    for encoded in map(encoder, chunks_of(pairs)):
        report.dropped.update(encoded.dropped)
        for side in (0, 1):
            parts[side].append((encoded.ids[side], encoded.lengths[side]))
    return PreparedPairs(*map(_joined, parts))


def write_pairs(
    folder: Path, pairs: Iterable[Pair], encoder: Encoder, workers: int, progress: Callable[[int], None]
) -> tuple[dict[str, Any], Counter[str], tuple[Counter[str], Counter[str]]]:
    """Encode pairs by so many processes (see workers.py), into files that `PreparedPairs.open` opens.

    Returns what the manifest must say, the reasons of dropped pairs, and per side the watched lines that were met.
    Memory does not grow with the pairs. `progress` gets the number of pairs done from time to time.
    """
    kept = 0
    dropped: Counter[str] = Counter()
    met: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    with ExitStack() as stack:
        files = [
            [stack.enter_context((folder / f"{side}.{kind}").open("wb")) for kind in ("ids", "starts")]
            for side in SIDES
        ]
        ends = [0, 0]
        for _, starts in files:
            starts.write(np.zeros(1, "<i8").data)
        for encoded in stack.enter_context(closing(in_order(encoder, chunks_of(pairs), workers))):
            for side, (ids, starts) in enumerate(files):
                ids.write(encoded.ids[side].data)
                starts.write((ends[side] + np.cumsum(encoded.lengths[side], dtype="<i8")).data)
                ends[side] += len(encoded.ids[side])
                met[side].update(encoded.met[side])
            dropped.update(encoded.dropped)
            kept += len(encoded.lengths[0])
            progress(kept + dropped.total())
    return {"dtype": encoder.dtype.str, "pairs": kept}, dropped, met


def chunks_of(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Lists of CHUNK pairs, or fewer where their lines are long."""
    chunk: list[Pair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == CHUNK or characters >= CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> Side:
    ids, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Side(ids, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))


def _mapped(path: Path, dtype: str = "<i8") -> np.ndarray:
    if not path.stat().st_size:  # there is nothing to map
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r").view(np.ndarray)  # a plain array, whose slices cost less
