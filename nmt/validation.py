"""Validation: the likelihood of the reference translations, and BLEU of the model's own."""

import math
from collections import Counter
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch

from nmt.config import ModelConfig, TrainingConfig
from nmt.data.batching import FEWEST_TOKENS, Batch, micro_batches
from nmt.data.preparation import PreparedPairs, encode
from nmt.data.vocabulary import Vocabulary
from nmt.devices import autocast, find_translation_precision
from nmt.errors import NmtError, UsageError
from nmt.event_log import Event
from nmt.formatting import counted
from nmt.lines import is_blank
from nmt.model.network import Network
from nmt.scoring import metrics
from nmt.training.loss import losses
from nmt.training.ranks import Ranks
from nmt.training.trainer import MIN_CELLS_ON_GPU
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.translator import Translator

_Part = tuple[float, float, list[str]]  # one rank's summed losses and translations

SAMPLES = 4  # held-out lines whose translation is logged at every validation


class Validator:
    """A held-out text, prepared once and used at every validation."""

    def __init__(
        self,
        name: str,
        source: list[str],
        reference: list[str],
        languages: tuple[str, str],
        vocabulary: Vocabulary,
        config: TrainingConfig,
        copies: bool = True,
    ) -> None:
        """From raw parallel lines, at least one of them with text on both sides. `name` is for people.

        `languages` are the codes of source and target; `copies` as for `Translator`.
        """
        self.name, self.languages = name, languages
        self.source, self.reference, self.vocabulary = source, reference, vocabulary
        self.config, self.copies = config, copies
        places = [place for place, pair in enumerate(zip(source, reference, strict=True)) if not any(map(is_blank, pair))]
        count = min(SAMPLES, len(places))
        # Evenly spaced, and the same at every validation.
        self.sampled = [places[(2 * number + 1) * len(places) // (2 * count)] for number in range(count)]
        self.lines = [place + 1 for place in places]  # with text on both sides
        pairs = [(source[place], reference[place]) for place in places]
        self.pairs = encode(pairs, vocabulary)[0]

    def check_lengths(self, network: ModelConfig) -> None:
        """Raise UsageError if a pair has more pieces than the network has positions."""
        for line, source, target in zip(self.lines, self.pairs.source.lengths, self.pairs.target.lengths, strict=True):
            if not network.can_number(source, target):
                raise UsageError(
                    f"the {self.name} text, line {line}: {source} and {target} pieces are too many for learned positions, "
                    f"which end at max_positions = {network.max_positions}; shorten the line or raise the setting"
                )

    def validate(self, model: Network, tokens: int, ranks: Ranks) -> Event:
        """Loss in the training's precision, and BLEU of text decoded with translate's defaults: the same on every rank.

        Returns what the log says of it. Each rank takes its share of the lines, in micro-batches of `tokens` padded tokens.
        Raises NmtError on all ranks where it fails on one, for whatever reason.
        """
        try:
            mine: _Part | str = self._part(model, tokens, ranks)
        except Exception as error:
            mine = f"{type(error).__name__}: {error}"
        hypotheses = [""] * len(self.source)
        smoothed = nll = 0.0
        for rank, part in enumerate(ranks.gather(mine)):
            if isinstance(part, str):
                raise NmtError(part)
            smoothed, nll = smoothed + part[0], nll + part[1]
            hypotheses[rank :: ranks.count] = part[2]
        count = int(self.pairs.targets.sum())
        score = metrics.bleu(hypotheses, [self.reference])
        [(_, repeats)] = Counter(hypotheses).most_common(1)
        return {
            "valid_loss": smoothed / count,  # label-smoothed, nats a target token
            "nll": nll / count,  # not smoothed
            "perplexity": math.exp(min(nll / count, 700)),
            "bleu": score.value,
            "signature": score.signature,
            "lines": score.lines,
            "beam": SearchOptions().beam,
            "same": repeats / len(hypotheses),  # share of the most frequent output, near 1 where a model has collapsed
            # Source and reference are in heldout/.
            "samples": [{"line": place + 1, "translation": hypotheses[place]} for place in self.sampled],
        }

    def summary(self, found: Event) -> str:
        """A validation, as `validate` returns it, for a person."""
        of = f"{counted(found['lines'], 'line')}, beam {found['beam']}"
        return f"{self.name} perplexity {found['perplexity']:.2f}, BLEU {found['bleu']:.2f} ({of})"

    def _part(self, model: Network, tokens: int, ranks: Ranks) -> _Part:
        device = model.output.device
        # The same arithmetic as `nmt translate`, which must print exactly what is scored here.
        engine = TorchEngine(model, find_translation_precision("auto", device))
        translator = Translator(engine, self.vocabulary, *self.languages, copies=self.copies, network=model.config)
        with _eagerly(model):
            smoothed, nll = self._losses(model, self.pairs.take(np.arange(ranks.rank, len(self.pairs), ranks.count)), tokens)
            return smoothed, nll, translator.translate(self.source[ranks.rank :: ranks.count])

    @torch.no_grad()
    def _losses(self, model: Network, pairs: PreparedPairs, tokens: int) -> list[float]:
        """Smoothed loss and negative log-likelihood of these pairs in nats, summed over the target tokens, EOS included.

        The pairs are computed in micro-batches of `tokens` cells per side. The model is left in evaluation mode.
        """
        device = model.output.device
        fewest = MIN_CELLS_ON_GPU if device.type == "cuda" else FEWEST_TOKENS
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        model.eval()
        for numbers in micro_batches(pairs, tokens, fewest):
            batch = Batch.of(pairs.take(numbers)).to(device)
            with autocast(device, self.config.precision):
                states = model.decode(batch.target_in, model.encode(batch.source))
                sums += torch.stack(losses(states, model.output, batch.target_out, self.config.label_smoothing))
        return sums.tolist()


def _eagerly(model: Network) -> AbstractContextManager[object]:
    """Do not use compiled layers, if there are any: here lengths vary too much for them to pay off."""
    compiled = any(getattr(layer, "_compiled_call_impl", None) for layer in model.layers)
    # The compiler is imported only if it is needed, for that takes seconds.
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()
