"""What attention came from: a recurrent network that reads and writes one token after another (Bahdanau et al. 2015).

A bidirectional GRU reads the source. A GRU writes the target: before each token it looks at all source positions, weighs them
by how well they fit its state (additive attention), and takes their mean in. Nothing here can be computed before the state of
the step before it, so a sentence of n tokens takes n steps where the Transformer takes one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.ids import PAD
from nmt.model.attention import keep_rows
from nmt.model.dropout import Dropout
from nmt.model.network import Network
from nmt.model.transformer import TokenEmbedding


@dataclass
class Annotations:
    """The encoded source: what both directions say of each position."""

    states: Tensor  # [B, S, 2D]
    keys: Tensor  # their projection for the attention, [B, S, D]
    padding: Tensor  # bool [B, S]
    first: Tensor  # the decoder's first state, [B, D]

    def keep(self, sentences: Tensor) -> None:
        """Continue with these sentences [B'] alone."""
        self.states, self.keys, self.padding, self.first = keep_rows(
            [self.states, self.keys, self.padding, self.first], sentences
        )


@dataclass
class State:
    """The decoder's state after the tokens so far: [B, N / B, D]."""

    now: Tensor

    def keep(self, sentences: Tensor) -> None:
        """Continue with these sentences [B'] alone."""
        [self.now] = keep_rows([self.now], sentences)

    def reorder(self, beams: Tensor) -> None:
        """Continue with these hypotheses of each sentence: [B, beam]."""
        self.now = self.now.gather(1, beams.unsqueeze(2).expand(-1, -1, self.now.size(2)))


class AdditiveAttention(nn.Module):
    """softmax(v tanh(W s + U h)) over the annotations h of the source (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(2 * d_model, d_model, bias=False)
        self.score = nn.Linear(d_model, 1, bias=False)
        self.recorded: list[Tensor] | None = None  # while `recording`

    def forward(self, state: Tensor, memory: Annotations) -> tuple[Tensor, Tensor]:
        """States [B, beam, D] -> the mean of the annotations [B, beam, 2D], and the weights of each [B, beam, S]."""
        energies = self.score(torch.tanh(self.query(state).unsqueeze(2) + memory.keys.unsqueeze(1))).squeeze(3)
        weights = energies.float().masked_fill(memory.padding.unsqueeze(1), float("-inf")).softmax(-1)
        return weights @ memory.states, weights

    @contextmanager
    def recording(self) -> Iterator[list[Tensor]]:
        """Within this context the weights [N, 1, T, S] of each call of `decode` are collected."""
        self.recorded = []
        try:
            yield self.recorded
        finally:
            self.recorded = None


class RecurrentNetwork(Network):
    """A bidirectional GRU encoder and a GRU decoder with additive attention; one matrix for source, target and output."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config, d_model = config, config.d_model
        self.embedding = TokenEmbedding(config, vocabulary_size)
        self.encoder = nn.GRU(d_model, d_model, bidirectional=True, batch_first=True)
        self.bridge = nn.Linear(d_model, d_model)
        self.attention = AdditiveAttention(d_model)
        self.decoder = nn.GRUCell(3 * d_model, d_model)
        self.readout = nn.Linear(4 * d_model, d_model)
        self.dropout = Dropout(config.dropout)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Orthogonal matrices from state to state, Xavier's elsewhere, zero biases."""
        for name, weights in self.named_parameters():
            if weights.dim() < 2:
                nn.init.zeros_(weights)
            for gate in weights.chunk(3) if "weight_" in name else [weights] if weights.dim() == 2 else []:
                (nn.init.orthogonal_ if "weight_hh" in name else nn.init.xavier_uniform_)(gate)
        self.embedding.reset_parameters()

    @property
    def output(self) -> Tensor:
        """The matrix of the embeddings, [V, D]."""
        return self.embedding.weight

    @property
    def attentions(self) -> dict[str, Sequence[AdditiveAttention]]:
        """Its only attention."""
        return {"cross": [self.attention]}

    @property
    def layers(self) -> Sequence[nn.Module]:
        return []

    def encode(self, source: Tensor) -> Annotations:
        """Source ids [B, S], each ending with EOS and padded with PAD -> Annotations."""
        x, padding = self.embedding(source), source == PAD
        lengths = (~padding).sum(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        found, (_, backward) = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(found, batch_first=True)
        # The backward direction ends at the first word (appendix A.2.2).
        return Annotations(states, self.attention.key(states), padding, torch.tanh(self.bridge(backward)))

    def new_cache(self, memory: Annotations) -> State:
        """The decoder's first state."""
        return State(memory.first.unsqueeze(1))

    def decode(self, target: Tensor, memory: Annotations, cache: State | None = None) -> Tensor:
        """Target ids [N, T], beginning with BOS -> states [N, T, D], as in `Network.decode`. It takes T steps."""
        sentences, beam = len(memory.first), target.size(0) // len(memory.first)
        words = self.embedding(target)
        state = (cache or self.new_cache(memory)).now.expand(-1, beam, -1)
        seen, weights = [], []
        for word in words.unbind(1):
            context, weight = self.attention(state, memory)
            before = torch.cat([word, context.flatten(0, 1)], 1)
            after = self.decoder(before, state.flatten(0, 1))
            state = after.view(sentences, beam, -1)
            seen.append(torch.cat([after, before], 1))
            weights.append(weight.flatten(0, 1))
        if cache:
            cache.now = state
        if self.attention.recorded is not None:
            self.attention.recorded.append(torch.stack(weights, 1).unsqueeze(1))
        return self.dropout(torch.tanh(self.readout(torch.stack(seen, 1))))
