"""What holds for every architecture: decoding with a cache, in batches and with beams gives the states of one plain pass."""

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.ids import BOS, EOS, PAD
from nmt.model.build import build
from nmt.model.network import Network

SMALL: Any = {"d_model": 32, "heads": 4, "d_ff": 64, "dropout": 0.0, "layers": 2, "max_positions": 32}
LIKE_GPT2 = {"norm": "pre", "positions": "learned", "activation": "gelu", "initialisation": "gpt2"}
EACH: dict[str, Any] = {
    "transformer": {},
    "transformer like gpt2": LIKE_GPT2,
    "prefix": {"architecture": "decoder-only"},
    "causal": {"architecture": "decoder-only", "mask": "causal"} | LIKE_GPT2,
    "rnn": {"architecture": "rnn", "layers": 1},
}
LENGTHS = (6, 3, 5)  # pieces of the sources


@pytest.fixture(params=EACH)
def network(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(1)
    made = build(ModelConfig(**SMALL | EACH[request.param]), 50).eval()
    with torch.no_grad():
        for parameter in made.parameters():  # random biases and norms too
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return made


def sources() -> Tensor:
    ids = torch.full((len(LENGTHS), max(LENGTHS) + 1), PAD)
    for row, length in zip(ids, LENGTHS, strict=True):
        row[: length + 1] = torch.tensor([*torch.randint(12, 50, (length,)), EOS])
    return ids


def targets(length: int) -> Tensor:
    return torch.cat([torch.full((len(LENGTHS), 1), BOS), torch.randint(12, 50, (len(LENGTHS), length))], 1)


@torch.no_grad()
def test_cached_states_equal_the_full_pass(network: Network) -> None:
    source, target = sources(), targets(5)
    memory = network.encode(source)
    cache = network.new_cache(memory)
    steps = [network.decode(piece, memory, cache) for piece in target.split([1, 1, 3, 1], 1)]
    torch.testing.assert_close(torch.cat(steps, 1), network.decode(target, memory), atol=2e-5, rtol=0)


@torch.no_grad()
def test_batch_equals_single(network: Network) -> None:
    source, target = sources(), targets(5)
    together = network.decode(target, network.encode(source))
    for row, length in enumerate(LENGTHS):
        alone = network.decode(target[row : row + 1], network.encode(source[row : row + 1, : length + 1]))
        torch.testing.assert_close(alone[0], together[row], atol=2e-5, rtol=0)


@torch.no_grad()
def test_hypotheses_and_sentences_move_with_their_past(network: Network) -> None:
    source, start, more = sources(), targets(1), torch.randint(12, 50, (2 * len(LENGTHS), 2))
    memory = network.encode(source)
    cache = network.new_cache(memory)
    network.decode(start, memory, cache)
    cache.reorder(torch.zeros(len(LENGTHS), 2, dtype=torch.int64))  # each hypothesis becomes two
    network.decode(more, memory, cache)
    cache.reorder(torch.tensor([[1, 0], [0, 0], [1, 1]]))
    kept = torch.tensor([0, 2])
    memory.keep(kept)
    cache.keep(kept)
    last = torch.tensor([[21], [22], [23], [24]])
    found = network.decode(last, memory, cache)

    ancestors = torch.tensor([1, 0, 5, 5])  # of the six hypotheses before
    whole = torch.cat([start.repeat_interleave(2, 0)[ancestors], more[ancestors], last], 1)
    expected = network.decode(whole, network.encode(source[kept]))
    torch.testing.assert_close(found, expected[:, -1:], atol=2e-5, rtol=0)


@torch.no_grad()
def test_the_future_changes_nothing(network: Network) -> None:
    target, memory = targets(5), network.encode(sources())
    other = target.clone()
    other[:, 3:] = 13
    before, after = (network.decode(ids, memory)[:, :3] for ids in (target, other))
    torch.testing.assert_close(before, after, atol=1e-6, rtol=0)


def test_every_parameter_learns_but_padding(network: Network) -> None:
    source, target = sources(), targets(5)
    logits = network.decode(target, network.encode(source)) @ network.output.T
    logits.log_softmax(-1)[..., 20].sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    assert network.output.grad is not None
    assert network.output.grad[PAD].abs().sum() == 0


@torch.no_grad()
def test_recorded_weights_are_a_distribution_over_the_source(network: Network) -> None:
    source, target = sources(), targets(5)
    [*_, last] = network.attentions["cross"]
    with last.recording() as recorded:
        network.decode(target, network.encode(source))
    weights = recorded[-1][..., : source.size(1)]
    assert weights.shape[:1] + weights.shape[2:3] == (3, 6)
    assert weights[1, :, :, LENGTHS[1] + 1 : source.size(1) - 1].sum() == 0  # padding
    assert bool((weights.sum(-1) < 1 + 1e-5).all())
