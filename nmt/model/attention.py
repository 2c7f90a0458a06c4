"""Multi-head attention (paper, section 3.2): one class in its three uses, and the cache that makes decoding linear.

The three uses differ only in where keys and values come from and in what is masked: source to source (padding masked),
target to target (the future masked), target to source (padding masked).
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.dropout import dropout


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False, p_dropout: float = 0.0
) -> Tensor:
    """softmax(Q K^T / sqrt(K)) V (paper, equation 1): [B, H, T, K], [B, H, S, K] twice -> [B, H, T, K].

    `mask` is True where a key may be seen, and broadcasts to [B, H, T, S]; `causal` hides the keys after each query. The
    fused kernel serves wherever it is the faster one; on a CPU in bf16 it is not, and its dropout is not ours.
    """
    if query.device.type == "cpu" and (query.dtype == torch.bfloat16 or p_dropout > 0):
        return dropout(attention_weights(query, key, mask, causal), p_dropout) @ value
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, dropout_p=p_dropout)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """softmax(Q K^T / sqrt(K)), the weights themselves: [B, H, T, S], each row summing to 1."""
    assert mask is None or not causal, "one use masks padding, another the future"
    scores = (query * query.size(-1) ** -0.5) @ key.transpose(-2, -1)
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:  # a finite fill, so that a row with nothing to see gives no NaN
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


class MultiHeadAttention(nn.Module):
    """Projections to H heads, attention in each, and the projection back (paper, section 3.2.2).

    The query, key and value matrices are stacked in one [3D, D] parameter: self-attention needs a single product.
    """

    def __init__(self, d_model: int, heads: int, p_dropout: float) -> None:
        super().__init__()
        self.heads, self.p_dropout = heads, p_dropout
        self.seen: list[Tensor] | None = None  # while watched, the weights of each call
        self.in_weight = nn.Parameter(torch.empty(3 * d_model, d_model))
        self.in_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out = nn.Linear(d_model, d_model)

    def reset_parameters(self) -> None:
        """Xavier for each D x D matrix by itself: the stack is a way of storing them, not one wide layer."""
        for matrix in (*self.in_weight.chunk(3), self.out.weight):
            nn.init.xavier_uniform_(matrix)
        nn.init.zeros_(self.in_bias)
        nn.init.zeros_(self.out.bias)

    def project(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, and keys and values, of the same states: [B, T, D] -> [B, T, D] and [B, T, 2D]."""
        d_model = states.size(-1)
        query, keys_values = F.linear(states, self.in_weight, self.in_bias).split([d_model, 2 * d_model], -1)
        return query, keys_values

    def project_query(self, states: Tensor) -> Tensor:
        """Queries alone: [B, T, D] -> [B, T, D]."""
        d_model = states.size(-1)
        return F.linear(states, self.in_weight[:d_model], self.in_bias[:d_model])

    def project_memory(self, states: Tensor) -> Tensor:
        """Keys and values alone: [B, S, D] -> [B, S, 2D]."""
        d_model = states.size(-1)
        return F.linear(states, self.in_weight[d_model:], self.in_bias[d_model:])

    def forward(self, query: Tensor, keys_values: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Attend and project back: [B, T, D] and [B, S, 2D] -> [B, T, D]."""
        p_dropout = self.p_dropout if self.training else 0.0
        query, key, value = map(self._split, (query, *keys_values.chunk(2, -1)))
        if self.seen is None:
            mixed = attention(query, key, value, mask, causal, p_dropout)
        else:
            self.seen.append(attention_weights(query, key, mask, causal))
            mixed = self.seen[-1] @ value
        return self.out(mixed.transpose(1, 2).flatten(2))

    @contextmanager
    def watched(self) -> Iterator[list[Tensor]]:
        """Within, outside of training, the weights [B, H, T, S] of each call are collected."""
        self.seen = []
        try:
            yield self.seen
        finally:
            self.seen = None

    def _split(self, states: Tensor) -> Tensor:
        # [B, T, D] -> [B, T, H, K] -> [B, H, T, K]
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def close_up(tensors: Sequence[Tensor], rows: Tensor) -> list[Tensor]:
    """`tensor[rows]` of each [B, ...], in the place of its first rows: what stays where it is is not copied."""
    moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().flatten()
    for tensor in tensors:
        tensor[moved] = tensor[rows[moved]]
    return [tensor[: len(rows)] for tensor in tensors]


class Cache:
    """Keys and values of the target positions decoded so far, for every layer of the decoder.

    All hypotheses of a sentence share its row, and what each of them adds takes the next columns. A hypothesis sees the
    columns of itself and its ancestors alone, so re-ordering the beams moves that mask and copies no key and no value.
    """

    BLOCK = 64  # columns by which the buffer grows

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.length = 0  # positions of each hypothesis
        self.visible: Tensor | None = None  # what the positions being added may see: [B, 1, beam * T, columns]
        self._seen: Tensor | None = None  # what each hypothesis has seen, itself included: [B, beam, columns]
        self._buffer: Tensor | None = None  # [B, layers, capacity, 2D]

    def extend(self, hypotheses: int, like: Tensor) -> None:
        """Begin the next T positions of so many hypotheses a sentence, side by side in `like` [B, beam * T, ...].

        `update` then adds their keys and values, layer by layer.
        """
        positions = like.size(1) // hypotheses
        one = torch.ones(positions, positions, dtype=torch.bool, device=like.device).tril()
        own = torch.block_diag(*[one] * hypotheses).expand(like.size(0), -1, -1)
        if self._seen is not None:
            own = torch.cat([self._seen.repeat_interleave(positions, 1), own], 2)
        self.visible = own.unsqueeze(1)
        self._seen = own[:, positions - 1 :: positions]
        self.length += positions

    def update(self, layer: int, keys_values: Tensor) -> Tensor:
        """Add a layer's new keys and values [B, beam * T, 2D]; returns all of that layer's, [B, columns, 2D]."""
        assert self._seen is not None, "extend comes first"
        end = self._seen.size(2)
        start = end - keys_values.size(1)
        buffer = self._reserve(keys_values, start, end)
        buffer[:, layer, start:end] = keys_values
        return buffer[:, layer, :end]

    def reorder(self, beams: Tensor) -> None:
        """Go on from these hypotheses of each sentence, [B, beam']; one may be taken more than once, or not at all."""
        if self._seen is not None:
            self._seen = self._seen.gather(1, beams.unsqueeze(2).expand(-1, -1, self._seen.size(2)))

    def keep(self, sentences: Tensor) -> None:
        """Go on with these sentences [B'] alone."""
        if self._seen is not None and self._buffer is not None:
            self._seen = self._seen.index_select(0, sentences)
            [self._buffer] = close_up([self._buffer], sentences)

    def _reserve(self, like: Tensor, used: int, columns: int) -> Tensor:
        if self._buffer is None or self._buffer.size(2) < columns:
            capacity = math.ceil(columns / self.BLOCK) * self.BLOCK
            grown = like.new_empty(like.size(0), self.layers, capacity, like.size(2))
            if self._buffer is not None:
                grown[:, :, :used] = self._buffer[:, :, :used]
            self._buffer = grown
        return self._buffer
