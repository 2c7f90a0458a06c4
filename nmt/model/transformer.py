"""The encoder-decoder Transformer (paper, section 3 and figure 1), exact to the paper unless a setting says otherwise.

What is easily got wrong, and stands here as published: LayerNorm(x + Dropout(Sublayer(x))) with no norm after the stacks;
dropout on sub-layer outputs and on the sums of embeddings and positions alone; interleaved sines and cosines from position
0; one matrix for source, target and output, scaled by sqrt(D) on the way in only.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.ids import PAD
from nmt.model.attention import Cache, MultiHeadAttention, close_up, hiding
from nmt.model.dropout import Dropout, dropout


def sinusoids(length: int, d_model: int) -> Tensor:
    """Positional encodings (paper, section 3.5): [length, D] in fp32, sine and cosine in turn, first position 0."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    frequency = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = position * frequency
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


class Embedding(nn.Module):
    """Token embeddings times sqrt(D) plus positions (paper, sections 3.4 and 3.5). Its matrix is also the output's."""

    positions: Tensor

    def __init__(self, vocabulary_size: int, d_model: int, p_dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
        # The output projection would move the padding row, which nothing may depend on.
        self.weight.register_hook(_without_padding)
        self.dropout = Dropout(p_dropout)
        self.register_buffer("positions", sinusoids(512, d_model), persistent=False)

    def reset_parameters(self) -> None:
        """N(0, D^-0.5), so that scaled embeddings have unit variance and the tied output starts with unit logits."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5)
        with torch.no_grad():
            self.weight[PAD].zero_()

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """[B, T] ids, the first of them at position `start` -> [B, T, D]."""
        end, d_model = start + ids.size(1), self.weight.size(1)
        positions = self.positions  # once: another lane may replace it by one that is long enough for itself
        if end > positions.size(0):
            with torch.inference_mode(False):  # a validation may come here, and training goes on with the table
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
        self.add_norms = nn.ModuleList(AddNorm(config) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, S, D] and the mask that hides padding [B, 1, 1, S] -> [B, S, D]."""

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
        self.add_norms = nn.ModuleList(AddNorm(config) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor, cache: Cache | None, layer: int) -> Tensor:
        """[N, T, D], the source's keys and values [B, S, 2D] and the mask that hides its padding [B, 1, 1, S] -> [N, T, D].

        With a cache the hypotheses of a sentence stand side by side: [B, beam * T, D] -> [B, beam * T, D].
        """

        def attend(x: Tensor) -> Tensor:
            query, keys_values = self.self_attention.project(x)
            if cache is None:
                return self.self_attention(query, keys_values, causal=True)
            return self.self_attention(query, cache.update(layer, keys_values), cache.mask)

        def attend_to_source(x: Tensor) -> Tensor:
            # [N, T, D] -> [B, beam * T, D]: all hypotheses of a sentence ask its one copy of keys and values.
            query = self.cross_attention.project_query(x.reshape(memory.size(0), -1, x.size(-1)))
            return self.cross_attention(query, memory, mask).view_as(x)

        x = self.add_norms[0](x, attend)
        x = self.add_norms[1](x, attend_to_source)
        return self.add_norms[2](x, self.feed_forward)


@dataclass
class Memory:
    """What the decoder may know of the source: per decoder layer its keys and values, projected once a sentence."""

    keys_values: list[Tensor]  # each [B, S, 2D]
    mask: Tensor  # [B, 1, 1, S], hiding padding: see attention.py

    def keep(self, sentences: Tensor) -> None:
        """Go on with these sentences [B'] alone."""
        *self.keys_values, self.mask = close_up([*self.keys_values, self.mask], sentences)


class Transformer(nn.Module):
    """The whole model. `encode` once a sentence, then `decode` a whole target at once or token by token with a cache."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(vocabulary_size, config.d_model, config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        pre = config.norm == "pre"  # only pre-LN needs a norm after each stack; post-LN layers end with one
        self.encoder_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon) if pre else nn.Identity()
        for module in self.modules():
            if isinstance(module, Embedding | MultiHeadAttention | FeedForward):
                module.reset_parameters()

    def encode(self, source: Tensor) -> Memory:
        """Source ids, padded with PAD: [B, S] -> Memory."""
        x = self.embedding(source)
        mask = hiding((source != PAD)[:, None, None, :], x)
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        return Memory([layer.cross_attention.project_memory(x) for layer in self.decoder], mask)  # type: ignore[operator, union-attr]

    def decode(self, target: Tensor, memory: Memory, cache: Cache | None = None) -> Tensor:
        """Target ids, beginning with BOS: [N, T] -> states [N, T, D].

        With a cache, `target` holds only what it has not seen: a token or several. N may be a multiple of the memory's B;
        the hypotheses of a sentence then lie side by side.
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
        """Trainable numbers, the shared matrix counted once."""
        return sum(parameter.numel() for parameter in self.parameters())


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Lists of ids -> [B, T], the shorter ones filled up with PAD. A GPU gets them in one copy, for which nothing waits."""
    ids = nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=PAD)
    return ids.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else ids


def _without_padding(gradient: Tensor) -> Tensor:
    gradient = gradient.clone()  # it may be another's too
    gradient[PAD].zero_()
    return gradient
