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

    states [B, T, D], matrix [V, D] (the shared embedding: there is no output bias), targets [B, T] -> a scalar.
    """
    if states.is_cuda and CHUNKED:
        return chunked_loss(states, matrix, targets, smoothing)
    logits = F.linear(states, matrix).flatten(0, 1)
    return F.cross_entropy(logits, targets.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum")


def chunked_loss(states: Tensor, matrix: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """The same number, without ever holding all logits [B, T, V]: on a GPU they are most of a micro-batch's memory.

    PyTorch's chunked kernel knows no smoothing, but smoothing needs no kernel. The mean over v of -log p(v) is the
    target's own -log p plus (target's logit - mean logit), and a mean logit is a product with the matrix's mean row.
    """
    states, targets = states.flatten(0, 1), targets.flatten()
    options = torch.nn.LinearCrossEntropyOptions()
    plain = F.linear_cross_entropy(states, matrix, targets, ignore_index=PAD, reduction="sum", options=options)
    if smoothing == 0:
        return plain
    above_mean = F.embedding(targets, matrix) - matrix.mean(0)
    real = (targets != PAD).unsqueeze(1)
    return plain + smoothing * (states * above_mean * real).sum()
