"""One stack over source and target, beside Hugging Face's GPT-2 and one plain pass over the whole sequence."""

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import PRESETS, ModelConfig
from nmt.ids import BOS, EOS
from nmt.model.attention import additive_mask
from nmt.model.decoder_only import DecoderOnly

SIZES: Any = {
    "architecture": "decoder-only",
    "layers": 2,
    "d_model": 32,
    "heads": 4,
    "d_ff": 128,
    "dropout": 0.0,
    "max_positions": 64,
}
GPT2 = ModelConfig(
    **SIZES, norm="pre", positions="learned", activation="gelu", initialisation="gpt2", mask="causal", layer_norm_epsilon=1e-5
)


def randomised(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)


@pytest.mark.parametrize(("form", "equal"), [("gelu_new", True), ("gelu", False)], ids=["the tanh form", "the exact form"])
@torch.no_grad()
def test_logits_are_those_of_hugging_faces_gpt2(form: str, equal: bool) -> None:
    """Its own weights copied over. GPT-2 approximates GELU by tanh; the exact GELU is off by more than rounding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    sizes: Any = {"vocab_size": 50, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    theirs = GPT2LMHeadModel(GPT2Config(**sizes, activation_function=form)).eval()
    randomised(theirs)
    ours = DecoderOnly(GPT2, 50).eval()
    ours.embedding.weight.copy_(theirs.transformer.wte.weight)
    ours.embedding.positions.copy_(theirs.transformer.wpe.weight)
    ours.norm.load_state_dict(theirs.transformer.ln_f.state_dict())
    for block, other in zip(ours.stack, theirs.transformer.h, strict=True):
        pairs = [
            (block.self_attention.in_weight, block.self_attention.in_bias, other.attn.c_attn),
            (block.self_attention.out.weight, block.self_attention.out.bias, other.attn.c_proj),
            (block.feed_forward.inner.weight, block.feed_forward.inner.bias, other.mlp.c_fc),
            (block.feed_forward.outer.weight, block.feed_forward.outer.bias, other.mlp.c_proj),
        ]
        for weight, bias, layer in pairs:
            weight.copy_(layer.weight.T)
            bias.copy_(layer.bias)
        for add_norm, norm in zip(block.add_norms, (other.ln_1, other.ln_2), strict=True):
            add_norm.norm.load_state_dict(norm.state_dict())
    source, target = torch.randint(12, 50, (3, 7)), torch.randint(12, 50, (3, 6))
    target[:, 0] = BOS
    memory = ours.encode(torch.cat([source, torch.full((3, 1), EOS)], 1))
    found = torch.cat([memory.states, ours.decode(target, memory)], 1) @ ours.output.T
    expected = theirs(torch.cat([source, target], 1)).logits
    assert (float((found - expected).abs().max()) < 1e-4) is equal


def test_the_preset_has_gpt2_smalls_parameters() -> None:
    with torch.device("meta"):
        assert DecoderOnly(PRESETS["gpt2"].model, 50_257).count_parameters() == 124_439_808


@pytest.mark.parametrize("mask", ["prefix", "causal"])
@torch.no_grad()
def test_both_masks_equal_one_pass_over_the_whole_sequence(mask: str) -> None:
    torch.manual_seed(1)
    model = DecoderOnly(ModelConfig(**SIZES, mask=mask), 50).eval()
    randomised(model)
    source, target = torch.randint(12, 50, (3, 7)), torch.randint(12, 50, (3, 6))
    visible = torch.ones(13, 13, dtype=torch.bool).tril()
    if mask == "prefix":
        visible[:7, :7] = True
    x = model.embedding(torch.cat([source, target], 1))
    for block in model.stack:
        x = block(x, additive_mask(visible, x), lambda keys_values: keys_values)
    memory = model.encode(torch.cat([source, torch.full((3, 1), EOS)], 1))
    found = torch.cat([memory.states, model.decode(target, memory)], 1)
    torch.testing.assert_close(found, model.norm(x), atol=2e-5, rtol=0)


def test_initialisation_is_gpt2s() -> None:
    """N(0, 0.02), and 1/sqrt(R) of that before each of the R residual sums."""
    torch.manual_seed(1)
    config = GPT2.model_copy(update={"d_model": 256, "d_ff": 512, "layers": 3})
    model = DecoderOnly(config, 1_000)

    def std(weights: Tensor) -> float:
        return float(weights.detach().std())

    block = model.stack[1]
    for weights in (model.embedding.weight, block.self_attention.in_weight, block.feed_forward.inner.weight):
        assert std(weights) == pytest.approx(0.02, rel=0.02)
    for weights in (block.self_attention.out.weight, block.feed_forward.outer.weight):
        assert std(weights) == pytest.approx(0.02 / 6**0.5, rel=0.02)
