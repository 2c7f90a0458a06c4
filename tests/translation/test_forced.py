"""Forced decoding: its attention is a distribution."""

import torch

from nmt.translation.engine import TorchEngine
from tests.translation.test_search import sentences, small_model


def test_attention_is_a_distribution_over_the_source() -> None:
    """For each piece and EOS, over the source's pieces and EOS, whatever else is in the batch."""
    engine, pairs = TorchEngine(small_model(1)), list(zip(sentences(1), sentences(2), strict=True))
    for (source, target), forced in zip(pairs, engine.force(pairs), strict=True):
        weights = torch.tensor(forced.attention)
        assert weights.shape == (len(target) + 1, len(source) + 1)
        assert weights.sum(1).allclose(torch.ones(len(target) + 1), atol=1e-5)
        [alone] = engine.force([(source, target)])
        torch.testing.assert_close(torch.tensor(alone.attention), weights, atol=1e-5, rtol=1e-4)
    assert all(attention.recorded is None for attention in engine.model.attentions["cross"])
