"""Label smoothing against torch's own, and padding that counts nothing."""

import math

import pytest
import torch
from torch.nn import functional as F

from nmt.ids import PAD
from nmt.training.loss import loss

D, V = 8, 11


def example() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    targets = torch.randint(1, V, (3, 6))
    targets[1, 4:] = PAD
    return torch.randn(3, 6, D), torch.randn(V, D), targets


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_equals_torchs_cross_entropy(smoothing: float) -> None:
    states, matrix, targets = example()
    logits = (states @ matrix.T).view(-1, V)
    expected = F.cross_entropy(logits, targets.view(-1), ignore_index=PAD, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss(states, matrix, targets, smoothing), expected)


def test_smoothed_distribution_written_out() -> None:
    """V = 5, smoothing 0.4: the target keeps 0.6 + 0.4 / 5 = 0.68, each of the others 0.08."""
    log_p = torch.tensor([0.1, 0.2, 0.3, 0.15, 0.25]).log()
    found = loss(log_p.view(1, 1, 5), torch.eye(5), torch.tensor([[2]]), 0.4)
    expected = -sum(q * p for q, p in zip([0.08, 0.08, 0.68, 0.08, 0.08], log_p.tolist(), strict=True))
    assert math.isclose(found.item(), expected, rel_tol=1e-6)


def test_padded_targets_change_neither_loss_nor_gradient() -> None:
    states, matrix, targets = example()
    states.requires_grad_()
    wider = torch.cat([targets, torch.full((3, 4), PAD)], 1)
    plain = loss(states, matrix, targets, 0.1)
    padded = loss(torch.cat([states, torch.randn(3, 4, D)], 1), matrix, wider, 0.1)
    torch.testing.assert_close(plain, padded)
    (gradient,) = torch.autograd.grad(plain, states, retain_graph=True)
    (with_padding,) = torch.autograd.grad(padded, states)
    torch.testing.assert_close(gradient, with_padding)
    assert gradient[1, 4:].abs().max() == 0


def test_batch_is_the_sum_of_its_sentences() -> None:
    """A pair alone counts as much as beside a longer one; a batch without padding works."""
    states, matrix, targets = example()
    alone = sum(
        loss(states[i : i + 1, :length], matrix, targets[i : i + 1, :length], 0.1) for i, length in enumerate((6, 4, 6))
    )
    torch.testing.assert_close(loss(states, matrix, targets, 0.1), alone)
