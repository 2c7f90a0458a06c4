"""Pairs that look as if they were no translations of each other. `clean = true` drops them; without it, a sample is told of.

Every sign is rare in good text: together they drop 0.1% of Multi30k and 0.4% of a mixture of manuals, news and web pages.
What reads well and fits in length and numbers passes, so sentences of the same length that were shuffled are not found.
"""

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from nmt.data.splits import Pair
from nmt.looks import LOOKS
from nmt.signs import numbers_of, repeats

COPIED, FOREIGN, LOOPING, NUMBERS, MARKUP, LENGTHS = (64 << place for place in range(6))
MISFITS = {  # a pair is counted under the first that applies
    COPIED: "with a sentence copied",
    FOREIGN: "in another language",
    LOOPING: "that repeat the same words on one side",
    NUMBERS: "with other numbers",
    MARKUP: "escaped, tokenised or cut into subwords",
    LENGTHS: "with a length that does not fit",
}

MIN_COPIED_WORDS = 4  # names and titles of fewer words may be equal
MIN_LETTERS, MIN_LETTERS_OF_OTHERS = 20, 30  # to tell the two languages apart, and any other one
LIKELY, LIKELY_OF_OTHERS = 0.97, 0.99  # probabilities
USUAL_SHARE = 0.2  # a corpus with more pairs of one look has it throughout, and the user is told so
UNALIGNED = "the lengths of its pairs have nothing to do with each other; perhaps one side lacks a line, so see where they part"
MIN_PAIRS, MIN_CORRELATION = 100, 0.3  # of lengths; translations have 0.9
MAX_FACTOR, MIN_CHARACTERS = 2.0, 20  # from the corpus's usual ratio of lengths, where one side is longer than that


class Judge:
    """Judges pairs of these languages one by one."""

    def __init__(self, source: str, target: str) -> None:
        self.languages = [re.split("[-_]", code)[0].lower() for code in (source, target)]

    def signs_of(self, source: str, target: str) -> int:
        """All signs about a pair, except LENGTHS, as bits."""
        words = [text.casefold().split() for text in (source, target)]
        numbers = [numbers_of([text]) for text in (source, target)]
        lost, new = (one - other for one, other in (numbers, numbers[::-1]))
        looks = [any(sign.search(text) for _, sign, *_ in LOOKS) for text in (source, target)]
        return (
            COPIED * (len(words[0]) >= MIN_COPIED_WORDS and words[0] == words[1])
            | FOREIGN * any(map(self._is_foreign, (source, target), self.languages))
            | LOOPING * (repeats(words[0]) != repeats(words[1]))
            | NUMBERS * (any(len(number) > 1 for number in lost) and any(len(number) > 1 for number in new))
            | MARKUP * any(looks)
        )

    def _is_foreign(self, text: str, language: str) -> bool:
        """Whether the text is in the pair's other language, or in a third one."""
        letters = sum(map(str.isalpha, text))
        if letters < MIN_LETTERS or not self._identifiers:
            return False
        either, any_of_all = self._identifiers
        found, probability = either.classify(text)
        if found != language and probability > LIKELY:
            return True
        found, probability = any_of_all.classify(text) if letters >= MIN_LETTERS_OF_OTHERS else (language, 1.0)
        return found not in self.languages and probability > LIKELY_OF_OTHERS

    @cached_property
    def _identifiers(self) -> tuple[LanguageIdentifier, LanguageIdentifier] | None:
        """One that knows the two languages alone, and one that knows all. None where it knows either of the two not."""
        either, any_of_all = (LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True) for _ in range(2))
        if not {*self.languages} <= {*either.labels}:
            return None
        either.set_languages(self.languages)
        return either, any_of_all


def mark_lengths(facts: np.ndarray, characters: np.ndarray) -> None:
    """Mark each pair (facts uint16 [pairs]) whose ratio of lengths (characters int32 [pairs, 2]) is far from the usual."""
    if len(facts):
        source, target = np.log(characters + MIN_CHARACTERS / 2).T
        ratios = target - source
        unusual = np.abs(ratios - np.median(ratios)) > np.log(MAX_FACTOR)
        facts[unusual & (characters.max(1) > MIN_CHARACTERS)] |= LENGTHS


def pardon_the_usual(facts: np.ndarray) -> list[str]:
    """Take back a sign (facts uint16 [pairs]) of more than USUAL_SHARE of all pairs; returns the reasons taken back."""
    usual = [sign for sign in MISFITS if np.count_nonzero(facts & sign) > USUAL_SHARE * len(facts)]
    facts &= np.uint16(~sum(usual) & 0xFFFF)
    return [MISFITS[sign] for sign in usual]


def judged(pairs: Sequence[Pair], source: str, target: str) -> np.ndarray:
    """All signs about these pairs: uint16 [pairs]."""
    judge = Judge(source, target)
    facts = np.fromiter((judge.signs_of(*pair) for pair in pairs), np.uint16, len(pairs))
    mark_lengths(facts, np.array([[len(side) for side in pair] for pair in pairs], np.int32).reshape(-1, 2))
    return facts


def misfits_note(facts: np.ndarray) -> str:
    """A sentence on how many pairs of a sample look wrong (uint16 [pairs]) in unusual ways; "" if none does."""
    pardon_the_usual(facts)
    count = int(np.count_nonzero(facts))
    if not count:
        return ""
    counts = {reason: int(np.count_nonzero(facts & sign)) for sign, reason in MISFITS.items()}
    named = ", ".join(f"{number / len(facts):.1%} {reason}" for reason, number in counts.items() if number)
    return (
        f"of {len(facts):,} pairs looked at, {count / len(facts):.1%} look wrong: {named}; clean = true under [training] drops "
        "such pairs"
    )


def unaligned(pairs: Sequence[Pair]) -> bool:
    """Whether the lengths of many pairs have nothing to do with each other, as where one side has lost a line."""
    lengths = np.log([[len(side) + 1 for side in pair] for pair in pairs])
    if len(pairs) < MIN_PAIRS or not lengths.std(0).all():
        return False
    return bool(np.corrcoef(lengths.T)[0, 1] < MIN_CORRELATION)
