"""Dropout: the right share, the right scale, and nothing in evaluation."""

import pytest
import torch

from nmt.ids import FIRST_PIECE, UNK
from nmt.model.dropout import Dropout, drawn_from, dropout, word_dropout


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5])
def test_share_dropped_and_mean_kept(probability: float) -> None:
    """Over a million draws both lie within five standard deviations."""
    y = dropout(torch.ones(1_000_003), probability)
    deviation = (probability * (1 - probability) / 1e6) ** 0.5
    assert abs((y == 0).double().mean().item() - probability) < 5 * deviation
    assert abs(y.double().mean().item() - 1) < 5 * deviation / (1 - probability)
    assert y.unique().numel() == 2


def test_neighbouring_draws_are_independent() -> None:
    """Four draws share 64 random bits, yet two neighbours are dropped together only as often as by chance."""
    dropped = (dropout(torch.ones(1_000_000), 0.3) == 0).view(-1, 4)
    for i in range(4):
        for j in range(i):
            assert abs((dropped[:, i] & dropped[:, j]).double().mean().item() - 0.09) < 0.003


def test_gradient_is_the_mask_and_evaluation_changes_nothing() -> None:
    x = torch.randn(100, requires_grad=True)
    y = dropout(x, 0.4)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x, y)
    assert torch.equal(Dropout(0.9).eval()(x), x)


def test_word_dropout_reads_a_share_of_the_pieces_as_unknown() -> None:
    """Bowman et al. 2016; everything that is not text stays. Equal seeds draw equally."""
    ids = torch.randint(0, 50, (100, 200))
    with drawn_from(3):
        dropped = word_dropout(ids, 0.2)
    with drawn_from(3):
        assert torch.equal(word_dropout(ids, 0.2), dropped)
    text = ids >= FIRST_PIECE
    assert torch.equal(dropped[~text], ids[~text])
    assert set(dropped[dropped != ids].tolist()) == {UNK}
    share = float((dropped[text] == UNK).double().mean())
    assert abs(share - 0.2) < 5 * (0.2 * 0.8 / int(text.sum())) ** 0.5
    assert word_dropout(ids, 0.0) is ids
