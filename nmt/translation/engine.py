"""The PyTorch engine: the Transformer as beam search wants it, the encoder run once and the decoder once a token."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.devices import autocast
from nmt.errors import NmtError, is_out_of_memory
from nmt.ids import EOS
from nmt.lanes import Lanes
from nmt.model.attention import Cache
from nmt.model.transformer import Transformer, padded
from nmt.translation.forced import force
from nmt.translation.hypothesis import BATCH_TOKENS, Forced, Hypothesis, SearchOptions, Sources
from nmt.translation.packed import PackedLinear, can_pack, pack
from nmt.translation.search import beam_search

Item = TypeVar("Item")
Result = TypeVar("Result")
Output = Callable[[Tensor], Tensor]  # the output projection: states [N, D] -> logits [N, V]


class TransformerSteps:
    """`Steps` of search.py for the model: memory and cache of one batch."""

    def __init__(self, model: Transformer, output: Output, source: Tensor) -> None:
        """Runs the encoder over the source ids [B, S]."""
        self.model, self.output = model, output
        self.memory = model.encode(source)
        self.cache = Cache(model.config.layers)

    def step(self, tokens: Tensor) -> Tensor:
        """[N] ids -> [N, V] logits, in fp32 whatever the precision: in bf16 near ones would tie."""
        states = self.model.decode(tokens.unsqueeze(1), self.memory, self.cache).squeeze(1)
        with torch.autocast(states.device.type, enabled=False):
            return self.output(states.float())

    def reorder(self, beams: Tensor) -> None:
        self.cache.reorder(beams)

    def keep(self, sentences: Tensor) -> None:
        self.memory.keep(sentences)
        self.cache.keep(sentences)


class TorchEngine:
    """`Engine` of hypothesis.py for the model, on the device where its weights are; on a CPU, two batches side by side."""

    def __init__(self, model: Transformer, precision: str = "fp32") -> None:
        self.model, self.precision = model, precision
        self.device = model.embedding.weight.device
        self.batch_tokens = BATCH_TOKENS[self.device.type]
        self.lanes = Lanes(self.device)
        self.output: Output = partial(F.linear, weight=model.embedding.weight)

    def pack(self) -> None:
        """Lay the model's matrices out for this device where that is faster. It can then be neither trained nor saved."""
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        if can_pack(self.device, dtype):
            self.output = PackedLinear(self.model.embedding.weight)
            pack(self.model, dtype)

    def search_all(self, batches: Iterable[Sources], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        """A batch that is alone has all threads to itself. The model is left in the mode it was in."""
        batches = list(batches)
        # Details are read off the model's modules, which the lanes share.
        side_by_side = self.lanes.map if len(batches) > 1 and not options.details else map
        training = self.model.training
        if training:
            self.model.eval()
        try:
            yield from side_by_side(lambda sources: self._search(sources, options), batches)
        finally:
            if training:
                self.model.train()

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        """The n-best hypotheses of each source, searched in one batch."""
        [found] = self.search_all([sources], options)
        return found

    def force(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Forced]:
        """What the model says of each source's target, both given as ids without BOS and EOS, in one batch."""
        return self._in_halves(
            self._force_at_once,
            pairs,
            lambda pair: f"one sentence of {len(pair[0]):,} and {len(pair[1]):,} pieces; shorter ones need less",
        )

    def _search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        return self._in_halves(
            lambda part: self._search_at_once(part, options),
            sources,
            lambda ids: f"one sentence of {len(ids):,} pieces; a smaller --beam needs less",
        )

    def _in_halves(
        self,
        compute: Callable[[Sequence[Item]], list[Result]],
        batch: Sequence[Item],
        alone: Callable[[Item], str],
    ) -> list[Result]:
        """All at once, or in two halves where the memory does not suffice. Raises NmtError where it does not for one alone."""
        try:
            return compute(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise NmtError(f"out of memory with {alone(batch[0])}") from None
        # Here, and not above: until it is handled, the error holds what was computed so far.
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        half = len(batch) // 2
        return self._in_halves(compute, batch[:half], alone) + self._in_halves(compute, batch[half:], alone)

    @torch.inference_mode()
    def _search_at_once(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        source = padded([[*ids, EOS] for ids in sources], self.device)
        limits = [len(ids) + options.extra for ids in sources]
        with autocast(self.device, self.precision):
            found = beam_search(TransformerSteps(self.model, self.output, source), limits, options, self.device)
            return self._with_details(sources, found) if options.details else found

    @torch.inference_mode()
    def _force_at_once(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Forced]:
        with autocast(self.device, self.precision):
            return force(self.model, *zip(*pairs, strict=True))

    def _with_details(self, sources: Sources, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        flat = [hypothesis.ids for hypotheses in found for hypothesis in hypotheses]
        repeated = [source for source, hypotheses in zip(sources, found, strict=True) for _ in hypotheses]
        forced = iter(self._force_at_once(list(zip(repeated, flat, strict=True))))
        return [[replace(each, forced=next(forced)) for each in hypotheses] for hypotheses in found]
