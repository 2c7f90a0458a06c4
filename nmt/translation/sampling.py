"""Translations drawn at random from the model, for back-translation: what is drawn is more varied than what scores best.

Each next piece is drawn from the K likeliest, by their probabilities (Edunov et al. 2018, "restricted sampling"). A sentence's
random numbers come from the seed and its own pieces, so that other sentences in the batch do not change what is drawn.
"""

from collections.abc import Sequence

import numpy as np
import torch

from nmt.devices import on_device
from nmt.ids import BOS, EOS, FIRST_PIECE
from nmt.translation.hypothesis import Hypothesis, SearchOptions, Sources, length_penalty
from nmt.translation.search import NEVER, Steps, compacted

CPU = torch.device("cpu")


def sample(
    steps: Steps, sources: Sources, limits: Sequence[int], options: SearchOptions, device: torch.device = CPU
) -> list[list[Hypothesis]]:
    """One translation of each of B sources, drawn from `options.sample` pieces. `limits` holds the most pieces of each.

    Ids that are not text are never drawn, nor is EOS as the first token. At its limit a translation ends with EOS.
    """
    draws = np.ones((len(limits), max(limits) + 1))
    for row, (source, limit) in enumerate(zip(sources, limits, strict=True)):
        draws[row, : limit + 1] = np.random.default_rng([options.seed, *source]).random(limit + 1)
    held = list(range(len(limits)))  # the sentence of each row of the batch
    ids: list[list[int]] = [[] for _ in held]
    log_p = [0.0] * len(held)
    uniform = torch.from_numpy(draws).to(device, torch.float32)
    tokens = torch.full((len(held),), BOS, device=device)
    for length in range(1, max(limits) + 2):
        logits = steps.step(tokens)
        scores = torch.log_softmax(logits, 1, out=logits)
        end = scores[:, EOS].clone()
        scores[:, :FIRST_PIECE] = NEVER
        if length > 1:
            scores[:, EOS] = end
        best, places = scores.topk(min(options.sample, scores.size(1) - FIRST_PIECE + (length > 1)), 1)
        above = best.softmax(1).cumsum(1)
        chosen = (above < uniform[held, length - 1].unsqueeze(1) * above[:, -1:]).sum(1, keepdim=True)
        tokens, drawn = places.gather(1, chosen).squeeze(1), best.gather(1, chosen).squeeze(1)
        ended = set()
        for row, (token, p, end_p) in enumerate(torch.stack([tokens.double(), drawn.double(), end.double()], 1).tolist()):
            sentence = held[row]
            over = token == EOS or len(ids[sentence]) == limits[sentence]
            log_p[sentence] += end_p if over else p
            if over:
                ended.add(row)
            else:
                ids[sentence].append(int(token))
        if len(ended) == len(held):
            break
        if ended:
            going, _ = compacted([row not in ended for row in range(len(held))])
            rows = on_device(going, device)
            steps.keep(rows)
            held, tokens = [held[row] for row in going], tokens[rows]
    alpha = options.length_penalty
    return [
        [Hypothesis(found, p, p / length_penalty(len(found) + 1, alpha), len(found) == limit)]
        for found, p, limit in zip(ids, log_p, limits, strict=True)
    ]
