"""Forced decoding: its log-probabilities are those of the search, and its attention is a distribution."""

import math

import pytest
import torch

from nmt.translation.engine import TorchEngine, force
from nmt.translation.hypothesis import SearchOptions
from tests.translation.test_search import sentences, small_model


@pytest.mark.parametrize("seed", range(3))
def test_log_probabilities_are_those_that_search_reported(seed: int) -> None:
    """Those of the pieces add up to each hypothesis's own, for sentences of many lengths in one batch."""
    model, sources = small_model(seed), sentences(seed)
    found = [best[0] for best in TorchEngine(model).search(sources, SearchOptions(extra=12))]
    for hypothesis, forced in zip(found, force(model, sources, [h.ids for h in found]), strict=True):
        assert len(forced.log_probabilities) == len(hypothesis.ids) + 1
        assert max(forced.log_probabilities) <= 0
        assert math.isclose(sum(forced.log_probabilities), hypothesis.log_probability, abs_tol=1e-4)


def test_attention_is_a_distribution_over_the_source() -> None:
    """For each piece and EOS, over the source's pieces and EOS, whatever else is in the batch."""
    model, sources, targets = small_model(1), sentences(1), sentences(2)
    for source, target, forced in zip(sources, targets, force(model, sources, targets), strict=True):
        weights = torch.tensor(forced.attention)
        assert weights.shape == (len(target) + 1, len(source) + 1)
        assert weights.sum(1).allclose(torch.ones(len(target) + 1), atol=1e-5)
        [alone] = force(model, [source], [target])
        torch.testing.assert_close(torch.tensor(alone.attention), weights, atol=1e-5, rtol=1e-4)
    assert all(layer.cross_attention.recorded is None for layer in model.decoder)
