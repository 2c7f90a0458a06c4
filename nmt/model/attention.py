"""Multi-head attention (paper, section 3.2) in its three uses, and the key-value cache that makes decoding linear.

The uses differ only in where keys and values come from and in what is masked: source to source (padding is masked),
target to target (the future is masked), target to source (padding is masked).
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
    """softmax(Q K^T / sqrt(K) + mask) V (paper, equation 1): [B, H, T, K], [B, H, S, K] twice -> [B, H, T, K].

    `mask` comes from `additive_mask` and broadcasts to [B, H, T, S]; `causal` masks the keys after each query. The fused
    kernel is used wherever it is faster: on a CPU it is not in bf16, and its dropout is slower than ours.
    """
    if query.device.type == "cpu" and (query.dtype == torch.bfloat16 or p_dropout > 0):
        return dropout(attention_weights(query, key, mask, causal), p_dropout) @ value
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, dropout_p=p_dropout)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """softmax(Q K^T / sqrt(K) + mask): [B, H, T, S], where each row sums to 1."""
    assert mask is None or not causal, "each use of attention masks either padding or the future"
    scores = (query * query.size(-1) ** -0.5) @ key.transpose(-2, -1)
    if causal:
        mask = scores.new_full(scores.shape[-2:], torch.finfo(scores.dtype).min).triu(1)
    return (scores if mask is None else scores + mask).softmax(-1)


def additive_mask(visible: Tensor, like: Tensor) -> Tensor:
    """The mask to add to attention scores: 0 where `visible` [..., S] is True, elsewhere the lowest finite number.

    Its dtype is that of matrix products with `like`. It is made once for all layers, because each kernel would convert a
    boolean mask anew. It is finite so that a fully masked row gives no NaN.
    """
    device = like.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype
    *rows, columns = visible.shape
    # CUDA's kernels copy a mask in every call unless its rows begin at multiples of 8. There is always a gap between two
    # rows, because PyTorch would compile once more for a mask without gaps.
    aligned = torch.full((*rows, columns // 8 * 8 + 8), torch.finfo(dtype).min, dtype=dtype, device=like.device)
    return aligned[..., :columns].masked_fill_(visible, 0.0)


class AttentionHeads(nn.Module):
    """Attention in H heads and the output projection (paper, section 3.2.2). Subclasses project the inputs."""

    out: nn.Module

    def __init__(self, heads: int, p_dropout: float) -> None:
        super().__init__()
        self.heads, self.p_dropout = heads, p_dropout
        self.recorded: list[Tensor] | None = None  # the weights of each call, while `recording`

    def forward(self, query: Tensor, keys_values: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Projected queries [B, T, D], keys and values [B, S, 2D] -> [B, T, D]."""
        p_dropout = self.p_dropout if self.training else 0.0
        query, key, value = map(self._split, (query, *keys_values.chunk(2, -1)))
        if self.recorded is None:
            mixed = attention(query, key, value, mask, causal, p_dropout)
        else:
            self.recorded.append(attention_weights(query, key, mask, causal))
            mixed = self.recorded[-1] @ value
        return self.out(mixed.transpose(1, 2).flatten(2))

    @contextmanager
    def recording(self) -> Iterator[list[Tensor]]:
        """Within this context, and outside of training, the weights [B, H, T, S] of each call are collected."""
        self.recorded = []
        try:
            yield self.recorded
        finally:
            self.recorded = None

    def _split(self, states: Tensor) -> Tensor:
        # [B, T, D] -> [B, T, H, K] -> [B, H, T, K]
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class MultiHeadAttention(AttentionHeads):
    """Attention heads with trainable projections.

    The query, key and value matrices are stacked in one [3D, D] parameter, so that self-attention needs a single product.
    """

    def __init__(self, d_model: int, heads: int, p_dropout: float) -> None:
        super().__init__(heads, p_dropout)
        self.in_weight = nn.Parameter(torch.empty(3 * d_model, d_model))
        self.in_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out: nn.Linear = nn.Linear(d_model, d_model)

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


def keep_rows(tensors: Sequence[Tensor], rows: Tensor) -> list[Tensor]:
    """`tensor[rows]` for each [B, ...] tensor, written in place over its first rows."""
    count = len(rows)
    places = torch.arange(count, device=rows.device)
    if not rows.is_cuda:  # skip the rows that stay in place; on a GPU, finding them would make the host wait
        moved = rows != places
        places, rows = places[moved], rows[moved]
    for tensor in tensors:
        tensor[places] = tensor[rows]
    return [tensor[:count] for tensor in tensors]


