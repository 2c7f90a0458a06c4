"""Label smoothing compared with PyTorch's own, and padding that adds nothing."""

import math

import pytest
import torch
from torch.nn import functional as F

from nmt.ids import PAD
from nmt.training.loss import loss, losses, r_drop_loss

D, V = 8, 11
Example = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def example() -> Example:
    targets = torch.randint(1, V, (3, 6))
    targets[1, 4:] = PAD
    return torch.randn(3, 6, D), torch.randn(V, D), targets


def long_example(dtype: torch.dtype) -> Example:
    """Many more positions and pieces than D; some rows are padded, one of them entirely."""
    targets = torch.randint(1, 500, (9, 70))
    targets[1, 40:] = targets[5, 1:] = targets[8] = PAD
    states, matrix = torch.randn(9, 70, D, dtype=dtype), torch.randn(500, D, dtype=dtype)
    return states.requires_grad_(), matrix.requires_grad_(), targets


def torchs(states: torch.Tensor, matrix: torch.Tensor, targets: torch.Tensor, smoothing: float) -> torch.Tensor:
    logits = F.linear(states, matrix).flatten(0, 1)
    return F.cross_entropy(logits, targets.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum")


def relative_errors(found: torch.Tensor, exact: torch.Tensor, inputs: list[torch.Tensor]) -> list[float]:
    """Of the loss and of its gradient by each input."""
    sides = [[value.detach().double(), *torch.autograd.grad(value, inputs, retain_graph=True)] for value in (found, exact)]
    return [float((one - other).norm() / other.norm()) for one, other in zip(*sides, strict=True)]


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
    assert loss(states, matrix, torch.full_like(targets, PAD), 0.1) == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torchs_losses_and_gradients(dtype: torch.dtype, smoothing: float) -> None:
    """Smoothed and plain, with the gradients by states and matrix."""
    states, matrix, targets = long_example(dtype)
    for found, kind in zip(losses(states, matrix, targets, smoothing), (smoothing, 0.0), strict=True):
        exact = torchs(states, matrix, targets, kind)
        errors = relative_errors(found, exact, [states, matrix])
        # Processors add in different orders: the error of a sum over the vocabulary grows with the root of its length.
        assert max(errors) < torch.finfo(dtype).eps * len(matrix) ** 0.5


def test_r_drop_written_out() -> None:
    """Liang et al. 2021, equations 1 to 3, halved: position by position, KL by its definition; in float64 to 1e-10."""
    first, matrix, targets = (tensor.double() if tensor.is_floating_point() else tensor for tensor in example())
    states = torch.cat([first, first + torch.randn_like(first)]).requires_grad_()
    matrix.requires_grad_()
    alpha, smoothing = 5.0, 0.1
    expected = torch.zeros((), dtype=torch.float64)
    for sentence, row in enumerate(targets):
        for place, target in enumerate(row):
            if target == PAD:
                continue
            p, q = (F.linear(one[place], matrix).softmax(-1) for one in (states[sentence], states[3 + sentence]))
            for one in (p, q):
                expected = expected - (1 - smoothing) * one[target].log() / 2 - smoothing * one.log().mean() / 2
            divergences = (p * (p / q).log()).sum() + (q * (q / p).log()).sum()
            expected = expected + alpha / 2 * divergences / 2
    found = r_drop_loss(states, matrix, targets, smoothing, alpha)
    assert max(relative_errors(found, expected, [states, matrix])) < 1e-10


def test_r_drop_of_equal_passes_is_the_plain_loss() -> None:
    states, matrix, targets = example()
    found = r_drop_loss(states.repeat(2, 1, 1), matrix, targets, 0.1, 5.0)
    torch.testing.assert_close(found, loss(states, matrix, targets, 0.1))
