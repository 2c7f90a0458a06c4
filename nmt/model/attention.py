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
    """softmax(Q K^T / sqrt(K) + mask) V (paper, equation 1): [B, H, T, K], [B, H, S, K] twice -> [B, H, T, K].

    `mask` is that of `hiding`, and broadcasts to [B, H, T, S]; `causal` hides the keys after each query. The fused kernel
    serves wherever it is the faster one; on a CPU in bf16 it is not, and its dropout is not ours.
    """
    if query.device.type == "cpu" and (query.dtype == torch.bfloat16 or p_dropout > 0):
        return dropout(attention_weights(query, key, mask, causal), p_dropout) @ value
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, dropout_p=p_dropout)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """softmax(Q K^T / sqrt(K) + mask), the weights themselves: [B, H, T, S], each row summing to 1."""
    assert mask is None or not causal, "one use masks padding, another the future"
    scores = (query * query.size(-1) ** -0.5) @ key.transpose(-2, -1)
    if causal:
        mask = scores.new_full(scores.shape[-2:], torch.finfo(scores.dtype).min).triu(1)
    return (scores if mask is None else scores + mask).softmax(-1)


def hiding(visible: Tensor, like: Tensor) -> Tensor:
    """The mask that attention adds to its scores: 0 where `visible` [..., S] is True, else the lowest number there is.

    It is in the precision of products with `like`, and made once for all layers: of a boolean one every kernel would make its
    own. Finite, so that a row with nothing to see gives no NaN.
    """
    device = like.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype
    *rows, columns = visible.shape
    # CUDA's kernels want rows that begin at a multiple of 8, and copy others in every call. There is always something between
    # two rows: PyTorch compiles once more for a mask without.
    aligned = torch.full((*rows, columns // 8 * 8 + 8), torch.finfo(dtype).min, dtype=dtype, device=like.device)
    return aligned[..., :columns].masked_fill_(visible, 0.0)


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
    """`tensor[rows]` of each [B, ...], in the place of its first rows."""
    count = len(rows)
    places = torch.arange(count, device=rows.device)
    if not rows.is_cuda:  # what stays where it is is not copied; to ask a GPU for it would be to wait
        moved = rows != places
        places, rows = places[moved], rows[moved]
    for tensor in tensors:
        tensor[places] = tensor[rows]
    return [tensor[:count] for tensor in tensors]


class Cache:
    """Keys and values of the target positions decoded so far, for every layer of the decoder.

    All hypotheses of a sentence share its row, and what each of them adds takes the next columns. A hypothesis sees the
    columns of itself and its ancestors alone, so re-ordering the beams moves that mask and copies no key and no value.
    """

    BLOCK = 64  # columns by which the buffers grow

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.length = 0  # positions of each hypothesis
        self.columns = 0  # positions of all hypotheses of a sentence that ever were
        self.mask: Tensor | None = None  # for the positions being added: [B, 1, beam * T, columns]; None hides nothing
        self._seen: Tensor | None = None  # for what each hypothesis has seen, itself included: [B, beam, capacity]
        self._own: Tensor | None = None  # for the positions being added among themselves: [beam * T, beam * T] ...
        self._own_is_for = (0, 0)  # ... of so many hypotheses and positions
        self._buffer: Tensor | None = None  # [B, layers, capacity, 2D]

    def extend(self, hypotheses: int, like: Tensor) -> None:
        """Begin the next T positions of so many hypotheses a sentence, side by side in `like` [B, beam * T, ...].

        `update` then adds their keys and values, layer by layer.
        """
        sentences, added = like.shape[:2]
        positions = added // hypotheses
        start, end = self.columns, self.columns + added
        self.columns = end
        self.length += positions
        if self._seen is None and added == 1:  # greedy search hides nothing
            return
        if self._seen is None:
            visible = torch.arange(self._capacity(end), device=like.device) < start
            self._seen = hiding(visible.expand(sentences, hypotheses, -1), like)
        elif end > self._seen.size(2):
            more = self._capacity(end) - self._seen.size(2)
            self._seen = F.pad(self._seen, (0, more), value=torch.finfo(self._seen.dtype).min)
        if self._own is None or self._own_is_for != (hypotheses, positions):
            self._own_is_for = hypotheses, positions
            number = torch.arange(added, device=like.device)
            is_own = number[:, None] // positions == number // positions
            self._own = hiding(is_own & (number[:, None] >= number), like)
        rows = self._seen.repeat_interleave(positions, 1)
        rows[:, :, start:end] = self._own
        self.mask = rows[:, None, :, :end]
        self._seen = rows[:, positions - 1 :: positions]

    def update(self, layer: int, keys_values: Tensor) -> Tensor:
        """Add a layer's new keys and values [B, beam * T, 2D]; returns all of that layer's, [B, columns, 2D]."""
        start, end = self.columns - keys_values.size(1), self.columns
        buffer = self._reserve(keys_values, start)
        buffer[:, layer, start:end] = keys_values
        return buffer[:, layer, :end]

    def reorder(self, beams: Tensor) -> None:
        """Go on from these hypotheses of each sentence, [B, beam']; one may be taken more than once, or not at all."""
        if self._seen is not None:
            self._seen = self._seen.gather(1, beams.unsqueeze(2).expand(-1, -1, self._seen.size(2)))

    def keep(self, sentences: Tensor) -> None:
        """Go on with these sentences [B'] alone."""
        if self._seen is not None:
            [self._seen] = close_up([self._seen], sentences)
        if self._buffer is not None:
            [self._buffer] = close_up([self._buffer], sentences)

    def _capacity(self, columns: int) -> int:
        return math.ceil(columns / self.BLOCK) * self.BLOCK

    def _reserve(self, like: Tensor, used: int) -> Tensor:
        if self._buffer is None or self._buffer.size(2) < self.columns:
            grown = like.new_empty(like.size(0), self.layers, self._capacity(self.columns), like.size(2))
            if self._buffer is not None:
                grown[:, :, :used] = self._buffer[:, :, :used]
            self._buffer = grown
        return self._buffer
