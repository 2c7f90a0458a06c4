"""Attention: two kernels that agree, masks that hide without NaN, and a cache that equals copied rows."""

import pytest
import torch

from nmt.model.attention import Cache, MultiHeadAttention, additive_mask, attention, attention_weights
from tests.tolerance import rounding

VISIBLE = torch.tensor([[True, True, True, True, True], [True, True, False, False, False]])[:, None, None, :]
MASK = additive_mask(VISIBLE, torch.zeros(1))
each_mask = pytest.mark.parametrize(("mask", "causal"), [(None, False), (MASK, False), (None, True)])


def qkv(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query, key, value = torch.randn(3, 2, 4, 5, 8, dtype=dtype)
    return query, key, value


@each_mask
def test_fused_kernel_equals_softmax_by_hand(mask: torch.Tensor | None, causal: bool) -> None:
    query, key, value = qkv()
    by_hand = attention_weights(query, key, mask, causal) @ value
    torch.testing.assert_close(attention(query, key, value, mask, causal), by_hand, **rounding(torch.float32, 8, 5))


@each_mask
def test_bf16_on_the_cpu_is_near_fp32(mask: torch.Tensor | None, causal: bool) -> None:
    query, key, value = qkv()
    rounded = None if mask is None else mask.bfloat16()
    found = attention(query.bfloat16(), key.bfloat16(), value.bfloat16(), rounded, causal)
    expected = attention(query, key, value, mask, causal)
    torch.testing.assert_close(found.float(), expected, **rounding(torch.bfloat16, 8, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fully_masked_row_gives_no_nan_in_value_or_gradient(dtype: torch.dtype) -> None:
    query, key, value = (tensor.requires_grad_() for tensor in qkv(dtype))
    mixed = attention(query, key, value, additive_mask(torch.zeros(2, 1, 1, 5, dtype=torch.bool), query))
    mixed.sum().backward()
    for tensor in (mixed, query.grad, key.grad, value.grad):
        assert tensor is not None
        assert torch.isfinite(tensor).all()


def test_module_equals_torchs_own_multi_head_attention() -> None:
    ours = MultiHeadAttention(16, 4, 0.0)
    ours.reset_parameters()
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    names = {"in_proj_weight": "in_weight", "in_proj_bias": "in_bias", "out_proj.weight": "out.weight"}
    names["out_proj.bias"] = "out.bias"
    theirs.load_state_dict({name: ours.get_parameter(own) for name, own in names.items()})
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    expected, _ = theirs(x, memory, memory)
    found = ours(ours.project_query(x), ours.project_memory(memory))
    torch.testing.assert_close(found, expected, **rounding(torch.float32, 16, 4, 7, 16))


def test_cache_shows_each_hypothesis_itself_and_its_ancestors() -> None:
    """However the beams are reordered, attention over the shared columns equals attention over copied rows."""
    cache = Cache(1)
    copies: list[list[list[int]]] = [[[]], [[]], [[]]]  # the columns of each hypothesis of each sentence
    added, expected = 0, torch.empty(3, 0, 64)
    for sentences, beams in (
        ([0, 1, 2], [[0, 0], [0, 0], [0, 0]]),
        ([2, 0], [[1, 0], [1, 1]]),
        ([1], [[0, 1]]),
        ([0], [[1, 1]]),
    ):
        width = len(copies[0])
        cache.extend(width, torch.empty(len(copies), width, 32))
        new = torch.randn(len(copies), width, 64)
        expected = torch.cat([expected, new], 1)
        assert torch.equal(cache.update(0, new), expected)
        for held in copies:
            for number, columns in enumerate(held):
                columns.append(added + number)
        added += width
        assert cache.mask is not None or width == 1  # a single hypothesis sees everything
        if cache.mask is not None:
            for held, mask in zip(copies, cache.mask[:, 0], strict=True):
                assert [(row == 0).nonzero().flatten().tolist() for row in mask] == held
        copies = [[[*copies[s][i]] for i in chosen] for s, chosen in zip(sentences, beams, strict=True)]
        cache.keep(torch.tensor(sentences))
        expected = expected[sentences]
        cache.reorder(torch.tensor(beams))
