"""Label-smoothed cross-entropy (paper, section 5.4), summed so that the caller divides once by an update's tokens."""

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.ids import PAD


def loss(states: Tensor, matrix: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """-sum_v q(v) log p(v) in nats, summed over all target tokens except padding.

    q puts 1 - smoothing on the target and spreads the rest evenly over all V tokens, as PyTorch and Szegedy et al. 2016 do;
    the loss of a perfect model is then above 0. Without smoothing it is the negative log-likelihood that perplexity is
    computed from.

    states [B, T, D], output matrix [V, D], targets [B, T] -> a scalar.
    """
    return losses(states, matrix, targets, smoothing)[0]


def losses(states: Tensor, matrix: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """`loss` with smoothing and without, from one pass over the logits [B, T, V].

    The mean over v of -log p(v) is the target's own -log p(v) plus its logit minus the mean logit. Those two logits are
    products with a row of the matrix and with its mean row, so smoothing needs no further pass.
    """
    states, targets = states.flatten(0, 1), targets.flatten()
    plain = F.cross_entropy(F.linear(states, matrix), targets, ignore_index=PAD, reduction="sum")
    if smoothing == 0:
        return plain, plain
    above_mean = F.embedding(targets, matrix) - matrix.mean(0)
    real = (targets != PAD).unsqueeze(1)
    return plain + smoothing * (states * above_mean * real).sum(), plain


def r_drop_loss(states: Tensor, matrix: Tensor, targets: Tensor, smoothing: float, alpha: float) -> Tensor:
    """R-Drop (Liang et al. 2021), half of their equation 3: the mean `loss` of two passes p and q of the same pairs, and
    alpha / 2 times the mean of KL(p || q) and KL(q || p), which is sum_v (p - q)(log p - log q) / 2.

    states of both passes [2B, T, D], output matrix [V, D], targets [B, T] -> a scalar.
    """
    real = (targets != PAD).flatten()
    targets = targets.flatten()[real]
    logits = F.linear(states.view(2, -1, states.size(-1))[:, real], matrix)
    log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    plain = -log_p.gather(2, targets.expand(2, -1).unsqueeze(2)).sum()
    smoothed = (1 - smoothing) * plain - smoothing * log_p.mean(2).sum()
    p, q = log_p
    divergence = ((p.exp() - q.exp()) * (p - q)).sum() / 2
    return (smoothed + alpha * divergence) / 2
