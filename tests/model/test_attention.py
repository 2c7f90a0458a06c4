"""Attention: two kernels that agree, masks that hide and never poison, a cache that forgets nothing."""

import pytest
import torch

from nmt.model.attention import Cache, MultiHeadAttention, attention, attention_weights, hiding
from tests.tolerance import rounding


def qkv(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.randn(2, 4, 5, 8, dtype=dtype),
        torch.randn(2, 4, 5, 8, dtype=dtype),
        torch.randn(2, 4, 5, 8, dtype=dtype),
    )


VISIBLE = torch.tensor([[True, True, True, True, True], [True, True, False, False, False]])[:, None, None, :]
MASK = hiding(VISIBLE, torch.zeros(1))


@pytest.mark.parametrize(("mask", "causal"), [(None, False), (MASK, False), (None, True)])
def test_fused_kernel_equals_softmax_by_hand(mask: torch.Tensor | None, causal: bool) -> None:
    query, key, value = qkv()
    by_hand = attention_weights(query, key, mask, causal) @ value
    torch.testing.assert_close(attention(query, key, value, mask, causal), by_hand, **rounding(torch.float32, 8, 5))


@pytest.mark.parametrize(("mask", "causal"), [(None, False), (MASK, False), (None, True)])
def test_bf16_on_the_cpu_is_near_fp32(mask: torch.Tensor | None, causal: bool) -> None:
    query, key, value = qkv()
    rounded = None if mask is None else mask.bfloat16()
    halved = attention(query.bfloat16(), key.bfloat16(), value.bfloat16(), rounded, causal)
    expected = attention(query, key, value, mask, causal)
    torch.testing.assert_close(halved.float(), expected, **rounding(torch.bfloat16, 8, 5))


def test_weights_sum_to_one_and_hidden_keys_get_none() -> None:
    query, key, _ = qkv()
    weights = attention_weights(query, key, MASK)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5))
    assert weights[1, :, :, 2:].abs().max() == 0


def test_each_position_sees_itself_and_the_past_alone() -> None:
    query, key, _ = qkv()
    weights = attention_weights(query, key, causal=True)
    assert weights.triu(1).abs().max() == 0
    assert (weights.tril() > 0).sum() == 2 * 4 * 15


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_row_with_nothing_to_see_gives_no_nan_in_value_or_gradient(dtype: torch.dtype) -> None:
    query, key, value = (tensor.requires_grad_() for tensor in qkv(dtype))
    nothing = hiding(torch.zeros(2, 1, 1, 5, dtype=torch.bool), query)
    mixed = attention(query, key, value, nothing)
    mixed.sum().backward()
    for tensor in (mixed, query.grad, key.grad, value.grad):
        assert tensor is not None
        assert torch.isfinite(tensor).all()


def test_module_equals_torchs_own_multi_head_attention() -> None:
    ours = MultiHeadAttention(16, 4, 0.0)
    ours.reset_parameters()
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.in_weight,
            "in_proj_bias": ours.in_bias,
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    expected, _ = theirs(x, memory, memory)
    found = ours(ours.project_query(x), ours.project_memory(memory))
    torch.testing.assert_close(found, expected, **rounding(torch.float32, 16, 4, 7, 16))


def test_cache_returns_all_that_was_added_across_its_blocks() -> None:
    steps = Cache.BLOCK + 3
    keys_values = torch.randn(2, 3, steps, 64)  # layer first
    cache = Cache(2)
    for t in range(steps):
        cache.extend(1, torch.empty(3, 1, 32))
        for layer in range(2):
            assert torch.equal(cache.update(layer, keys_values[layer, :, t : t + 1]), keys_values[layer, :, : t + 1])
    assert cache.length == steps


def test_cache_shows_each_hypothesis_itself_and_its_ancestors() -> None:
    """Whatever became of the beams: attention over the shared columns is attention over copied rows."""
    cache = Cache(1)
    copies: list[list[list[int]]] = [[[]], [[]], [[]]]  # the columns of each hypothesis of each sentence
    kept = [0, 1, 2]
    added, expected = 0, torch.empty(3, 0, 64)
    for sentences, beams in (
        ([0, 1, 2], [[0, 0], [0, 0], [0, 0]]),
        ([2, 0], [[1, 0], [1, 1]]),
        ([1], [[0, 1]]),
        ([0], [[1, 1]]),
    ):
        width = len(copies[0])
        cache.extend(width, torch.empty(len(kept), width, 32))
        new = torch.randn(len(kept), width, 64)
        expected = torch.cat([expected, new], 1)
        assert torch.equal(cache.update(0, new), expected)
        for held in copies:
            for number, columns in enumerate(held):
                columns.append(added + number)
        added += width
        if cache.mask is None:
            assert width == 1, "a hypothesis that is alone sees all there is"
        else:
            for held, hidden in zip(copies, cache.mask[:, 0], strict=True):
                assert [(row == 0).nonzero().flatten().tolist() for row in hidden] == held
        copies = [[[*copies[s][i]] for i in chosen] for s, chosen in zip(sentences, beams, strict=True)]
        kept = [kept[s] for s in sentences]
        cache.keep(torch.tensor(sentences))
        expected = expected[sentences]
        cache.reorder(torch.tensor(beams))
