"""Validation: the plain likelihood of the held-out translations, computed without touching the training state."""

import numpy as np
import torch

from nmt.data.batching import Plan
from nmt.devices import autocast
from nmt.model.transformer import Transformer
from nmt.training.loss import loss


@torch.no_grad()
def evaluate(model: Transformer, plan: Plan, tokens: int, smoothing: float, precision: str) -> tuple[float, float]:
    """(smoothed loss, negative log-likelihood) in nats a target token, EOS included, over all pairs of the plan.

    exp of the second is the perplexity. Pairs go through in micro-batches of `tokens` cells. The model is left in the mode
    it was in.
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
