"""What passes between text and search: the options going in, the hypotheses coming out, and the engine between them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class SearchOptions:
    """How to search (paper, section 6.1)."""

    beam: int = 4  # live hypotheses a sentence; 1 is greedy search
    length_penalty: float = 0.6  # alpha
    n_best: int = 1  # hypotheses returned, the best first; at most `beam`
    extra: int = 50  # a translation has at most so many pieces more than its source
    details: bool = False  # also ask the model what it says of each hypothesis, piece by piece


@dataclass(frozen=True)
class Forced:
    """What the model says of one translation of T pieces of a source of S pieces."""

    log_probabilities: list[float]  # natural logarithms: of each piece, and of EOS at last
    attention: "np.ndarray"  # [T + 1, S + 1]: how much each piece, EOS at last, looked at each of the source's


@dataclass(frozen=True)
class Hypothesis:
    """One translation as ids, without BOS or EOS."""

    ids: list[int]
    log_probability: float  # natural logarithm, EOS included
    score: float  # log_probability / length_penalty(len(ids) + 1, alpha)
    at_limit: bool  # ended because it was as long as it may be
    forced: Forced | None = None  # where details were asked for


Sources = Sequence[Sequence[int]]  # sources, given as ids without EOS, that go through the model together
# Source pieces, padding included, of a batch that keeps such a device busy.
BATCH_TOKENS = {"cpu": 2_048, "cuda": 16_384}


class Engine(Protocol):
    """All that the translator knows of a model."""

    batch_tokens: int  # of BATCH_TOKENS

    def search_all(self, batches: Iterable[Sources], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        """The n-best hypotheses of each source of each batch, in order. Every source has at least one id."""
        ...


def length_penalty(length: float, alpha: float) -> float:
    """((5 + L) / 6)^alpha of Wu et al. 2016 (the paper's section 6.1), L counting EOS."""
    return float(((5 + length) / 6) ** alpha)
