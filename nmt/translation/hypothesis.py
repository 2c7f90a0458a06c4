"""What passes between text and search: options go in, hypotheses come out, and an engine is in between."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from nmt.errors import UsageError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class SearchOptions:
    """How to search (paper, section 6.1). Raises UsageError where an option is out of range."""

    beam: int = 4  # live hypotheses per sentence; 1 is greedy search
    length_penalty: float = 0.6  # alpha
    n_best: int = 1  # hypotheses to return per sentence, best first
    extra: int = 50  # a translation may have this many pieces more than its source
    sample: int = 0  # draw each piece from so many of the likeliest, instead of searching (sampling.py)
    seed: int = 1  # of what is drawn
    details: bool = False  # also return the model's probabilities and attention for each hypothesis

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise UsageError(f"--beam {self.beam}: must be at least 1")
        if not 0 <= self.length_penalty < 10:
            raise UsageError(f"--length-penalty {self.length_penalty}: must be at least 0 and below 10")
        if self.sample < 0:
            raise UsageError(f"--sample {self.sample}: must be at least 1")
        if self.sample and self.n_best > 1:
            raise UsageError("--sample: draws one translation; leave out --n-best, or draw others with another --seed")
        if not 1 <= self.n_best <= self.beam:
            raise UsageError(f"--n-best {self.n_best}: must be at least 1, and at most the beam of {self.beam}; see --beam")


@dataclass(frozen=True)
class Forced:
    """The model's view of a translation of T pieces, given its source of S pieces."""

    log_probabilities: list[float]  # T + 1 natural logarithms: of each piece, and of EOS
    attention: "np.ndarray"  # [T + 1, S + 1]: how much each target piece attends to each source piece, EOS last in both


@dataclass(frozen=True)
class Hypothesis:
    """One translation as ids, without BOS and EOS."""

    ids: list[int]
    log_probability: float  # natural logarithm, including EOS
    score: float  # log_probability / length_penalty(len(ids) + 1, alpha)
    at_limit: bool  # whether the length limit ended it
    forced: Forced | None = None  # if SearchOptions.details


Sources = Sequence[Sequence[int]]  # one batch: the ids of each source, without EOS
# How many source pieces, including padding, a batch needs to keep the device busy.
BATCH_TOKENS = {"cpu": 2_048, "cuda": 16_384}


class Engine(Protocol):
    """All that the translator knows of a model."""

    batch_tokens: int  # one of BATCH_TOKENS

    def search_all(self, batches: Iterable[Sources], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        """Yield the n-best hypotheses of each source of each batch, in order. No source may be empty."""


def length_penalty(length: float, alpha: float) -> float:
    """((5 + L) / 6)^alpha (Wu et al. 2016; paper, section 6.1), where the length L includes EOS."""
    return float(((5 + length) / 6) ** alpha)
