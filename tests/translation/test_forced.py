"""A given translation: its log-probabilities are those of the search, and its attention is a distribution."""

import math

import pytest
import torch

from nmt.model.attention import MultiHeadAttention, attention_weights, hiding
from nmt.translation.engine import TorchEngine
from nmt.translation.forced import force
from nmt.translation.hypothesis import SearchOptions
from tests.translation.test_search import sentences, small_model


@pytest.mark.parametrize("seed", range(3))
def test_log_probabilities_are_those_that_search_reported(seed: int) -> None:
    """Piece by piece they add up to each hypothesis's own, for sentences of many lengths in one batch."""
    model, sources = small_model(seed), sentences(seed)
    found = [best[0] for best in TorchEngine(model).search(sources, SearchOptions(extra=12))]
    for hypothesis, forced in zip(found, force(model, sources, [h.ids for h in found]), strict=True):
        assert len(forced.log_probabilities) == len(hypothesis.ids) + 1
        assert max(forced.log_probabilities) <= 0
        assert math.isclose(sum(forced.log_probabilities), hypothesis.log_probability, abs_tol=1e-4)


def test_attention_is_a_distribution_over_the_source() -> None:
    """For each piece and EOS, over the source's pieces and EOS, whatever the batch; and the weights are no longer kept."""
    model, sources = small_model(1), sentences(1)
    targets = sentences(2)
    together = force(model, sources, targets)
    for source, target, forced in zip(sources, targets, together, strict=True):
        weights = torch.tensor(forced.attention)
        assert weights.shape == (len(target) + 1, len(source) + 1)
        assert weights.sum(1).allclose(torch.ones(len(target) + 1), atol=1e-5)
        [alone] = force(model, [source], [target])
        torch.testing.assert_close(torch.tensor(alone.attention), weights, atol=1e-5, rtol=1e-4)
    assert all(module.seen is None for module in model.modules() if isinstance(module, MultiHeadAttention))


def test_watching_changes_nothing() -> None:
    """The states are the same, and the weights those of the queries and keys that went in."""
    attention = next(module for module in small_model(1).modules() if isinstance(module, MultiHeadAttention))
    query, keys_values = torch.randn(2, 3, 32), torch.randn(2, 5, 64)
    visible = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    visible[1, ..., 3:] = False
    mask = hiding(visible, query)
    plain = attention(query, keys_values, mask)
    with attention.watched() as seen:
        torch.testing.assert_close(attention(query, keys_values, mask), plain, atol=1e-6, rtol=1e-5)
    [weights] = seen
    queries, keys = (states.unflatten(-1, (4, 8)).transpose(1, 2) for states in (query, keys_values[..., :32]))
    assert torch.equal(weights, attention_weights(queries, keys, mask))
