"""What is held out of the training text where validation or test text is missing.

The sources with the smallest digests, so that every run on the same text chooses the same, in whatever order it stands.
"""

import hashlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from nmt.data.splits import Pair, Reader
from nmt.lines import is_blank

MOST = 1_000  # pairs held out for a split, or 5% of the pairs if that is less
FEWEST = 1_000  # below so many training pairs, none is held out


@dataclass(frozen=True)
class HeldOut:
    """Pairs taken out of the training text, by split, and all sources that training must not see."""

    pairs: dict[str, list[Pair]]
    sources: frozenset[str]

    def rest_of(self, reader: Reader) -> Reader:
        """The training text without these sources."""

        def read() -> Iterator[Pair]:
            return (pair for pair in reader.read() if pair[0] not in self.sources)

        return Reader(read, reader.files, reader.form)


def hold_out(reader: Reader, splits: list[str]) -> HeldOut | None:
    """Hold out pairs for these splits, in one pass over the text; None where there are too few pairs.

    Pairs with a blank side are not held out; of a source with several translations the first is, and the others are in
    no split. At most half of the different sources is taken, for they may be few.
    """
    smallest = _Smallest(2 * MOST * len(splits))  # twice as many as may be wanted, so that half of them is known
    count = 0
    for source, target in reader.read():
        if not (is_blank(source) or is_blank(target)):
            smallest.add(count, (source, target))
        count += 1
    if count < FEWEST:
        return None
    chosen = smallest.sorted()
    chosen = chosen[: min(min(MOST, count // 20) * len(splits), len(chosen) // 2)]
    share = len(chosen) // len(splits)  # less where the same sources recur
    parts = {
        split: sorted(chosen[i * share : (i + 1) * share]) for i, split in enumerate(splits)
    }  # as the text has them
    return HeldOut(
        {split: [pair for _, pair in part] for split, part in parts.items()},
        frozenset(source for _, (source, _) in chosen),
    )


class _Smallest:
    """Of any number of pairs, the `size` with the smallest digests of their sources; of one source, the first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pairs: dict[int, tuple[int, Pair]] = {}  # by digest, with the pair's number
        self.heap: list[int] = []  # the digests negated, so that the largest comes first

    def add(self, number: int, pair: Pair) -> None:
        digest = int.from_bytes(hashlib.blake2b(pair[0].encode(), digest_size=12).digest(), "big")
        if digest in self.pairs or (len(self.heap) == self.size and digest > -self.heap[0]):
            return
        self.pairs[digest] = number, pair
        heapq.heappush(self.heap, -digest)
        if len(self.heap) > self.size:
            del self.pairs[-heapq.heappop(self.heap)]

    def sorted(self) -> list[tuple[int, Pair]]:
        """The pairs with their numbers, the smallest digest first."""
        return [numbered for _, numbered in sorted(self.pairs.items())]
