"""Validation: the likelihood of the reference translations, and BLEU of the model's own."""

import math
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nmt.config import TrainingConfig
from nmt.data.batching import FEWEST_TOKENS, Plan
from nmt.data.preparation import encode
from nmt.data.vocabulary import Vocabulary
from nmt.devices import autocast, find_translation_precision
from nmt.errors import NmtError
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


@dataclass(frozen=True)
class Validation:
    """The result of one validation."""

    valid_loss: float  # label-smoothed, nats a target token
    nll: float  # not smoothed
    perplexity: float  # exp of the above
    bleu: float
    signature: str
    lines: int
    beam: int
    same: float  # share of the most frequent output, near 1 where a model has collapsed
    samples: list[dict[str, Any]]  # {"line": 17, "translation": "..."}; source and reference are in heldout/

    def __str__(self) -> str:
        of = f"{counted(self.lines, 'line')}, beam {self.beam}"
        return f"validation perplexity {self.perplexity:.2f}, BLEU {self.bleu:.2f} ({of})"


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
        self.sampled = sample(source, reference)
        pairs = [pair for pair in zip(source, reference, strict=True) if not any(map(is_blank, pair))]
        self.plan = Plan(encode(pairs, vocabulary)[0], config.tokens_per_update, config.seed)

    def validate(self, model: Network, tokens: int, ranks: Ranks) -> Validation:
        """Loss in the training's precision, and BLEU of text decoded with translate's defaults: the same on every rank.

        Each rank takes its share of the lines, in micro-batches of `tokens` padded tokens. Raises NmtError on all ranks where
        it fails on one, for whatever reason: a validation must never end a run.
        """
        try:
            mine: _Part | str = self._part(model, tokens, ranks)
        except Exception as error:
            mine = f"{type(error).__name__}: {error}"
        parts = []
        for part in ranks.gather(mine):
            if isinstance(part, str):
                raise NmtError(part)
            parts.append(part)
        try:
            return self._whole(parts)
        except Exception as error:
            raise NmtError(f"{type(error).__name__}: {error}") from None

    def _whole(self, parts: list[_Part]) -> Validation:
        hypotheses = [""] * len(self.source)
        for rank, (_, _, translations) in enumerate(parts):
            hypotheses[rank :: len(parts)] = translations
        count = int(self.plan.targets.sum())
        smoothed = sum(smoothed for smoothed, _, _ in parts) / count
        nll = sum(nll for _, nll, _ in parts) / count
        score = metrics.bleu(hypotheses, [self.reference])
        [(_, repeats)] = Counter(hypotheses).most_common(1)
        return Validation(
            smoothed,
            nll,
            math.exp(min(nll, 700)),
            score.value,
            score.signature,
            score.lines,
            SearchOptions().beam,
            repeats / len(hypotheses),
            [{"line": place + 1, "translation": hypotheses[place]} for place in self.sampled],
        )

    def _part(self, model: Network, tokens: int, ranks: Ranks) -> _Part:
        pairs = np.arange(len(self.plan.pairs))[ranks.rank :: ranks.count]
        device = model.output.device
        # The same arithmetic as `nmt translate`, which must print exactly what is scored here.
        engine = TorchEngine(model, find_translation_precision("auto", device))
        with _eagerly(model):
            losses = evaluate(model, self.plan, pairs, tokens, self.config.label_smoothing, self.config.precision)
            translator = Translator(engine, self.vocabulary, *self.languages, copies=self.copies)
            return *losses, translator.translate(self.source[ranks.rank :: ranks.count])


def _eagerly(model: Network) -> AbstractContextManager[object]:
    """Do not use compiled layers, if there are any: here lengths vary too much for them to pay off."""
    compiled = any(getattr(layer, "_compiled_call_impl", None) for layer in model.layers)
    # The compiler is imported only if it is needed, for that takes seconds.
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


def sample(source: list[str], reference: list[str]) -> list[int]:
    """Indices of up to SAMPLES evenly spaced pairs with text on both sides, the same at every validation."""
    pairs = enumerate(zip(source, reference, strict=True))
    places = [place for place, pair in pairs if not any(map(is_blank, pair))]
    count = min(SAMPLES, len(places))
    return [places[(2 * number + 1) * len(places) // (2 * count)] for number in range(count)]


@torch.no_grad()
def evaluate(
    model: Network, plan: Plan, pairs: np.ndarray, tokens: int, smoothing: float, precision: str
) -> tuple[float, float]:
    """(smoothed loss, negative log-likelihood) of these pairs in nats, summed over the target tokens, EOS included.

    The pairs are computed in micro-batches of `tokens` cells per side. The model's mode does not change.
    """
    device = model.output.device
    fewest = MIN_CELLS_ON_GPU if device.type == "cuda" else FEWEST_TOKENS
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    training = model.training
    model.eval()
    try:
        for micro_batch in plan.micro_batches(pairs, tokens, fewest):
            batch = plan.batch(micro_batch).to(device)
            with autocast(device, precision):
                states = model.decode(batch.target_in, model.encode(batch.source))
                sums += torch.stack(losses(states, model.output, batch.target_out, smoothing))
    finally:
        model.train(training)
    smoothed, plain = sums.tolist()
    return smoothed, plain