class Cache:
    """Keys and values of the target positions decoded so far, for every layer of the decoder.

    All hypotheses of a sentence share one row, in which each new position takes the next columns. A hypothesis sees only
    the columns of itself and its ancestors, so reordering the beams moves that mask and copies no keys or values.
    """

    BLOCK = 64  # columns by which the buffers grow

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.length = 0  # positions of each hypothesis
        self.columns = 0  # positions of all hypotheses that a sentence has ever had
        self.mask: Tensor | None = None  # of the positions being added: [B, 1, beam * T, columns]; None masks nothing
        self._history: Tensor | None = None  # mask of what each hypothesis sees, itself included: [B, beam, capacity]
        self._new: Tensor | None = None  # mask among the positions being added: [beam * T, beam * T]
        self._new_shape = (0, 0)  # the beam and T of that mask
        self._buffer: Tensor | None = None  # [B, layers, capacity, 2D]

    def begin(self, keys_values: Sequence[Tensor], visible: Tensor) -> None:
        """Start with columns that all hypotheses of a sentence see: each layer's [B, S, 2D], `visible` [B, S]."""
        self._buffer = torch.stack([*keys_values], 1)
        self._history = additive_mask(visible.unsqueeze(1), self._buffer)
        self.columns = visible.size(1)

    def extend(self, hypotheses: int, like: Tensor) -> None:
        """Begin the next T positions of this many hypotheses a sentence, side by side in `like` [B, beam * T, ...].

        `update` then adds their keys and values, layer by layer.
        """
        sentences, added = like.shape[:2]
        positions = added // hypotheses
        start, end = self.columns, self.columns + added
        self.columns = end
        self.length += positions
        if self._history is None and added == 1:  # greedy search masks nothing
            return
        if self._history is None:
            visible = torch.arange(self._capacity(end), device=like.device) < start
            self._history = additive_mask(visible.expand(sentences, hypotheses, -1), like)
        elif end > self._history.size(2):
            more = self._capacity(end) - self._history.size(2)
            self._history = F.pad(self._history, (0, more), value=torch.finfo(self._history.dtype).min)
        if self._history.size(1) < hypotheses:  # of a source, which all of them see
            self._history = self._history.expand(-1, hypotheses, -1)
        if self._new is None or self._new_shape != (hypotheses, positions):
            self._new_shape = hypotheses, positions
            number = torch.arange(added, device=like.device)
            same_hypothesis = number[:, None] // positions == number // positions
            self._new = additive_mask(same_hypothesis & (number[:, None] >= number), like)
        rows = self._history.repeat_interleave(positions, 1)
        rows[:, :, start:end] = self._new
        self.mask = rows[:, None, :, :end]
        self._history = rows[:, positions - 1 :: positions]

    def update(self, layer: int, keys_values: Tensor) -> Tensor:
        """Add a layer's new keys and values [B, beam * T, 2D]; returns all of that layer's, [B, columns, 2D]."""
        start, end = self.columns - keys_values.size(1), self.columns
        if self._buffer is None or self._buffer.size(2) < end:
            sentences, _, width = keys_values.shape
            grown = keys_values.new_empty(sentences, self.layers, self._capacity(end), width)
            if self._buffer is not None:
                grown[:, :, :start] = self._buffer[:, :, :start]
            self._buffer = grown
        self._buffer[:, layer, start:end] = keys_values
        return self._buffer[:, layer, :end]

    def reorder(self, beams: Tensor) -> None:
        """Continue with these hypotheses of each sentence: [B, beam'], with repetitions and omissions."""
        if self._history is not None:
            self._history = self._history.gather(1, beams.unsqueeze(2).expand(-1, -1, self._history.size(2)))

    def keep(self, sentences: Tensor) -> None:
        """Continue with these sentences [B'] alone."""
        if self._history is not None:
            [self._history] = keep_rows([self._history], sentences)
        if self._buffer is not None:
            [self._buffer] = keep_rows([self._buffer], sentences)

    def _capacity(self, columns: int) -> int:
        return math.ceil(columns / self.BLOCK) * self.BLOCK
