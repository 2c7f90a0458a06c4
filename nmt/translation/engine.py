"""The PyTorch engine: runs the encoder once a sentence and the decoder once a token of beam search."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.devices import autocast, find_device, find_translation_precision
from nmt.errors import NmtError, is_out_of_memory
from nmt.ids import BOS, EOS
from nmt.lanes import Lanes
from nmt.model.network import Network, padded
from nmt.saved_model import SavedModel
from nmt.translation.alignment import aligning_layer
from nmt.translation.hypothesis import BATCH_TOKENS, Forced, Hypothesis, SearchOptions, Sources
from nmt.translation.packed import PackedLinear, can_pack, pack
from nmt.translation.sampling import sample
from nmt.translation.search import beam_search

Item = TypeVar("Item")
Result = TypeVar("Result")
Projection = Callable[[Tensor], Tensor]  # states [N, D] -> logits [N, V]
Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]  # ids of sources and targets, without BOS and EOS


class NetworkSteps:
    """`Steps` of search.py for a network: the memory and cache of one batch."""

    def __init__(self, model: Network, projection: Projection, source: Tensor) -> None:
        """Encode the source ids [B, S]."""
        self.model, self.projection = model, projection
        self.memory = model.encode(source)
        self.cache = model.new_cache(self.memory)

    def step(self, tokens: Tensor) -> Tensor:
        """Ids [N] -> logits [N, V], always in fp32: close logits would tie in bf16."""
        states = self.model.decode(tokens.unsqueeze(1), self.memory, self.cache).squeeze(1)
        with torch.autocast(states.device.type, enabled=False):
            return self.projection(states.float())

    def reorder(self, beams: Tensor) -> None:
        self.cache.reorder(beams)

    def keep(self, sentences: Tensor) -> None:
        self.memory.keep(sentences)
        self.cache.keep(sentences)


class TorchEngine:
    """`Engine` of hypothesis.py for a network, on the device of its weights. On a CPU it searches two batches at once."""

    def __init__(self, model: Network, precision: str = "fp32", packed: bool = True) -> None:
        """Use the weights as they are now, in evaluation mode; the model itself is not changed.

        With `packed`, matrices are laid out for the device where that makes search faster.
        """
        tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.model = copy.deepcopy(model, tensors).eval()  # modules of its own over the same tensors
        self.precision, self.device = precision, model.output.device
        self.batch_tokens = BATCH_TOKENS[self.device.type]
        self.lanes = Lanes(self.device)
        self.projection: Projection = partial(F.linear, weight=model.output)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        if packed and can_pack(self.device, dtype):
            pack(self.model, dtype)
            self.projection = PackedLinear(model.output)

    def search_all(self, batches: Iterable[Sources], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        """The n-best hypotheses of each source of each batch. A batch that is alone uses all threads."""
        batches = list(batches)
        # For details the model's modules record their attention, which batches side by side would mix.
        side_by_side = self.lanes.map if len(batches) > 1 and not options.details else map
        return side_by_side(partial(self._in_halves, partial(self._search_batch, options=options)), batches)

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        """The n-best hypotheses of each source, searched in one batch."""
        [found] = self.search_all([sources], options)
        return found

    def force(self, pairs: Pairs) -> list[Forced]:
        """The log-probabilities and attention of each source's target, computed in one batch."""
        return self._in_halves(self._force_batch, pairs)

    def _in_halves(self, compute: Callable[[Sequence[Item]], list[Result]], batch: Sequence[Item]) -> list[Result]:
        """Compute the batch at once, or in halves where memory runs out. Raises NmtError if a single item does not fit."""
        try:
            return compute(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise NmtError("out of memory with one sentence; shorter ones or a smaller --beam need less") from None
        # Only here, because the error keeps the partial results alive while it is handled.
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        half = len(batch) // 2
        return self._in_halves(compute, batch[:half]) + self._in_halves(compute, batch[half:])

    @torch.inference_mode()
    def _search_batch(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        source = padded([[*ids, EOS] for ids in sources], self.device)
        limits = [len(ids) + options.extra for ids in sources]
        with autocast(self.device, self.precision):
            steps = NetworkSteps(self.model, self.projection, source)
            if options.sample:
                found = sample(steps, sources, limits, options, self.device)
            else:
                found = beam_search(steps, limits, options, self.device)
        if not options.details:
            return found
        pairs = [(source, each.ids) for source, best in zip(sources, found, strict=True) for each in best]
        forced = iter(self._force_batch(pairs))
        return [[replace(each, forced=next(forced)) for each in best] for best in found]

    @torch.inference_mode()
    def _force_batch(self, pairs: Pairs) -> list[Forced]:
        """The attention to the source is that of `aligning_layer`, averaged over its heads; row t predicts piece t."""
        model, device = self.model, self.device
        sources = padded([[*source, EOS] for source, _ in pairs], device)
        to_source = model.attentions["cross"]
        with autocast(device, self.precision), to_source[aligning_layer(len(to_source))].recording() as recorded:
            states = model.decode(padded([[BOS, *target] for _, target in pairs], device), model.encode(sources))
        outputs = padded([[*target, EOS] for _, target in pairs], device)
        rows = [  # sentence by sentence, because the logits of a whole batch would need too much memory
            F.linear(state, model.output).log_softmax(-1).gather(1, output.unsqueeze(1)).squeeze(1)
            for state, output in zip(states.float(), outputs, strict=True)
        ]
        weights = recorded[-1][..., : sources.size(1)]
        results = zip(pairs, torch.stack(rows).tolist(), weights.float().mean(1).cpu().numpy(), strict=True)
        return [
            Forced(row[: len(target) + 1], attention[: len(target) + 1, : len(source) + 1].copy())
            for (source, target), row, attention in results
        ]


def load(model: SavedModel, device: str, precision: str) -> TorchEngine:
    """The engine of a saved model. Raises UsageError where the weights are damaged, or the device is not available."""
    torch_device = find_device(device)
    return TorchEngine(model.network().to(torch_device), find_translation_precision(precision, torch_device))
