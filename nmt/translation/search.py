"""Beam search over ids. It knows neither text nor layers, only a model that scores next tokens.

    live: `beam` hypotheses a sentence, at first only BOS; ended: none
    repeat:
        score every next token of every live hypothesis
        rank all (live hypothesis, token) candidates of a sentence by log-probability:
            of the first `beam` candidates, those whose token is EOS have ended; keep them if they score among the best
            the first `beam` other candidates become the live hypotheses
        a sentence is done when no live hypothesis could beat its ended ones, even without losing any more probability

A live hypothesis can only lose log-probability, and its score divides by at most the penalty of the greatest length allowed:
that gives the bound. Stopping sooner, say at `beam` ended hypotheses, would favour short translations, and so would accepting
an EOS that is not among the likeliest candidates. A beam of one is greedy search.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from nmt.devices import on_device
from nmt.ids import BOS, EOS, FIRST_PIECE, PAD
from nmt.translation.hypothesis import Hypothesis, SearchOptions, length_penalty

NEVER = float("-inf")
CPU = torch.device("cpu")
TOP_K_GROUP = 64  # tokens that `_top_k` represents by the best of them
ROWS_PER_DONE = 8  # sentences that are done leave the batch once they are one row in this many


class Steps(Protocol):
    """A model in the middle of decoding B sentences with N hypotheses; those of a sentence are side by side."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append a token to each hypothesis: ids [N] -> logits of the next token [N, V], which the caller may overwrite."""

    def keep(self, sentences: Tensor) -> None:
        """Continue with these sentences [B'] alone."""

    def reorder(self, beams: Tensor) -> None:
        """Continue with these hypotheses of each sentence: [B, beam], numbered within the sentence."""


class _Ended:
    """The n best ended hypotheses of each sentence, best first: scores and log-probabilities [B, n], ids [B, n, T]."""

    def __init__(self, sentences: int, n_best: int, longest: int, device: torch.device) -> None:
        self.scores = torch.full((sentences, n_best), NEVER, device=device)
        self.log_p = self.scores.clone()
        self.ids = torch.full((sentences, n_best, longest), PAD, device=device)

    def add(self, scores: Tensor, log_p: Tensor, ids: Tensor) -> None:
        """Keep the best of the present hypotheses and these: [B, beam], [B, beam], [B, beam, T]."""
        self.scores, chosen = torch.cat([self.scores, scores], 1).topk(self.scores.size(1))
        self.log_p = torch.cat([self.log_p, log_p], 1).gather(1, chosen)
        self.ids = torch.cat([self.ids, ids], 1).gather(1, chosen.unsqueeze(2).expand(-1, -1, ids.size(2)))

    def select(self, sentences: Tensor) -> Tensor:
        """Scores, log-probabilities and ids of these sentences [B'] in one [B', n, 2 + T], for a single copy to the host."""
        numbers = torch.stack([self.scores, self.log_p], 2)[sentences]
        return torch.cat([numbers.double(), self.ids[sentences].double()], 2)

    def keep(self, sentences: Tensor) -> None:
        self.scores, self.log_p, self.ids = self.scores[sentences], self.log_p[sentences], self.ids[sentences]


