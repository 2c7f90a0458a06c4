"""Label-smoothed cross-entropy (paper, section 5.4), summed so that the caller can divide once by an update's tokens."""

from torch import Tensor
from torch.nn import functional as F

from nmt.ids import PAD


def loss(states: Tensor, matrix: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """The sum over real target tokens of -sum_v q(v) log p(v), in nats.

    q puts 1 - smoothing on the target and spreads the smoothing evenly over all V (the form of PyTorch and of Szegedy et
    al. 2016; a perfect model's loss is then above 0). Padded targets count nothing. With smoothing 0 it is the plain
    negative log-likelihood, the one that perplexity is made of.

    states [B, T, D], matrix [V, D] (the shared embedding: there is no output bias), targets [B, T] -> a scalar.
    """
    logits = F.linear(states, matrix).flatten(0, 1)
    return F.cross_entropy(logits, targets.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum")
