"""Updates are planned first, then cut into micro-batches.

An update is a list of pairs with about the number of target tokens that the recipe asks for. Which pairs, and in which
order, depends on the seed and the epoch alone: devices, accumulation and resumes only change how an update is cut into
micro-batches that fit into memory. Sentences of similar length go through the model together (paper, section 5.1), so that
little of a batch is padding; an update mixes several lengths, as the paper's eight devices did.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.data.preparation import PreparedPairs, Side
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


class Plan:
    """The updates of every epoch, and the batches they are cut into."""

    def __init__(self, pairs: PreparedPairs, tokens_per_update: int, seed: int) -> None:
        self.pairs, self.seed = pairs, seed
        self.sources, self.targets = pairs.source.lengths + 1, pairs.target.lengths + 1  # with EOS
        self.chunks = min(MAX_CHUNKS, max(1, tokens_per_update // MIN_CHUNK_TOKENS))
        self.chunk_tokens = tokens_per_update / self.chunks

    def epoch(self, number: int) -> list[np.ndarray]:
        """The updates of an epoch, each an array of pair numbers. Every pair is in exactly one update.

        Pairs are sorted by length, with pairs of equal lengths in random order, and cut into chunks. The chunks are shuffled,
        and an update is the next few of them. The last update of an epoch may be smaller.
        """
        random = np.random.default_rng([self.seed, number])
        order = random.permutation(len(self.pairs))
        order = order[np.lexsort((self.sources[order], self.targets[order]))]
        chunk_of = (np.cumsum(self.targets[order]) - 1) // self.chunk_tokens
        chunks = np.split(order, np.flatnonzero(np.diff(chunk_of)) + 1)
        shuffled = [chunks[i] for i in random.permutation(len(chunks))]
        return [np.concatenate(shuffled[i : i + self.chunks]) for i in range(0, len(shuffled), self.chunks)]

    def updates(self, epoch: int = 0, position: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """Endless (epoch, update), starting after the first `position` updates of the epoch."""
        while True:
            for update in self.epoch(epoch)[position:]:
                yield epoch, update
            epoch, position = epoch + 1, 0

    def target_tokens(self, update: np.ndarray) -> int:
        """The number of target tokens to predict, including EOS."""
        return int(self.targets[update].sum())

    def micro_batches(self, update: np.ndarray, tokens: int, fewest: int = FEWEST_TOKENS) -> Iterator[np.ndarray]:
        """Cut an update into runs of pairs of similar length, each of at most `tokens` padded ids per side, or a single pair.

        A run ends early if it has `fewest` target ids and another pair would raise its padding above MAX_PADDING_SHARE.
        """
        order = update[np.lexsort((self.sources[update], self.targets[update]))]
        sources, targets = self.sources[order], self.targets[order]
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

    def batch(self, pairs: np.ndarray) -> Batch:
        """The pairs as padded tensors on the CPU."""
        return Batch(
            _padded(self.pairs.source, pairs, last=EOS),
            _padded(self.pairs.target, pairs, first=BOS),
            _padded(self.pairs.target, pairs, last=EOS),
            int(self.sources[pairs].sum() + self.targets[pairs].sum()),
        )


def _padded(side: Side, sentences: np.ndarray, first: int | None = None, last: int | None = None) -> Tensor:
    """Sentences as ids [B, longest + 1], with the id `first` before or `last` after each of them."""
    starts = side.starts[sentences]
    lengths = side.starts[sentences + 1] - starts
    padded = np.full((len(sentences), int(lengths.max()) + 1), PAD, dtype=np.int64)
    body = padded if first is None else padded[:, 1:]
    before = np.cumsum(lengths) - lengths  # pieces of the sentences before
    body[np.arange(body.shape[1]) < lengths[:, None]] = side.ids[np.repeat(starts - before, lengths) + np.arange(lengths.sum())]
    if first is not None:
        padded[:, 0] = first
    if last is not None:
        padded[np.arange(len(sentences)), lengths] = last
    return torch.from_numpy(padded)