def beam_search(
    steps: Steps, limits: Sequence[int], options: SearchOptions, device: torch.device = CPU
) -> list[list[Hypothesis]]:
    """The n-best hypotheses of each of B sentences. `limits` holds the maximum number of pieces of each.

    At its limit a sentence with too few ended hypotheses ends live ones with EOS, so that every score is the model's own. None
    of these may outrank one that ended by itself, so the best hypothesis does not depend on n. Ids that are not text are never
    emitted, nor is EOS as the first token; the other probabilities are not renormalised. The host waits for the device once a
    step, to learn which sentences are done.
    """
    beam, alpha, longest = options.beam, options.length_penalty, max(limits)
    held = list(range(len(limits)))  # the sentence of each row of the batch
    searched = [True] * len(held)  # whether each row's search goes on
    left: list[int] = []  # the sentences that have left the batch
    results: list[Tensor] = []  # their hypotheses, in the same order
    bounds = on_device([length_penalty(limit + 1, alpha) for limit in limits], device)
    ended = _Ended(len(held), options.n_best, longest, device)
    live_p = torch.zeros(len(held), 1, device=device)  # log-probabilities [B, width]; width grows from 1 to beam
    live_ids = torch.full((len(held), 1, longest), PAD, device=device)
    tokens = torch.full((len(held),), BOS, device=device)
    for length in range(1, longest + 2):  # of the hypotheses that end at this step, EOS included
        logits = steps.step(tokens)
        log_p = torch.log_softmax(logits, 1, out=logits)
        width = live_p.size(1)
        end_p = live_p + log_p[:, EOS].view(-1, width) if length > 1 else torch.full_like(live_p, NEVER)
        log_p[:, :FIRST_PIECE] = NEVER  # padding, unknown, BOS, EOS and the reserved ids
        best_p, best_tokens = _top_k(log_p, beam)

        # An end counts if it ranks among the `beam` likeliest candidates of its sentence.
        extended = (live_p.view(-1, 1) + best_p).view(len(live_p), -1)
        ranked = torch.cat([extended, end_p], 1)
        is_likely = end_p >= ranked.topk(min(beam, ranked.size(1)), 1).values[:, -1:]
        scores = end_p / length_penalty(length, alpha)
        ended.add(scores.masked_fill(~is_likely, NEVER), end_p, live_ids)
        at_limit = None
        if any(going and length > limits[sentence] for going, sentence in zip(searched, held, strict=True)):
            at_limit = on_device([length > limits[sentence] for sentence in held], device)
            too_few = (at_limit & (ended.scores[:, -1] == NEVER)).unsqueeze(1)
            best = ended.scores[:, :1]
            outranks = (best > NEVER) & (scores > best)
            ended.add(scores.masked_fill(is_likely | ~too_few | outranks, NEVER), end_p, live_ids)

        # Extend.
        live_p, chosen = extended.topk(min(beam, extended.size(1)), 1)
        tokens = best_tokens.view(len(live_p), -1).gather(1, chosen)
        parents = chosen // best_tokens.size(1)

        # A sentence is done when no live hypothesis can win. Until its row leaves the batch, none of its hypotheses ends.
        worst = ended.scores[:, -1]
        done = worst > NEVER if beam == 1 else worst >= live_p[:, 0] / bounds
        if at_limit is not None:
            done |= at_limit
        live_p = live_p.masked_fill(done.unsqueeze(1), NEVER)
        if length > 1:  # nothing ends at the first step
            searched = [not over for over in done.tolist()]
        count = sum(searched)
        if ROWS_PER_DONE * (len(searched) - count) >= len(searched):
            going, leaving = compacted(searched)
            results.append(ended.select(on_device(leaving, device)))
            left += [held[row] for row in leaving]
            if not count:
                break
            rows = on_device(going, device)
            steps.keep(rows)
            ended.keep(rows)
            held, searched = [held[row] for row in going], [True] * count
            bounds, live_p, live_ids, tokens, parents = (x[rows] for x in (bounds, live_p, live_ids, tokens, parents))
        if beam > 1:
            steps.reorder(parents)
            live_ids = live_ids.gather(1, parents.unsqueeze(2).expand(-1, -1, longest))
        live_ids[:, :, length - 1] = tokens
        tokens = tokens.flatten()
    found = zip(left, torch.cat(results).tolist(), strict=True)
    return [_hypotheses(rows, limits[sentence]) for sentence, rows in sorted(found)]


def _hypotheses(rows: list[list[float]], limit: int) -> list[Hypothesis]:
    """The hypotheses of one sentence, from its rows of `_Ended.select`."""
    ended = [(score, log_p, [int(id) for id in padded if id != PAD]) for score, log_p, *padded in rows if score > NEVER]
    return [Hypothesis(ids, log_p, score, len(ids) == limit) for score, log_p, ids in ended]


def compacted(searched: list[bool]) -> tuple[list[int], list[int]]:
    """The rows that go on, in an order that moves as few as possible, and the rows that leave."""
    count = sum(searched)
    movable = iter(row for row in range(count, len(searched)) if searched[row])
    going = [row if searched[row] else next(movable) for row in range(count)]
    return going, [row for row, goes_on in enumerate(searched) if not goes_on]


def _top_k(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`scores.topk(count)` of each row of [N, V]: values and columns [N, count], or [N, V] of a smaller V.

    On a CPU this is four times as fast for a large V: only the `count` groups with the greatest maxima can hold a winner.
    """
    columns = torch.arange(scores.size(1), device=scores.device)
    grouped, rest = columns.split([len(columns) // TOP_K_GROUP * TOP_K_GROUP, len(columns) % TOP_K_GROUP])
    if scores.is_cuda or len(grouped) <= count * TOP_K_GROUP:
        return scores.topk(min(count, len(columns)), 1)
    maxima = scores[:, : len(grouped)].unflatten(1, (-1, TOP_K_GROUP)).amax(2)
    groups = maxima.topk(count, 1).indices
    within = grouped.view(-1, TOP_K_GROUP)[groups].flatten(1)
    candidates = torch.cat([within, rest.expand(len(scores), -1)], 1)
    best, chosen = scores.gather(1, candidates).topk(count, 1)
    return best, candidates.gather(1, chosen)
