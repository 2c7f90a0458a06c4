"""Dropout, with masks that are cheap to draw on a CPU.

PyTorch's own dropout on a CPU spends most of its time drawing one Bernoulli variable per element. Drawing 64 random bits at
once and comparing each 16 of them with a threshold is several times faster. The probability is rounded to 1/65,536, and the
scale uses the rounded probability.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.ids import FIRST_PIECE, UNK

_thread = threading.local()


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Within this context, this thread draws its dropout on a CPU from this seed, whatever other threads draw."""
    _thread.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _thread.generator = None


def dropout(x: Tensor, probability: float) -> Tensor:
    """Zero each element of x, of any shape, with this probability, and scale the others to keep the mean."""
    if probability == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    threshold = round(probability * 65_536)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=getattr(_thread, "generator", None))
    uniform = draws.view(torch.int16)[: x.numel()].view(x.shape)  # uniform from -32,768 to 32,767
    kept = (uniform >= threshold - 32_768).to(x.dtype)
    return x * kept.mul_(65_536 / (65_536 - threshold))


def word_dropout(ids: Tensor, probability: float) -> Tensor:
    """Replace each piece by UNK with this probability (Bowman et al. 2016); padding, BOS, EOS and marks stay. Ids [B, T]."""
    if probability == 0:
        return ids
    draws = torch.empty(ids.shape, device=ids.device)
    draws.uniform_(generator=getattr(_thread, "generator", None) if ids.device.type == "cpu" else None)
    return ids.masked_fill((draws < probability) & (ids >= FIRST_PIECE), UNK)


class Dropout(nn.Module):
    """`dropout` in training, the identity in evaluation."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.probability) if self.training else x
