"""The encoder-decoder Transformer (paper, section 3 and figure 1), exact to the paper unless a setting says otherwise.

Details that implementations often get wrong, here as published: LayerNorm(x + Dropout(Sublayer(x))) with no norm after the
stacks; dropout only on sub-layer outputs and on the sums of embeddings and positions; interleaved sines and cosines from
position 0; one matrix for source, target and output, which is scaled by sqrt(D) on input only.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.ids import PAD
from nmt.model.attention import Cache, MultiHeadAttention, additive_mask, keep_rows
from nmt.model.dropout import Dropout, dropout
from nmt.model.network import Network

Layer = TypeVar("Layer", bound=nn.Module)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": partial(F.gelu, approximate="tanh")}
GPT2_STD = 0.02


def sinusoids(length: int, d_model: int) -> Tensor:
    """Positional encodings (paper, section 3.5) from position 0: [length, D] in fp32, sines and cosines interleaved."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    frequency = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = position * frequency
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


class TokenEmbedding(nn.Module):
    """One vector a piece, for the source, the target and the output (paper, section 3.4). That of padding is zero."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, config.d_model))
        self.weight.register_hook(_without_padding)  # else the output projection would train the padding row
        self.dropout = Dropout(config.dropout)

    def reset_parameters(self, std: float | None = None) -> None:
        """N(0, D^-0.5) by default: scaled embeddings have unit variance, and so have the logits of the tied output."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5 if std is None else std)
        with torch.no_grad():
            self.weight[PAD].zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """Ids [B, T] -> [B, T, D]."""
        return self.dropout(F.embedding(ids, self.weight, padding_idx=PAD))


class Embedding(TokenEmbedding):
    """Token embeddings plus positions: times sqrt(D) plus sinusoids (paper, sections 3.4 and 3.5), or plus a learned table.

    The factor brings the embeddings to the size of the sinusoids. A learned table begins as small as they are and needs none.
    """

    positions: Tensor

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__(config, vocabulary_size)
        self.learned = config.positions == "learned"
        if self.learned:
            self.positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        else:
            self.register_buffer("positions", sinusoids(512, config.d_model), persistent=False)

    def reset_parameters(self, std: float | None = None) -> None:
        """The table of positions like the embeddings."""
        super().reset_parameters(std)
        if self.learned:
            nn.init.normal_(self.positions, std=self.positions.size(1) ** -0.5 if std is None else std)

    def forward(self, ids: Tensor, start: int = 0, padding: Tensor | None = None) -> Tensor:
        """Ids [B, T] -> [B, T, D]. The first is at position `start`; where that counts padding, [B] says how much."""
        end, table = start + ids.size(1), self.positions
        if end > table.size(0) and not self.learned:
            self.positions = table = sinusoids(2 * end, table.size(1)).to(table.device)
        # The table was read once: another thread may replace it with one that is too short for this call.
        if padding is None:
            positions = table[start:end]
        else:
            positions = F.embedding(torch.arange(start, end, device=ids.device) - padding.unsqueeze(1), table)
        x = F.embedding(ids, self.weight, padding_idx=PAD)
        return self.dropout((x if self.learned else x * math.sqrt(x.size(-1))) + positions)


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
    """max(0, x W1 + b1) W2 + b2 (paper, equation 2), or with GELU in place of the maximum."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.p_dropout = config.relu_dropout

    def reset_parameters(self) -> None:
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        inner = self.activation(self.inner(x))
        return self.outer(dropout(inner, self.p_dropout) if self.training else inner)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward network, each with its Add & Norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config)
        self.add_norms = module_list(AddNorm(config) for _ in range(2))

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
        self.add_norms = module_list(AddNorm(config) for _ in range(3))

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


class Transformer(Network):
    """The whole model: `encode` a source once, then `decode` a whole target at once, or token by token with a cache."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, vocabulary_size)
        self.encoder = module_list(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = module_list(DecoderLayer(config) for _ in range(config.layers))
        self.encoder_norm, self.decoder_norm = final_norm(config), final_norm(config)
        initialise(self, config)

    @property
    def output(self) -> Tensor:
        """The output projection [V, D], without a bias: the matrix of the embeddings (paper, section 3.4)."""
        return self.embedding.weight

    @property
    def attentions(self) -> dict[str, Sequence[MultiHeadAttention]]:
        """The three uses of attention (paper, section 3.2.3), one module a layer."""
        return {
            "encoder": [layer.self_attention for layer in self.encoder],
            "decoder": [layer.self_attention for layer in self.decoder],
            "cross": [layer.cross_attention for layer in self.decoder],
        }

    @property
    def layers(self) -> Sequence[nn.Module]:
        return [*self.encoder, *self.decoder]

    def encode(self, source: Tensor) -> Memory:
        """Source ids [B, S], each ending with EOS and padded with PAD -> Memory."""
        x = self.embedding(source)
        mask = additive_mask((source != PAD)[:, None, None, :], x)
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        return Memory([layer.cross_attention.project_memory(x) for layer in self.decoder], mask)

    def new_cache(self, memory: Memory) -> Cache:
        """An empty cache."""
        return Cache(self.config.layers)

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


def final_norm(config: ModelConfig) -> nn.Module:
    """The norm at the end of a pre-LN stack; the layers of a post-LN stack end with one themselves."""
    return nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon) if config.norm == "pre" else nn.Identity()


def initialise(network: nn.Module, config: ModelConfig) -> None:
    """Draw the weights: Xavier's, or as GPT-2 does.

    GPT-2 draws every matrix from N(0, 0.02), and scales the last one before each residual sum by 1/sqrt(R), where R is the
    number of such sums in the stack: without that, the states of a pre-LN stack would grow with its depth.
    """
    for module in network.modules():
        if isinstance(module, Embedding | MultiHeadAttention | FeedForward):
            module.reset_parameters()
    if config.initialisation == "xavier":
        return
    for stack in (child for child in network.children() if isinstance(child, nn.ModuleList)):
        sums = sum(isinstance(module, AddNorm) for module in stack.modules())
        for module in stack.modules():
            if isinstance(module, MultiHeadAttention):
                nn.init.normal_(module.in_weight, std=GPT2_STD)
                nn.init.normal_(module.out.weight, std=GPT2_STD * sums**-0.5)
            elif isinstance(module, FeedForward):
                nn.init.normal_(module.inner.weight, std=GPT2_STD)
                nn.init.normal_(module.outer.weight, std=GPT2_STD * sums**-0.5)
    for module in network.children():
        if isinstance(module, Embedding):
            module.reset_parameters(GPT2_STD)


def module_list(modules: Iterable[Layer]) -> Sequence[Layer]:
    """`nn.ModuleList` with the type of its modules, which PyTorch does not declare."""
    made: Any = nn.ModuleList(modules)
    return made


def _without_padding(gradient: Tensor) -> Tensor:
    gradient = gradient.clone()  # autograd may use the original elsewhere
    gradient[PAD].zero_()
    return gradient
