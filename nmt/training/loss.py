"""Label-smoothed cross-entropy (paper, section 5.4), summed so that the caller can divide once by an update's tokens."""

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.ids import PAD

CHUNKED = hasattr(F, "linear_cross_entropy")  # since PyTorch 2.13


def loss(states: Tensor, matrix: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """The sum over real target tokens of -sum_v q(v) log p(v), in nats.

    q puts 1 - smoothing on the target and spreads the smoothing evenly over all V (the form of PyTorch and of Szegedy et
    al. 2016; a perfect model's loss is then above 0). Padded targets count nothing. With smoothing 0 it is the plain
    negative log-likelihood, the one that perplexity is made of.

    The mean over v of -log p(v) is the target's own -log p(v) plus its logit minus the mean logit. Those two logits are
    products with a row of the matrix and with its mean row, so smoothing needs no further pass over all logits [B, T, V].

    states [B, T, D], matrix [V, D] (the shared embedding: there is no output bias), targets [B, T] -> a scalar.
    """
    states, targets = states.flatten(0, 1), targets.flatten()
    plain = (chunked_likelihood if states.is_cuda and CHUNKED else likelihood)(states, matrix, targets)
    if smoothing == 0:
        return plain
    above_mean = F.embedding(targets, matrix) - matrix.mean(0)
    real = (targets != PAD).unsqueeze(1)
    return plain + smoothing * (states * above_mean * real).sum()


def likelihood(states: Tensor, matrix: Tensor, targets: Tensor) -> Tensor:
    """The sum of -log p(target) over real targets: [N, D], [V, D], [N] -> a scalar."""
    return F.cross_entropy(F.linear(states, matrix), targets, ignore_index=PAD, reduction="sum")


def chunked_likelihood(states: Tensor, matrix: Tensor, targets: Tensor) -> Tensor:
    """The same, without ever holding all logits [N, V], which are most of what a micro-batch takes of a GPU's memory.

    The kernel does not know autocast: it computes in what it is given, and its own sum would too.
    """
    device, dtype = states.device.type, matrix.dtype
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    options = torch.nn.LinearCrossEntropyOptions()
    each = F.linear_cross_entropy(
        states.to(dtype), matrix.to(dtype), targets, ignore_index=PAD, reduction="none", options=options
    )
    return each.sum(dtype=matrix.dtype)
