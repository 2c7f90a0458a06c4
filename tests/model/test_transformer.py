"""The model compared with PyTorch's own layers, the paper's numbers, and itself."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from nmt.config import PRESETS, ModelConfig
from nmt.ids import BOS, EOS, PAD
from nmt.model.attention import Cache
from nmt.model.dropout import Dropout
from nmt.model.transformer import AddNorm, DecoderLayer, EncoderLayer, Transformer, sinusoids
from nmt.training.loss import loss
from tests.tolerance import rounding

each_norm = pytest.mark.parametrize("norm", ["post", "pre"])
SMALL = ModelConfig(layers=2, d_model=32, heads=4, d_ff=64, dropout=0.0)
ATTENTION = (32, 8, 7, 32)  # terms of its sums: projections, scores, at most seven keys, output
FEED_FORWARD = (32, 64)
ENCODER_LAYER = (*ATTENTION, *FEED_FORWARD)
DECODER_LAYER = (*ATTENTION, *ATTENTION, *FEED_FORWARD)
MODEL = 2 * (ENCODER_LAYER + DECODER_LAYER)


def randomised(module: Any) -> Any:
    """The module with random biases and norms too, because layers also agree on zeros and ones."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return module


def copy_attention(ours: Any, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.in_weight)
        theirs.in_proj_bias.copy_(ours.in_bias)
    theirs.out_proj.load_state_dict(ours.out.state_dict())


def copy_rest(ours: Any, theirs: Any) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    for number, add_norm in enumerate(ours.add_norms, 1):
        getattr(theirs, f"norm{number}").load_state_dict(add_norm.norm.state_dict())


def pair_of_layers(ours: Any, theirs: Any, norm: str) -> tuple[Any, Any]:
    """One of our layers, randomised, and PyTorch's with the same parameters."""
    config = SMALL.model_copy(update={"norm": norm})
    sizes = (config.d_model, config.heads, config.d_ff, 0.0, "relu", config.layer_norm_epsilon)
    pair = randomised(ours(config)), theirs(*sizes, batch_first=True, norm_first=norm == "pre")
    copy_rest(*pair)
    return pair


@each_norm
def test_encoder_layer_equals_torchs(norm: str) -> None:
    ours, theirs = pair_of_layers(EncoderLayer, nn.TransformerEncoderLayer, norm)
    x = torch.randn(3, 7, 32)
    padding = torch.arange(7) >= torch.tensor([[7], [4], [1]])
    expected, found = theirs(x, src_key_padding_mask=padding), ours(x, ~padding[:, None, None, :])
    torch.testing.assert_close(found[~padding], expected[~padding], **rounding(torch.float32, *ENCODER_LAYER))


@each_norm
def test_decoder_layer_equals_torchs(norm: str) -> None:
    ours, theirs = pair_of_layers(DecoderLayer, nn.TransformerDecoderLayer, norm)
    copy_attention(ours.cross_attention, theirs.multihead_attn)
    x, memory = torch.randn(3, 5, 32), torch.randn(3, 7, 32)
    padding = torch.arange(7) >= torch.tensor([[7], [4], [1]])
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    expected = theirs(x, memory, causal, memory_key_padding_mask=padding, tgt_is_causal=True)
    found = ours(x, ours.cross_attention.project_memory(memory), ~padding[:, None, None, :], None, 0)
    torch.testing.assert_close(found, expected, **rounding(torch.float32, *DECODER_LAYER))


def test_every_post_norm_block_ends_normalised() -> None:
    """Features have mean 0 and variance 1 after each of the 30 sub-layers of base; the stacks end without a norm."""
    model = Transformer(PRESETS["base"].model, 100).eval()
    outputs: list[torch.Tensor] = []
    for module in model.modules():
        if isinstance(module, AddNorm):
            module.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    model.decode(torch.randint(12, 100, (2, 6)), model.encode(torch.randint(12, 100, (2, 5))))
    assert len(outputs) == 12 + 18
    for output in outputs:
        torch.testing.assert_close(output.mean(-1), torch.zeros(output.shape[:-1]), atol=1e-4, rtol=0)
        torch.testing.assert_close(output.var(-1, correction=0), torch.ones(output.shape[:-1]), atol=1e-3, rtol=0)
    assert sum(isinstance(module, nn.LayerNorm) for module in model.modules()) == 30


def test_base_has_the_parameters_of_the_paper() -> None:
    """63,082,496 at 37,000 pieces, with biases everywhere except on the output; the shared matrix counts once."""
    with torch.device("meta"):
        model = Transformer(PRESETS["base"].model, 37_000)
    assert model.count_parameters() == 63_082_496
    sizes = [sum(p.numel() for layer in stack for p in layer.parameters()) for stack in (model.encoder, model.decoder)]
    assert sizes == [18_914_304, 25_224_192]


def test_parameter_names_are_frozen() -> None:
    """A renamed parameter would make every saved model unreadable."""
    names = [name for name, _ in Transformer(SMALL.model_copy(update={"layers": 1}), 20).named_parameters()]
    attention = ["in_weight", "in_bias", "out.weight", "out.bias"]
    feed_forward = [f"feed_forward.{part}" for part in ("inner.weight", "inner.bias", "outer.weight", "outer.bias")]
    norms = [f"add_norms.{i}.norm.{part}" for i in range(3) for part in ("weight", "bias")]
    self_attention, cross_attention = ([f"{kind}_attention.{part}" for part in attention] for kind in ("self", "cross"))
    encoder = self_attention + feed_forward + norms[:4]
    decoder = self_attention + cross_attention + feed_forward + norms
    stacks = (f"{stack}.0.{part}" for stack, parts in (("encoder", encoder), ("decoder", decoder)) for part in parts)
    assert names == ["embedding.weight", *stacks]


