"""Translation with one stack, as in GPT-2 (Radford et al. 2019): source and target are a single sequence.

    x_1 ... x_n BOS y_1 ... y_m EOS

BOS separates the two, and the stack predicts each next token of the target. Two masks: in the prefix form (Raffel et al. 2020,
Zhang et al. 2022) each source position sees the whole source, as in an encoder; in the causal form, GPT-2's, each position sees
only those before it. In both the source's states do not depend on the target, so `encode` computes its keys and values once.
GPT-2's own choices are settings: pre-LN, learned positions, GELU, its initialisation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.ids import EOS, PAD
from nmt.model.attention import Cache, MultiHeadAttention, additive_mask, keep_rows
from nmt.model.network import Network
from nmt.model.transformer import AddNorm, Embedding, FeedForward, final_norm, initialise, module_list


class Block(nn.Module):
    """Self-attention over everything so far, then the feed-forward network, each with its Add & Norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.heads, config.attention_dropout)
        self.feed_forward = FeedForward(config)
        self.add_norms = module_list(AddNorm(config) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None, join: Callable[[Tensor], Tensor]) -> Tensor:
        """States [B, T, D] -> [B, T, D]. `join` puts earlier keys and values before these [B, T, 2D]."""

        def attend(x: Tensor) -> Tensor:
            query, keys_values = self.self_attention.project(x)
            return self.self_attention(query, join(keys_values), mask)

        return self.add_norms[1](self.add_norms[0](x, attend), self.feed_forward)


@dataclass
class Prefix:
    """The encoded source, without its EOS."""

    keys_values: list[Tensor]  # of each layer, [B, S, 2D]
    visible: Tensor  # bool [B, S]: False for padding
    states: Tensor  # [B, S, D], from which the source's next tokens can be predicted

    @property
    def padding(self) -> Tensor:
        """How many of the S positions are padding, so that the target's positions begin sooner: [B]."""
        return (~self.visible).sum(1)

    def keep(self, sentences: Tensor) -> None:
        """Continue with these sentences [B'] alone."""
        *self.keys_values, self.visible, self.states = keep_rows([*self.keys_values, self.visible, self.states], sentences)


class DecoderOnly(Network):
    """One stack over source and target."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, vocabulary_size)
        self.stack = module_list(Block(config) for _ in range(config.layers))
        self.norm = final_norm(config)
        initialise(self, config)

    @property
    def output(self) -> Tensor:
        """The matrix of the embeddings, [V, D]."""
        return self.embedding.weight

    @property
    def attentions(self) -> dict[str, Sequence[MultiHeadAttention]]:
        """One attention a layer, over source and target at once."""
        layers = [block.self_attention for block in self.stack]
        return {"encoder": layers, "decoder": layers, "cross": layers}

    @property
    def layers(self) -> Sequence[nn.Module]:
        return self.stack

    def encode(self, source: Tensor) -> Prefix:
        """Source ids [B, S], each ending with EOS and padded with PAD -> Prefix."""
        source = source[:, :-1].masked_fill(source[:, :-1] == EOS, PAD)
        x, visible = self.embedding(source), source != PAD
        seen = visible[:, None, None, :]
        if self.config.mask == "causal":
            seen = seen & _causal(source.size(1), source.device)
        mask, found = additive_mask(seen, x), []

        def join(keys_values: Tensor) -> Tensor:
            found.append(keys_values)
            return keys_values

        for block in self.stack:
            x = block(x, mask, join)
        return Prefix(found, visible, self.norm(x))

    def new_cache(self, memory: Prefix) -> Cache:
        """A cache that holds the keys and values of the source."""
        cache = Cache(self.config.layers)
        cache.begin(memory.keys_values, memory.visible)
        return cache

    def decode(self, target: Tensor, memory: Prefix, cache: Cache | None = None) -> Tensor:
        """Target ids [N, T], beginning with BOS -> states [N, T, D], as in `Network.decode`."""
        sentences, count = len(memory.visible), target.size(1)
        beam = len(target) // sentences
        start = memory.visible.size(1) + (cache.length if cache else 0)
        x = self.embedding(target, start, memory.padding.repeat_interleave(beam))
        x = x.view(sentences, beam * count, -1)  # [N, T, D] -> [B, beam * T, D]: all hypotheses of a sentence share one prefix
        if cache:
            cache.extend(beam, x)
            mask = cache.mask
        else:
            own = torch.block_diag(*[_causal(count, x.device)] * beam).bool()
            seen = torch.cat([memory.visible[:, None].expand(-1, beam * count, -1), own.expand(sentences, -1, -1)], 2)
            mask = additive_mask(seen.unsqueeze(1), x)
        for number, block in enumerate(self.stack):
            if cache:
                x = block(x, mask, lambda new, number=number: cache.update(number, new))
            else:
                x = block(x, mask, lambda new, number=number: torch.cat([memory.keys_values[number], new], 1))
        return self.norm(x).view(*target.shape, -1)


def _causal(length: int, device: torch.device) -> Tensor:
    """Which keys [length] each query [length] sees: itself and those before."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
