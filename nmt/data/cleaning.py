"""Which training pairs are fit for training, judged by their text alone.

All facts about a pair are noted in two bytes. The settings only select the facts that drop a pair, so a corpus is judged once,
and the number of pairs that other settings would keep is known without reading it again. Whether a pair looks wrong, which
misfits.py decides, takes longer than all else, and is found out only where `clean` asks for it.
"""

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from nmt.config import TrainingConfig
from nmt.data.misfits import MISFITS
from nmt.formatting import counted
from nmt.lines import clean, is_blank, needs_no_translation

EMPTY_SOURCE, EMPTY_TARGET, IDENTICAL, REPEATED, CONTROLS, LETTERLESS = 1, 2, 4, 8, 16, 32
REASONS = {  # a pair is counted under the first that applies
    EMPTY_SOURCE: "with an empty source",
    EMPTY_TARGET: "with an empty target",
    IDENTICAL: "with identical sides",
    REPEATED: "seen before",
    **MISFITS,
}
MIN_LETTERLESS_SHARE = 0.01  # of all pairs; fewer sources without a letter may be mistakes


@dataclass
class CleaningReport:
    """How many training pairs were read, and how many were dropped for which reason."""

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    control_characters: int = 0  # kept pairs in which some became spaces

    @property
    def kept(self) -> int:
        return self.read - self.dropped.total()

    def __add__(self, other: "CleaningReport") -> "CleaningReport":
        return CleaningReport(
            self.read + other.read, self.dropped + other.dropped, self.control_characters + other.control_characters
        )

    def __str__(self) -> str:
        text = f"read {counted(self.read, 'pair')}, kept {self.kept:,}, dropped {self.dropped.total():,}"
        if self.dropped:
            text += ": " + ", ".join(f"{n:,} {reason}" for reason, n in self.dropped.most_common())
        if self.control_characters:
            text += f"; control characters became spaces in {self.control_characters:,}"
        return text


def dropping(settings: TrainingConfig) -> int:
    """The facts that drop a pair under these settings, as bits."""
    misfits = sum(MISFITS) * settings.clean
    return EMPTY_SOURCE | EMPTY_TARGET | IDENTICAL * settings.drop_identical | REPEATED * settings.drop_duplicates | misfits


def facts_of(source: str, target: str) -> int:
    """All facts about a pair except REPEATED and MISFITS, as bits."""
    letterless = not source[:1].isalpha() and not is_blank(source) and needs_no_translation(source)
    return (
        EMPTY_SOURCE * is_blank(source)
        | EMPTY_TARGET * is_blank(target)
        | IDENTICAL * (source == target)
        | CONTROLS * (clean(source) != source or clean(target) != target)
        | LETTERLESS * letterless
    )


def digest_of(source: str, target: str) -> bytes:
    """Eight bytes that identify a pair: among 100 million pairs, the odds of a collision are 1 in 4,000."""
    return blake2b(f"{source}\n{target}\n".encode(), digest_size=8).digest()


def mark_repeated(facts: np.ndarray, digests: np.ndarray) -> None:
    """Mark each pair (facts uint16 [pairs]) whose digest (uint64 [pairs]) occurred before."""
    repeated = np.ones(len(facts), bool)
    repeated[np.unique(digests, return_index=True)[1]] = False  # the first occurrence of each digest
    facts[repeated] |= REPEATED


def copies_letterless(facts: np.ndarray, usual: bool) -> bool:
    """Whether training pairs with these facts (uint16) mostly copy sources without a letter.

    Otherwise they translate them, as digits into words or Braille into letters. `usual` if such sources are too few to tell.
    """
    not_empty = facts[facts & (EMPTY_SOURCE | EMPTY_TARGET) == 0]
    letterless = not_empty[not_empty & LETTERLESS != 0]
    if len(letterless) < max(1, MIN_LETTERLESS_SHARE * len(not_empty)):
        return usual
    return bool(2 * np.count_nonzero(letterless & IDENTICAL) >= len(letterless))


def report_of(facts: np.ndarray, drops: int) -> CleaningReport:
    """The report on pairs with these facts (uint16) when the facts in `drops` drop a pair."""
    report = CleaningReport(read=len(facts))
    for value, count in enumerate(np.bincount(facts).tolist()):
        reason = next((reason for fact, reason in REASONS.items() if value & drops & fact), None)
        if count and reason:
            report.dropped[reason] += count
        elif value & CONTROLS:
            report.control_characters += count
    return report
