"""Updates are planned first, then cut into micro-batches.

An update is a list of pairs with about the number of target tokens that the recipe asks for. Which pairs, and in which
order, depends on the seed and the epoch alone: devices, accumulation and resumes only change how an update is cut into
micro-batches that fit into memory. Sentences of similar length go through the model together (paper, section 5.1), so that
little of a batch is padding; an update mixes several lengths, as the paper's eight devices did.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nmt.data.preparation import Pairs, PreparedPairs, Side
from nmt.data.variation import Variation
from nmt.ids import BOS, EOS, PAD

MAX_CHUNKS = 8  # lengths mixed in an update, as the paper's eight GPUs each took a batch of one length
MIN_CHUNK_TOKENS = 512  # target tokens; a small update mixes fewer lengths
MAX_PADDING_SHARE = 0.1  # of a micro-batch's cells, once it has FEWEST_TOKENS
FEWEST_TOKENS = 256  # target cells; a smaller micro-batch may have any share of padding


@dataclass(frozen=True)
class Batch:
    """Padded ids (int64): source x EOS [B, S], decoder input BOS y [B, T], expected output y EOS [B, T]."""

    source: Tensor
    target_in: Tensor
    target_out: Tensor
    tokens: int  # of source and target, without padding

    @classmethod
    def of(cls, pairs: PreparedPairs) -> "Batch":
        """The pairs as padded tensors on the CPU."""
        return cls(
            _padded(pairs.source, last=EOS),
            _padded(pairs.target, first=BOS),
            _padded(pairs.target, last=EOS),
            int(pairs.sources.sum() + pairs.targets.sum()),
        )

    @property
    def cells(self) -> int:
        """Ids of source and target, with padding."""
        return self.source.numel() + self.target_in.numel()

    def pinned(self) -> "Batch":
        """The batch in page-locked memory, which a GPU can copy while it computes."""
        return self._moved(Tensor.pin_memory)

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device, which is not waited for."""
        return self._moved(lambda ids: ids.to(device, non_blocking=True))

    def _moved(self, move: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(move(self.source), move(self.target_in), move(self.target_out), self.tokens)


class Order:
    """The order in which a corpus is gone through: updates of about as many target tokens, epoch after epoch."""

    def __init__(self, sources: np.ndarray, targets: np.ndarray, tokens_per_update: float, seed: int, first: int = 0) -> None:
        """From the lengths of each pair (int32 [pairs]). The pairs are numbered from `first`."""
        self.sources, self.targets, self.seed, self.first = sources, targets, seed, first
        self.chunks = min(MAX_CHUNKS, max(1, int(tokens_per_update // MIN_CHUNK_TOKENS)))
        self.chunk_tokens = tokens_per_update / self.chunks

    def epoch(self, number: int) -> list[np.ndarray]:
        """The updates of an epoch, each an array of pair numbers. Every pair is in exactly one update.

        Pairs are sorted by length, with pairs of equal lengths in random order, and cut into chunks. The chunks are shuffled,
        and an update is the next few of them. The last update of an epoch may be smaller.
        """
        random = np.random.default_rng([self.seed, number])
        order = random.permutation(len(self.targets))
        order = order[np.lexsort((self.sources[order], self.targets[order]))]
        chunk_of = (np.cumsum(self.targets[order]) - 1) // self.chunk_tokens
        chunks = np.split(order + self.first, np.flatnonzero(np.diff(chunk_of)) + 1)
        shuffled = [chunks[i] for i in random.permutation(len(chunks))]
        return [np.concatenate(shuffled[i : i + self.chunks]) for i in range(0, len(shuffled), self.chunks)]

    @cached_property
    def count(self) -> int:
        """The number of updates in an epoch, which is the same in all."""
        return len(self.epoch(0))

    def stretch(self, first: int, count: int) -> list[np.ndarray]:
        """This many updates from the update number `first` on, counted over all epochs."""
        epoch, position = divmod(first, self.count)
        found = self.epoch(epoch)[position : position + count]
        return found if len(found) == count else found + self.stretch(first + len(found), count - len(found))


class Plan:
    """The updates of every epoch. From several corpora, each update draws a share of its tokens from every one.

    A corpus begins again when its pairs are used up. An epoch of several is one of the corpus that takes the most updates.
    """

    def __init__(
        self,
        pairs: Pairs,
        tokens_per_update: int,
        seed: int,
        variation: Variation | None = None,
        parts: Sequence[tuple[int, float]] | None = None,
    ) -> None:
        """`parts`: the number of pairs and the share of each corpus in `pairs`, one after another; by default one corpus."""
        self.pairs, self.seed, self.variation = pairs, seed, variation
        self.orders: list[Order] = []
        start = 0
        for number, (count, share) in enumerate(parts or [(len(pairs), 1.0)]):
            lengths = pairs.sources[start : start + count], pairs.targets[start : start + count]
            self.orders.append(Order(*lengths, share * tokens_per_update, seed + number, start))
            start += count

    def epoch(self, number: int) -> list[np.ndarray]:
        """The updates of an epoch, each an array of pair numbers."""
        if len(self.orders) == 1:
            return self.orders[0].epoch(number)
        count = max(order.count for order in self.orders)
        stretches = [order.stretch(number * count, count) for order in self.orders]
        return [np.concatenate(parts) for parts in zip(*stretches, strict=True)]

    def updates(self, epoch: int = 0, position: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """Endless (epoch, update), starting after the first `position` updates of the epoch."""
        while True:
            for update in self.epoch(epoch)[position:]:
                yield epoch, update
            epoch, position = epoch + 1, 0

    def take(self, epoch: int, update: np.ndarray) -> PreparedPairs:
        """The pairs of an update, in the form that they have in this epoch."""
        pairs = self.pairs.take(update)
        return self.variation.vary(pairs, [self.seed, epoch, *update.tolist()]) if self.variation else pairs


def micro_batches(pairs: PreparedPairs, tokens: int, fewest: int = FEWEST_TOKENS) -> Iterator[np.ndarray]:
    """Cut pairs into runs of similar length, each of at most `tokens` padded ids per side, or a single pair.

    A run ends early if it has `fewest` target ids and another pair would raise its padding above MAX_PADDING_SHARE. Yields
    the numbers of each run's pairs.
    """
    order = np.lexsort((pairs.sources, pairs.targets))
    sources, targets = pairs.sources[order], pairs.targets[order]
    real = np.cumsum(sources + targets)
    start = 0
    while start < len(order):
        rows = np.arange(1, len(order) - start + 1)
        tall = np.maximum.accumulate(sources[start:])
        wide = targets[start:]  # sorted, so each is the longest so far
        filled = real[start:] - (real[start - 1] if start else 0)
        full = rows * np.maximum(tall, wide) > tokens
        padded = (filled < (1 - MAX_PADDING_SHARE) * rows * (tall + wide)) & (rows * wide > fewest)
        over = np.flatnonzero((full | padded)[1:])  # a run has at least one pair
        end = start + 1 + int(over[0]) if len(over) else len(order)
        yield order[start:end]
        start = end


def _padded(side: Side, first: int | None = None, last: int | None = None) -> Tensor:
    """Sentences as ids [B, longest + 1], with the id `first` before or `last` after each of them."""
    lengths = side.lengths
    padded = np.full((len(lengths), int(lengths.max()) + 1), PAD, dtype=np.int64)
    body = padded if first is None else padded[:, 1:]
    body[np.arange(body.shape[1]) < lengths[:, None]] = side.ids
    if first is not None:
        padded[:, 0] = first
    if last is not None:
        padded[np.arange(len(lengths)), lengths] = last
    return torch.from_numpy(padded)
