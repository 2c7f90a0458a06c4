"""Other forms of the training pairs, drawn anew in every epoch: a model of few pairs learns from them what words are made of.

BPE-dropout (Provilkov et al. 2020) skips each merge of the segmentation with some probability, so that a word is now one piece
and now several. A share of the pairs is in upper or title case on both sides, and a share of the sources has typing errors, so
that such text is no surprise later.
"""

from collections.abc import Sequence

import numpy as np

from nmt.config import TrainingConfig
from nmt.data.preparation import PreparedPairs, Side
from nmt.data.vocabulary import Vocabulary
from nmt.ids import FIRST_PIECE

CHARACTERS_PER_TYPO = 25  # of a source that has some


class Variation:
    """Draws the pairs of an update in other forms."""

    def __init__(self, vocabulary: Vocabulary, config: TrainingConfig) -> None:
        self.vocabulary, self.config = vocabulary, config
        self.shares = np.cumsum([config.upper_case, config.title_case, config.typos])

    @classmethod
    def of(cls, vocabulary: Vocabulary, config: TrainingConfig) -> "Variation | None":
        """None where the settings vary nothing."""
        settings = (config.bpe_dropout, config.upper_case, config.title_case, config.typos)
        return cls(vocabulary, config) if any(settings) else None

    def vary(self, pairs: PreparedPairs, seed: Sequence[int]) -> PreparedPairs:
        """The pairs in the forms that this seed draws. What would be over `max_pieces` stays as it was."""
        random = np.random.default_rng(seed)
        forms = np.searchsorted(self.shares, random.random(len(pairs)), side="right")  # 3: as it is
        sides = [side.sentences() for side in (pairs.source, pairs.target)]
        texts = [self.vocabulary.decode_all(side) for side in sides]
        for number in np.flatnonzero(forms < len(self.shares)):
            for text in texts if forms[number] < 2 else texts[:1]:
                text[number] = _varied(text[number], int(forms[number]), random)
        varied = []
        for ids, text in zip(sides, texts, strict=True):
            drawn = self.vocabulary.sample_all(text, self.config.bpe_dropout, int(random.integers(2**32)))
            chosen = [
                new if len(new := [id for id in old[:1] if id < FIRST_PIECE] + pieces) <= self.config.max_pieces else old
                for old, pieces in zip(ids, drawn, strict=True)
            ]
            varied.append(Side.of(chosen, pairs.source.ids.dtype.str))
        return PreparedPairs(*varied)


def _varied(text: str, form: int, random: np.random.Generator) -> str:
    if form == 0:
        return text.upper()
    return titled(text) if form == 1 else mistyped(text, random)


def titled(text: str) -> str:
    """The text with every word capitalised."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


def mistyped(text: str, random: np.random.Generator) -> str:
    """The text with a letter left out, doubled or swapped in every CHARACTERS_PER_TYPO characters, at least once."""
    letters = list(text)
    for _ in range(max(1, len(letters) // CHARACTERS_PER_TYPO)):
        inner = [n for n in range(1, len(letters)) if letters[n].isalpha() and letters[n - 1].isalpha()]
        if not inner:
            break
        place = inner[random.integers(len(inner))]
        match random.integers(3):
            case 0:
                del letters[place]
            case 1:
                letters.insert(place, letters[place])
            case 2:
                letters[place - 1 : place + 1] = letters[place], letters[place - 1]
    return "".join(letters)
