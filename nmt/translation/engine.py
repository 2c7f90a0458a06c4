"""The PyTorch engine: the Transformer as beam search wants it, the encoder run once and the decoder once a token."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.devices import autocast
from nmt.ids import EOS, PAD
from nmt.model.attention import Cache
from nmt.model.transformer import Transformer
from nmt.translation.hypothesis import Hypothesis, SearchOptions
from nmt.translation.search import beam_search


class TransformerSteps:
    """`Steps` of search.py for the model: memory and cache of one batch."""

    def __init__(self, model: Transformer, source: Tensor) -> None:
        """Runs the encoder over the source ids [B, S]."""
        self.model = model
        self.memory = model.encode(source)
        self.cache = Cache(model.config.layers)

    def step(self, tokens: Tensor) -> Tensor:
        """[N] ids -> [N, V] logits, in fp32 whatever the precision: in bf16 near ones would tie."""
        states = self.model.decode(tokens.unsqueeze(1), self.memory, self.cache).squeeze(1)
        with torch.autocast(states.device.type, enabled=False):
            return F.linear(states.float(), self.model.embedding.weight)

    def reorder(self, beams: Tensor) -> None:
        self.cache.reorder(beams)

    def keep(self, sentences: Tensor) -> None:
        self.memory = self.memory.keep(sentences)
        self.cache.keep(sentences)


class TorchEngine:
    """`Engine` of hypothesis.py for the model, on the device where its weights are."""

    def __init__(self, model: Transformer, precision: str = "fp32") -> None:
        self.model, self.precision = model, precision

    @torch.no_grad()
    def search(self, sources: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        """The n-best hypotheses of each source, searched in one batch. The model is left in the mode it was in."""
        device = self.model.embedding.weight.device
        rows = [torch.tensor([*source, EOS], device=device) for source in sources]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        limits = torch.tensor([len(source) + options.extra for source in sources], device=device)
        training = self.model.training
        self.model.eval()
        try:
            with autocast(device, self.precision):
                return beam_search(TransformerSteps(self.model, padded), limits, options)
        finally:
            self.model.train(training)
