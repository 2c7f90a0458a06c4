"""The encoder-decoder Transformer (paper, section 3 and figure 1), exact to the paper unless a setting says otherwise.

Details that implementations often get wrong, here as published: LayerNorm(x + Dropout(Sublayer(x))) with no norm after the
stacks; dropout only on sub-layer outputs and on the sums of embeddings and positions; interleaved sines and cosines from
position 0; one matrix for source, target and output, which is scaled by sqrt(D) on input only.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.ids import PAD
from nmt.model.attention import Cache, MultiHeadAttention, additive_mask, keep_rows
from nmt.model.dropout import Dropout, dropout

Layer = TypeVar("Layer", bound=nn.Module)


def sinusoids(length: int, d_model: int) -> Tensor:
    """Positional encodings (paper, section 3.5) from position 0: [length, D] in fp32, sines and cosines interleaved."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    frequency = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = position * frequency
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


class Embedding(nn.Module):
    """Token embeddings times sqrt(D), plus positions (paper, sections 3.4 and 3.5)."""

    positions: Tensor

    def __init__(self, vocabulary_size: int, d_model: int, p_dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
        self.weight.register_hook(_without_padding)  # else the output projection would train the padding row
        self.dropout = Dropout(p_dropout)
        self.register_buffer("positions", sinusoids(512, d_model), persistent=False)

    def reset_parameters(self) -> None:
        """N(0, D^-0.5): scaled embeddings have unit variance, and so have the logits of the tied output."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5)
        with torch.no_grad():
            self.weight[PAD].zero_()

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Ids [B, T], the first at position `start` -> [B, T, D]."""
        end, d_model = start + ids.size(1), self.weight.size(1)
        positions = self.positions  # read once: another thread may replace it with a table that is too short for this one
        if end > positions.size(0):
            self.positions = positions = sinusoids(2 * end, d_model).to(self.weight.device)
        return self.dropout(F.embedding(ids, self.weight, padding_idx=PAD) * math.sqrt(d_model) + positions[start:end])


class AddNorm(nn.Module):
    """The residual connection around a sub-layer with its LayerNorm (paper, section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.post = config.norm == "post"
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        if self.post:
            return self.norm(x + self.dropout(sublayer(x)))
        return x + self.dropout(sublayer(self.norm(x)))


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (paper, equation 2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.p_dropout = config.relu_dropout

    def reset_parameters(self) -> None:
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        inner = F.relu(self.inner(x))
        return self.outer(dropout(inner, self.p_dropout) if self.training else inner)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward network, each with its Add & Norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config)
        self.add_norms = _module_list(AddNorm(config) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """States [B, S, D] and the mask of padding [B, 1, 1, S] -> [B, S, D]."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attention(*self.self_attention.project(x), mask)

        x = self.add_norms[0](x, attend)
        return self.add_norms[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, then the feed-forward network, each with its Add & Norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.heads, config.attention_dropout)
        self.cross_attention = MultiHeadAttention(config.d_model, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config)
        self.add_norms = _module_list(AddNorm(config) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor, cache: Cache | None, layer: int) -> Tensor:
        """States [N, T, D], the source's keys and values [B, S, 2D] and its mask of padding [B, 1, 1, S] -> [N, T, D].

        With a cache, the hypotheses of a sentence are side by side: [B, beam * T, D] -> [B, beam * T, D].
        """

        def attend(x: Tensor) -> Tensor:
            query, keys_values = self.self_attention.project(x)
            if cache is None:
                return self.self_attention(query, keys_values, causal=True)
            return self.self_attention(query, cache.update(layer, keys_values), cache.mask)

        def attend_to_source(x: Tensor) -> Tensor:
            # [N, T, D] -> [B, beam * T, D]: all hypotheses of a sentence attend to one copy of its keys and values.
            query = self.cross_attention.project_query(x.reshape(memory.size(0), -1, x.size(-1)))
            return self.cross_attention(query, memory, mask).view_as(x)

        x = self.add_norms[0](x, attend)
        x = self.add_norms[1](x, attend_to_source)
        return self.add_norms[2](x, self.feed_forward)


@dataclass
class Memory:
    """The encoded source: the keys and values of each decoder layer, projected once a sentence."""

    keys_values: list[Tensor]  # each [B, S, 2D]
    mask: Tensor  # of padding, [B, 1, 1, S]

    def keep(self, sentences: Tensor) -> None:
        """Continue with these sentences [B'] alone."""
        *self.keys_values, self.mask = keep_rows([*self.keys_values, self.mask], sentences)


class Transformer(nn.Module):
    """The whole model: `encode` a source once, then `decode` a whole target at once, or token by token with a cache."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(vocabulary_size, config.d_model, config.dropout)
        self.encoder = _module_list(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = _module_list(DecoderLayer(config) for _ in range(config.layers))
        pre = config.norm == "pre"  # a pre-LN stack needs a norm at its end; post-LN layers end with one
        self.encoder_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon) if pre else nn.Identity()
        for module in self.modules():
            if isinstance(module, Embedding | MultiHeadAttention | FeedForward):
                module.reset_parameters()

    @property
    def output(self) -> Tensor:
        """The output projection [V, D], without a bias: the matrix of the embeddings (paper, section 3.4)."""
        return self.embedding.weight

    def encode(self, source: Tensor) -> Memory:
        """Source ids [B, S], each ending with EOS and padded with PAD -> Memory."""
        x = self.embedding(source)
        mask = additive_mask((source != PAD)[:, None, None, :], x)
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        return Memory([layer.cross_attention.project_memory(x) for layer in self.decoder], mask)

    def decode(self, target: Tensor, memory: Memory, cache: Cache | None = None) -> Tensor:
        """Target ids [N, T], beginning with BOS -> states [N, T, D].

        With a cache, `target` holds only the tokens that the cache lacks, one or several. N may be a multiple of the memory's
        B; the hypotheses of a sentence are then side by side.
        """
        x = self.embedding(target, cache.length if cache is not None else 0)
        if cache is not None:
            sentences = memory.mask.size(0)
            x = x.reshape(sentences, -1, x.size(-1))  # [N, T, D] -> [B, beam * T, D]
            cache.extend(target.size(0) // sentences, x)
        for number, layer in enumerate(self.decoder):
            x = layer(x, memory.keys_values[number], memory.mask, cache, number)
        return self.decoder_norm(x).view(*target.shape, -1)

    def count_parameters(self) -> int:
        """The number of trainable parameters; the shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """B lists of ids, padded with PAD -> [B, T]. The copy to a GPU does not block."""
    ids = nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=PAD)
    return ids.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else ids


def _module_list(modules: Iterable[Layer]) -> Sequence[Layer]:
    """`nn.ModuleList` with the type of its modules, which PyTorch does not declare."""
    made: Any = nn.ModuleList(modules)
    return made


def _without_padding(gradient: Tensor) -> Tensor:
    gradient = gradient.clone()  # autograd may use the original elsewhere
    gradient[PAD].zero_()
    return gradient
