"""Validation: the likelihood of the held-out translations, and BLEU of the model's own."""

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from nmt import scoring
from nmt.config import TrainingConfig
from nmt.data.batching import Plan
from nmt.data.corpus import CleaningReport, usable
from nmt.data.prepared import prepare
from nmt.data.vocabulary import Vocabulary
from nmt.devices import autocast, find_translation_precision
from nmt.model.transformer import Transformer
from nmt.training.loss import loss
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.translator import Translator


@dataclass(frozen=True)
class Validation:
    """What one validation found."""

    valid_loss: float  # label-smoothed, nats a target token
    nll: float  # not smoothed
    perplexity: float  # exp of the above
    bleu: float
    signature: str
    lines: int
    beam: int
    same: float  # share of the commonest output, near 1 where a model has collapsed

    def event(self) -> dict[str, Any]:
        """As the log has it."""
        return asdict(self)

    def __str__(self) -> str:
        return f"validation perplexity {self.perplexity:.2f}, BLEU {self.bleu:.2f} ({self.lines:,} lines, beam {self.beam})"


class Validator:
    """The held-out text, ready to be used again and again."""

    def __init__(
        self, source: list[str], reference: list[str], vocabulary: Vocabulary, config: TrainingConfig, precision: str
    ) -> None:
        """From raw lines that line up, at least one of them with text on both sides."""
        self.source, self.reference, self.vocabulary = source, reference, vocabulary
        self.config, self.precision = config, precision
        everything = TrainingConfig(max_pieces=2**31, max_ratio=2.0**31)  # nothing is dropped but pairs without text
        pairs = usable(zip(source, reference, strict=True), everything, CleaningReport())
        self.plan = Plan(
            prepare(pairs, vocabulary, everything, CleaningReport()), config.tokens_per_update, config.seed
        )

    def validate(self, model: Transformer) -> Validation:
        """Loss with the training's precision, BLEU of text decoded with translate's defaults."""
        smoothed, nll = evaluate(
            model, self.plan, self.config.micro_batch_tokens, self.config.label_smoothing, self.precision
        )
        engine = TorchEngine(model, find_translation_precision("auto", model.embedding.weight.device))
        hypotheses = Translator(engine, self.vocabulary).translate(self.source)
        score = scoring.bleu(hypotheses, [self.reference])
        [(_, most)] = Counter(hypotheses).most_common(1)
        return Validation(
            smoothed,
            nll,
            math.exp(min(nll, 700)),
            score.value,
            score.signature,
            score.lines,
            SearchOptions().beam,
            most / len(hypotheses),
        )


@torch.no_grad()
def evaluate(model: Transformer, plan: Plan, tokens: int, smoothing: float, precision: str) -> tuple[float, float]:
    """(smoothed loss, negative log-likelihood) in nats a target token, EOS included, over all pairs of the plan.

    Pairs go through in micro-batches of `tokens` cells a side. The model is left in the mode it was in.
    """
    device = model.embedding.weight.device
    smoothed = plain = torch.zeros((), dtype=torch.float64, device=device)
    pairs = np.arange(len(plan.pairs))
    training = model.training
    model.eval()
    try:
        for micro_batch in plan.micro_batches(pairs, tokens):
            batch = plan.batch(micro_batch).to(device)
            with autocast(device, precision):
                states = model.decode(batch.target_in, model.encode(batch.source))
                smoothed = smoothed + loss(states, model.embedding.weight, batch.target_out, smoothing)
                plain = plain + loss(states, model.embedding.weight, batch.target_out)
    finally:
        model.train(training)
    count = plan.target_tokens(pairs)
    return float(smoothed) / count, float(plain) / count
