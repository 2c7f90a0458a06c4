"""Which training pairs are fit for training so far as their text tells.

What is true of a pair is noted in one byte, whatever the settings; the settings only say which of these facts drop it. So
the text of a corpus is judged once, and how many pairs another setting would keep is known without reading it again.
"""

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from nmt.config import TrainingConfig
from nmt.formatting import counted
from nmt.lines import clean, is_blank, needs_no_translation

EMPTY_SOURCE, EMPTY_TARGET, IDENTICAL, REPEATED, CONTROLS, LETTERLESS = 1, 2, 4, 8, 16, 32
REASONS = {  # a pair is counted under the first that holds
    EMPTY_SOURCE: "with an empty source",
    EMPTY_TARGET: "with an empty target",
    IDENTICAL: "with identical sides",
    REPEATED: "seen before",
}
TELLING = 0.01  # of all pairs must have a source without a letter, to tell what becomes of those: fewer may be mistakes
BUCKETS = 16  # so many parts of the digests are sorted one after the other, which needs a sixteenth of the memory


@dataclass
class CleaningReport:
    """What became of the training pairs, by reason."""

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    control_characters: int = 0  # pairs in which some were replaced by spaces

    @property
    def kept(self) -> int:
        return self.read - self.dropped.total()

    def __str__(self) -> str:
        reasons = "".join(f", {n:,} {reason}" for reason, n in self.dropped.most_common())
        text = f"read {counted(self.read, 'pair')}, kept {self.kept:,}, dropped {self.dropped.total():,}"
        if reasons:
            text += f":{reasons[1:]}"
        if self.control_characters:
            text += f"; control characters became spaces in {self.control_characters:,}"
        return text


def dropping(settings: TrainingConfig) -> int:
    """The facts that drop a pair under these settings, as one byte."""
    return (
        EMPTY_SOURCE
        | EMPTY_TARGET
        | (IDENTICAL if settings.drop_identical else 0)
        | (REPEATED if settings.drop_duplicates else 0)
    )


def facts_of(source: str, target: str) -> int:
    """All facts of a pair but whether it was seen before, as one byte."""
    facts = EMPTY_SOURCE if is_blank(source) else 0
    if is_blank(target):
        facts |= EMPTY_TARGET
    if source == target:
        facts |= IDENTICAL
    if clean(source) != source or clean(target) != target:
        facts |= CONTROLS
    if not (source[:1].isalpha() or facts & EMPTY_SOURCE) and needs_no_translation(source):
        facts |= LETTERLESS
    return facts


def digest_of(text: bytes) -> bytes:
    """Eight bytes that stand for a pair's text: two of 100 million pairs share them by chance with odds of 1 in 4,000."""
    return blake2b(text, digest_size=8).digest()


def mark_repeated(facts: np.ndarray, digests: np.ndarray) -> None:
    """Mark every pair whose digest (uint64) an earlier one has. Takes about 12 bytes a pair, the digests among them."""
    buckets = digests.view(np.uint8)[:: digests.itemsize] % BUCKETS  # of one byte of each
    for bucket in range(BUCKETS):
        pairs = np.flatnonzero(buckets == bucket)
        order = pairs[np.argsort(digests[pairs], kind="stable")]
        again = digests[order][1:] == digests[order][:-1]
        facts[order[1:][again]] |= REPEATED


def copies_letterless(facts: np.ndarray) -> bool | None:
    """Whether sources without a letter are copied in most training pairs of these facts (uint8), and not translated.

    Digits may be to be written as words, or Braille as letters. None where there are too few of them to tell.
    """
    of_use = facts[facts & (EMPTY_SOURCE | EMPTY_TARGET) == 0]
    letterless = of_use[of_use & LETTERLESS != 0]
    if len(letterless) < max(1, TELLING * len(of_use)):
        return None
    return bool(2 * np.count_nonzero(letterless & IDENTICAL) >= len(letterless))


def report_of(facts: np.ndarray, drops: int) -> CleaningReport:
    """What becomes of pairs of these facts (uint8) when those of `drops` drop them."""
    report = CleaningReport(read=len(facts))
    values = np.bincount(facts, minlength=256)
    for value in np.flatnonzero(values).tolist():
        if reason := next((reason for fact, reason in REASONS.items() if value & drops & fact), None):
            report.dropped[reason] += int(values[value])
        elif value & CONTROLS:
            report.control_characters += int(values[value])
    return report
