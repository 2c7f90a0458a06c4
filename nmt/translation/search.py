"""Beam search over ids: it knows no text and no layers, only a model that scores next tokens.

    live: `beam` hypotheses a sentence, at first BOS alone; ended: nothing
    repeat:
        score every next token of every live hypothesis
        rank all (live hypothesis, token) of a sentence by log-probability:
            those among the first `beam` whose token is EOS have ended, and are kept if they score among the best
            the first `beam` of the others become the live ones
        a sentence is done when even a live hypothesis that lost nothing more could not beat its best ended one

A live hypothesis can only lose log-probability, and is divided by at most the penalty of the longest length allowed: that is
the bound. Stopping any sooner, say at `beam` ended hypotheses, favours short translations; so would an end that is not among
the likeliest continuations. A beam of one is greedy search.
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
GROUP = 64  # tokens whose best one stands for them: see `_best`
LEAVE = 8  # finished sentences leave when they are one in so many: what is left must close up


class Steps(Protocol):
    """A model in the middle of decoding B sentences with N hypotheses, those of a sentence side by side."""

    def step(self, tokens: Tensor) -> Tensor:
        """Add a token to each hypothesis: [N] -> logits of the next, [N, V]. The caller may overwrite them."""
        ...

    def keep(self, sentences: Tensor) -> None:
        """Go on with these sentences [B'] alone."""
        ...

    def reorder(self, beams: Tensor) -> None:
        """Go on from these hypotheses of each sentence: [B, beam], numbers among those that it has."""
        ...


class _Ended:
    """The best ended hypotheses of each sentence, the best first: scores and log-probabilities [B, n], ids [B, n, T]."""

    def __init__(self, sentences: int, n_best: int, longest: int, device: torch.device) -> None:
        self.scores = torch.full((sentences, n_best), NEVER, device=device)
        self.log_p = self.scores.clone()
        self.ids = torch.full((sentences, n_best, longest), PAD, device=device)

    def add(self, scores: Tensor, log_p: Tensor, ids: Tensor) -> None:
        """Candidates [B, beam], [B, beam], [B, beam, T] compete with those held."""
        self.scores, chosen = torch.cat([self.scores, scores], 1).topk(self.scores.size(1))
        self.log_p = torch.cat([self.log_p, log_p], 1).gather(1, chosen)
        self.ids = torch.cat([self.ids, ids], 1).gather(1, chosen.unsqueeze(2).expand(-1, -1, ids.size(2)))

    def of(self, sentences: Tensor) -> Tensor:
        """Score, log-probability and ids of these sentences [B'], in one tensor [B', n, 2 + T] for one copy to the host."""
        numbers = torch.stack([self.scores, self.log_p], 2)[sentences]
        return torch.cat([numbers.double(), self.ids[sentences].double()], 2)

    def keep(self, sentences: Tensor) -> None:
        self.scores, self.log_p, self.ids = self.scores[sentences], self.log_p[sentences], self.ids[sentences]


def beam_search(
    steps: Steps, limits: Sequence[int], options: SearchOptions, device: torch.device = CPU
) -> list[list[Hypothesis]]:
    """The n-best hypotheses of each of B sentences, given the pieces that each may have at most.

    Where too few have ended by then, live ones are ended at the limit, so that every hypothesis returned ends with EOS and
    its score is the model's own; but none that would outrank one that ended by itself, so that the best does not depend on
    how many are asked for. Ids that never stand for text are not emitted, and EOS is not the first token. Nothing is
    renormalised for what is forbidden. The device is waited for once a step, to know which sentences are done.
    """
    beam, alpha, longest = options.beam, options.length_penalty, max(limits)
    held = list(range(len(limits)))  # the sentences whose rows are still held ...
    searched = [True] * len(held)  # ... and which of them are not done
    left: list[int] = []  # those that are no longer held, in the order of ...
    results: list[Tensor] = []  # ... their hypotheses
    bounds = on_device([length_penalty(limit + 1, alpha) for limit in limits], device)
    ended = _Ended(len(held), options.n_best, longest, device)
    live_p = torch.zeros(len(held), 1, device=device)  # log-probabilities [B, width]; width grows from 1 to beam
    live_ids = torch.full((len(held), 1, longest), PAD, device=device)
    tokens = torch.full((len(held),), BOS, device=device)
    for length in range(1, longest + 2):  # of what ends at this step, EOS included
        logits = steps.step(tokens)
        log_p = torch.log_softmax(logits, 1, out=logits)
        width = live_p.size(1)
        end_p = live_p + log_p[:, EOS].view(-1, width) if length > 1 else torch.full_like(live_p, NEVER)
        log_p[:, :FIRST_PIECE] = NEVER  # padding, unknown, BOS, EOS and the reserved ids
        best_p, best_tokens = _best(log_p, beam)

        # What is among the best continuations, the likeliest of each hypothesis being enough to tell.
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

        # A sentence is done where nothing live can win. Its row goes on for a while, but nothing ends there any more.
        worst = ended.scores[:, -1]
        done = worst > NEVER if beam == 1 else worst >= live_p[:, 0] / bounds
        if at_limit is not None:
            done |= at_limit
        live_p = live_p.masked_fill(done.unsqueeze(1), NEVER)
        if length > 1:  # nothing ends at the first step
            searched = [not over for over in done.tolist()]
        count = sum(searched)
        if LEAVE * (len(searched) - count) >= len(searched):
            going, leaving = _closed_up(searched)
            results.append(ended.of(on_device(leaving, device)))
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
    """Of one sentence, from what `_Ended.of` gives."""
    found = []
    for score, log_p, *padded in rows:
        if score > NEVER:
            ids = [int(id) for id in padded if id != PAD]
            found.append(Hypothesis(ids, log_p, score, len(ids) == limit))
    return found


def _closed_up(searched: list[bool]) -> tuple[list[int], list[int]]:
    """The rows that are searched, in an order in which as many as can be stay where they are; and the others."""
    count = sum(searched)
    movable = iter(row for row in range(count, len(searched)) if searched[row])
    going = [row if searched[row] else next(movable) for row in range(count)]
    return going, [row for row, goes_on in enumerate(searched) if not goes_on]


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` greatest of each row of [N, V], or all of fewer, and where they are: two of [N, count].

    As `topk`, but on a CPU four times as fast for a vocabulary: none is in a group of which even the greatest is not among
    the `count` greatest of all groups.
    """
    columns = torch.arange(scores.size(1), device=scores.device)
    grouped, rest = columns.split([len(columns) // GROUP * GROUP, len(columns) % GROUP])
    if scores.is_cuda or len(grouped) <= count * GROUP:
        return scores.topk(min(count, len(columns)), 1)
    greatest = scores[:, : len(grouped)].unflatten(1, (-1, GROUP)).amax(2)
    groups = greatest.topk(count, 1).indices
    within = grouped.view(-1, GROUP)[groups].flatten(1)
    candidates = torch.cat([within, rest.expand(len(scores), -1)], 1)
    best, chosen = scores.gather(1, candidates).topk(count, 1)
    return best, candidates.gather(1, chosen)
