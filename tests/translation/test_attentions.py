"""All attentions of a sentence: those of PyTorch's own layers, for the translation that `nmt translate` gives."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.errors import UsageError
from nmt.ids import BOS, EOS
from nmt.model.build import build
from nmt.model.transformer import Transformer
from nmt.translation.attentions import MAX_SHOWN_PIECES, attend, attention_maps
from tests.conftest import call
from tests.model.test_transformer import copy_attention, copy_rest, randomised
from tests.translation.test_search import sentences


def weights_of_torch(attention: Any, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Any:
    _, weights = attention(x, memory, memory, attn_mask=mask, need_weights=True, average_attn_weights=False)
    return weights


@torch.no_grad()
def stack_of_torch(model: Transformer, source: list[int], target: list[int]) -> list[np.ndarray]:
    """Encoder, decoder and cross attention from `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`."""
    config = model.config
    shape = (config.d_model, config.heads, config.d_ff, 0.0, "relu", config.layer_norm_epsilon)
    found: list[list[Tensor]] = [[], [], []]
    pre = config.norm == "pre"
    memory = model.embedding(torch.tensor([[*source, EOS]]))
    for encoder_layer in model.encoder:
        layer: Any = nn.TransformerEncoderLayer(*shape, batch_first=True, norm_first=pre).eval()
        copy_rest(encoder_layer, layer)
        asking = layer.norm1(memory) if pre else memory
        found[0].append(weights_of_torch(layer.self_attn, asking, asking))
        memory = layer(memory)
    memory = model.encoder_norm(memory)
    x = model.embedding(torch.tensor([[BOS, *target]]))
    causal = nn.Transformer.generate_square_subsequent_mask(x.size(1))
    for ours in model.decoder:
        layer = nn.TransformerDecoderLayer(*shape, batch_first=True, norm_first=pre).eval()
        copy_rest(ours, layer)
        copy_attention(ours.cross_attention, layer.multihead_attn)
        asking = layer.norm1(x) if pre else x
        found[1].append(weights_of_torch(layer.self_attn, asking, asking, causal))
        attended = x + layer.self_attn(asking, asking, asking, attn_mask=causal)[0]
        attended = layer.norm2(attended) if pre else layer.norm1(attended)
        found[2].append(weights_of_torch(layer.multihead_attn, attended, memory))
        x = layer(x, memory, causal)
    return [torch.cat(layers).numpy() for layers in found]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_weights_are_those_of_torchs_layers(norm: Literal["post", "pre"]) -> None:
    """In every layer and head, to 1e-5; each row is a distribution, and no row sees the future."""
    model = randomised(Transformer(ModelConfig(layers=3, d_model=32, heads=4, d_ff=64, norm=norm), 40)).eval()
    for source, target in zip(sentences(0), sentences(1), strict=True):
        found = attention_maps(model, source, target)
        for ours, theirs in zip(found, stack_of_torch(model, source, target), strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
            np.testing.assert_allclose(ours.sum(-1), 1, atol=1e-5)
        assert not np.triu(found[1], 1).any()


@pytest.mark.parametrize("mask", ["prefix", "causal"])
def test_one_stack_spreads_one_softmax_over_source_and_target(mask: Literal["prefix", "causal"]) -> None:
    """A target piece's weights over both sum to 1, over each alone to less. Only `causal` masks the source's future."""
    config = ModelConfig(architecture="decoder-only", layers=3, d_model=32, heads=4, d_ff=64, mask=mask)
    encoder, decoder, cross = attention_maps(randomised(build(config, 40)).eval(), [9, 8, 7, 6, 5], [10, 11, 12])
    assert (encoder.shape, decoder.shape, cross.shape) == ((3, 4, 5, 5), (3, 4, 4, 4), (3, 4, 4, 5))
    np.testing.assert_allclose(decoder.sum(-1) + cross.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(encoder.sum(-1), 1, atol=1e-5)
    assert cross.sum(-1).min() < 0.9
    assert not np.triu(decoder, 1).any()
    assert np.triu(encoder, 1).any() == (mask == "prefix")


def test_a_recurrent_network_looks_with_the_state_before() -> None:
    """It has one map, whose first row does not depend on what is read there; the others are empty."""
    config = ModelConfig(architecture="rnn", layers=1, d_model=32, heads=4, d_ff=64)
    model = randomised(build(config, 40)).eval()
    encoder, decoder, cross = attention_maps(model, [9, 8, 7, 6], [10, 11, 12])
    assert (encoder.size, decoder.size, cross.shape) == (0, 0, (1, 1, 4, 5))
    np.testing.assert_allclose(cross.sum(-1), 1, atol=1e-5)
    other = attention_maps(model, [9, 8, 7, 6], [13, 11, 12])[2][0, 0]
    np.testing.assert_array_equal(other[:2], cross[0, 0, :2])  # piece 10 or 13 is read at step 1, and first seen at step 2
    assert np.abs(other[2] - cross[0, 0, 2]).max() > 1e-4


def test_the_translation_is_that_of_nmt_translate(overfitted: Path) -> None:
    """The same text, with the pieces of both sides, EOS and BOS in place, and maps of their sizes."""
    line = "  I have seen the old man. "
    maps = attend(overfitted, line)
    assert call("translate", "--no-split", "-m", overfitted, stdin=line.encode()).stdout.strip() == maps.translation
    assert "".join(maps.source) == "\u2581" + line.strip().replace(" ", "\u2581") + "</s>"
    assert "".join(maps.written) == "\u2581" + maps.translation.replace(" ", "\u2581") + "</s>"
    assert maps.read == ["<s>", *maps.written[:-1]]
    assert maps.languages == ("en", "de")
    s, t = len(maps.source), len(maps.written)
    assert (maps.encoder.shape, maps.decoder.shape, maps.cross.shape) == ((2, 4, s, s), (2, 4, t, t), (2, 4, t, s))


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "no letter"), (" \u200b\t", "no letter"), ("12.5 %", "no letter"), ("old man " * 200, str(MAX_SHOWN_PIECES))],
)
def test_untranslated_and_long_texts_are_refused(text: str, word: str, overfitted: Path) -> None:
    with pytest.raises(UsageError, match=word):
        attend(overfitted, text)