def test_loss_of_an_untrained_model_is_that_of_a_guess() -> None:
    """Within [ln V, ln V + 0.7]; PyTorch's default embeddings would start near 93."""
    size = 5_000
    model = Transformer(PRESETS["tiny"].model, size)
    source, target = torch.randint(12, size, (8, 20)), torch.randint(12, size, (8, 20))
    per_token = loss(model.decode(target, model.encode(source)), model.output, target.roll(-1, 1)).item() / 160
    assert math.log(size) <= per_token <= math.log(size) + 0.7


def test_padding_row_stays_zero_in_training() -> None:
    """The other rows have unit variance at first, scaled by sqrt(D), and all are trained."""
    model = Transformer(SMALL, 50)
    assert abs(model.embedding.weight[PAD + 1 :].std().item() * 32**0.5 - 1) < 0.1
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(10):
        source, target = torch.randint(0, 50, (4, 6)), torch.randint(0, 50, (4, 6))
        source[:, 0] = EOS
        optimizer.zero_grad()
        loss(model.decode(target, model.encode(source)), model.output, target).backward()
        optimizer.step()
    assert model.embedding.weight[PAD].abs().max() == 0
    assert model.embedding.weight[PAD + 1 :].abs().min() > 0


def test_one_matrix_serves_source_target_and_output() -> None:
    """Its gradient has a part from each use, and it is a single parameter."""
    model = Transformer(SMALL, 30)
    assert [name for name, parameter in model.named_parameters() if 30 in parameter.shape] == ["embedding.weight"]
    assert model.output is model.embedding.weight
    source, target, expected = torch.tensor([[12, EOS]]), torch.tensor([[BOS, 13]]), torch.tensor([[13, EOS]])
    memory = model.encode(source)
    loss(model.decode(target, memory), model.output.detach(), expected).backward()
    grad = model.embedding.weight.grad
    assert grad is not None
    used = grad.abs().sum(1).nonzero().flatten().tolist()
    assert used == [BOS, EOS, 12, 13]  # from the two inputs only; the output adds every row except padding
    model.zero_grad()
    loss(model.decode(target, model.encode(source)), model.output, expected).backward()
    assert model.embedding.weight.grad is not None
    assert (model.embedding.weight.grad.abs().sum(1) > 0).sum() == 29


def test_positions_are_the_papers_formula() -> None:
    table = sinusoids(1_024, 512)
    for position in (0, 1, 255, 1_023):
        for i in (0, 1, 100, 255):
            angle = position / 10_000 ** (2 * i / 512)
            assert abs(table[position, 2 * i].item() - math.sin(angle)) < 1e-6
            assert abs(table[position, 2 * i + 1].item() - math.cos(angle)) < 1e-6
    assert table.dtype == torch.float32
    torch.testing.assert_close(
        sinusoids(2, 8)[1],
        torch.tensor([0.841471, 0.540302, 0.099833, 0.995004, 0.01, 0.99995, 0.001, 1.0]),
        atol=1e-6,
        rtol=0,
    )


def test_positions_grow_to_any_length() -> None:
    model = Transformer(SMALL, 30).eval()
    ids = torch.randint(12, 30, (1, 1_500))
    scaled = model.embedding.weight[ids[0]] * 32**0.5
    torch.testing.assert_close(model.embedding(ids)[0], scaled + sinusoids(1_500, 32))


def test_dropout_stands_where_the_paper_has_it() -> None:
    """On each sub-layer's output and on the two embedding sums: 2 + 2 x 2 + 2 x 3 draws in two layers."""
    model = Transformer(SMALL.model_copy(update={"dropout": 0.1}), 30)
    draws = []
    for module in model.modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(lambda _module, inputs, _output: draws.append(inputs[0].shape))
    model.decode(torch.randint(12, 30, (2, 4)), model.encode(torch.randint(12, 30, (2, 5))))
    assert len(draws) == 12
    assert {shape[-1] for shape in draws} == {32}
    assert all(getattr(module, "p_dropout", 0) == 0 for module in model.modules())


def padded_example() -> tuple[Transformer, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A model, two sources of which one is padded, their targets, and the decoder's states."""
    model = Transformer(SMALL, 30).eval()
    source, target = torch.randint(12, 30, (2, 6)), torch.randint(12, 30, (2, 5))
    source[1, 3:] = PAD
    return model, source, target, model.decode(target, model.encode(source))


def test_padding_of_the_source_changes_nothing() -> None:
    model, source, target, states = padded_example()
    alone = model.decode(target[1:], model.encode(source[1:, :3]))
    torch.testing.assert_close(states[1:], alone, **rounding(torch.float32, *MODEL))


def test_the_future_changes_nothing() -> None:
    model, source, target, states = padded_example()
    target[:, 3:] = 15
    found = model.decode(target, model.encode(source))
    torch.testing.assert_close(found[:, :3], states[:, :3], **rounding(torch.float32, *MODEL))


@each_norm
def test_cached_states_equal_the_full_pass(norm: str) -> None:
    """Token by token and several tokens at once, beyond one block of the cache."""
    model = Transformer(SMALL.model_copy(update={"norm": norm}), 30).eval()
    source = torch.randint(12, 30, (2, 6))
    source[1, 3:] = PAD
    target = torch.randint(12, 30, (2, Cache.BLOCK + 8))
    memory = model.encode(source)
    full = model.decode(target, memory)
    for positions in (1, 10):
        cache = Cache(2)
        pieces = [model.decode(tokens, memory, cache) for tokens in target.split(positions, 1)]
        torch.testing.assert_close(torch.cat(pieces, 1), full, **rounding(torch.float32, *MODEL))
