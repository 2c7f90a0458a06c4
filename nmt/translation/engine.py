"""The PyTorch engine: the Transformer as beam search wants it, the encoder run once and the decoder once a token."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.devices import autocast
from nmt.ids import EOS, PAD
from nmt.lanes import Lanes
from nmt.model.attention import Cache
from nmt.model.transformer import Transformer
from nmt.translation.hypothesis import Batch, Hypothesis, SearchOptions
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
    """`Engine` of hypothesis.py for the model, on the device where its weights are; on a CPU, two batches side by side."""

    def __init__(self, model: Transformer, precision: str = "fp32") -> None:
        self.model, self.precision = model, precision
        self.device = model.embedding.weight.device
        self.lanes = Lanes(self.device)

    def search_all(self, batches: Iterable[Batch], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        """The model is left in the mode it was in."""
        training = self.model.training
        self.model.eval()
        try:
            yield from self.lanes.map(lambda batch: self._search(batch, options), batches)
        finally:
            self.model.train(training)

    def search(self, sources: Batch, options: SearchOptions) -> list[list[Hypothesis]]:
        """The n-best hypotheses of each source, searched in one batch."""
        [found] = self.search_all([sources], options)
        return found

    @torch.no_grad()
    def _search(self, sources: Batch, options: SearchOptions) -> list[list[Hypothesis]]:
        source = padded([[*ids, EOS] for ids in sources], self.device)
        limits = torch.tensor([len(ids) + options.extra for ids in sources], device=self.device)
        with autocast(self.device, self.precision):
            return beam_search(TransformerSteps(self.model, source), limits, options)


def padded(rows: Batch, device: torch.device) -> Tensor:
    """Lists of ids -> [B, T], the shorter ones filled up with PAD."""
    tensors = [torch.tensor(row, device=device) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)
