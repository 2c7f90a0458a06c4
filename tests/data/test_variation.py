"""Other forms of the training pairs: of the same text, drawn from the seed alone, in the shares asked for."""

from typing import Any

import numpy as np
import pytest

from nmt.config import TrainingConfig
from nmt.data.preparation import PreparedPairs, Side, encode
from nmt.data.variation import CHARACTERS_PER_TYPO, Variation, mistyped
from nmt.data.vocabulary import Vocabulary
from nmt.ids import RESERVED

TEXT = [("The old man has seen the house.", "Der alte Mann hat das Haus gesehen."), ("I am tired.", "Ich bin müde.")] * 500
MARK = 4 + len(RESERVED) - 1


def variation(vocabulary: Vocabulary, **settings: Any) -> Variation:
    found = Variation.of(vocabulary, TrainingConfig.model_validate(settings))
    assert found
    return found


def texts(vocabulary: Vocabulary, pairs: PreparedPairs) -> list[tuple[str, str]]:
    sides = [vocabulary.decode_all(side.sentences()) for side in (pairs.source, pairs.target)]
    return list(zip(*sides, strict=True))


def test_nothing_varies_by_default(vocabulary: Vocabulary) -> None:
    assert Variation.of(vocabulary, TrainingConfig()) is None


def test_bpe_dropout_cuts_the_same_text_into_more_pieces(vocabulary: Vocabulary) -> None:
    """A piece is cut further, never other text; a tenth of the merges skipped leaves most words whole."""
    pairs = encode(TEXT, vocabulary)[0]
    varied = variation(vocabulary, bpe_dropout=0.1).vary(pairs, [1, 0])
    assert texts(vocabulary, varied) == TEXT
    for before, after in ((pairs.source, varied.source), (pairs.target, varied.target)):
        assert len(before.ids) < len(after.ids) < 1.5 * len(before.ids)
    assert len({tuple(ids) for ids in varied.source.sentences()}) > 50  # of two different sentences


def test_every_merge_skipped_leaves_characters(vocabulary: Vocabulary) -> None:
    """Provilkov et al. 2020: with p = 1 the segmentation is one of characters; so nearly, with p next to 1."""
    pairs = encode(TEXT[:20], vocabulary)[0]
    varied = variation(vocabulary, bpe_dropout=0.999999).vary(pairs, [1])
    assert {len(piece) for ids in varied.source.sentences() for piece in vocabulary.pieces(ids)} == {1}


@pytest.mark.parametrize("settings", [{"bpe_dropout": 0.2}, {"typos": 0.5}, {"upper_case": 0.3, "bpe_dropout": 0.1}])
def test_forms_are_of_the_seed_alone(vocabulary: Vocabulary, settings: dict[str, float]) -> None:
    """Whatever was drawn before; another epoch has other forms."""
    pairs, one, other = encode(TEXT, vocabulary)[0], variation(vocabulary, **settings), variation(vocabulary, **settings)
    first = one.vary(pairs, [1, 0, 7])
    other.vary(pairs.take(np.arange(3)), [5])
    again = other.vary(pairs, [1, 0, 7])
    assert np.array_equal(first.source.ids, again.source.ids)
    assert np.array_equal(first.target.ids, again.target.ids)
    assert not np.array_equal(one.vary(pairs, [1, 1, 7]).source.ids, first.source.ids)


def test_shares_of_case_and_typos(vocabulary: Vocabulary) -> None:
    """Case changes on both sides together, typing errors on the source alone; the rest is as it was."""
    pairs = encode(TEXT, vocabulary)[0]
    varied = texts(vocabulary, variation(vocabulary, upper_case=0.1, title_case=0.2, typos=0.3).vary(pairs, [1]))
    kinds = {"upper": 0, "title": 0, "typos": 0, "plain": 0}
    for old, new in zip(TEXT, varied, strict=True):
        if new == old:
            kinds["plain"] += 1
        elif new == (old[0].upper(), old[1].upper()):
            kinds["upper"] += 1
        elif new[0] in ("The Old Man Has Seen The House.", "I Am Tired."):
            assert new[1] in ("Der Alte Mann Hat Das Haus Gesehen.", "Ich Bin Müde.")
            kinds["title"] += 1
        else:
            assert new[1] == old[1]
            kinds["typos"] += 1
    for kind, share in {"upper": 0.1, "title": 0.2, "typos": 0.3, "plain": 0.4}.items():
        assert kinds[kind] == pytest.approx(1_000 * share, abs=5 * np.sqrt(1_000 * share * (1 - share))), kinds


def test_marks_stay_in_front_and_long_forms_are_not_used(vocabulary: Vocabulary) -> None:
    """A reserved id is no text. Where the pieces drawn would be over max_pieces, the pair keeps its own."""
    plain = encode(TEXT[:10], vocabulary)[0]
    marked = PreparedPairs(Side.of([[MARK, *ids] for ids in plain.source.sentences()], "<u2"), plain.target)
    varied = variation(vocabulary, bpe_dropout=0.9).vary(marked, [1])
    assert {ids[0] for ids in varied.source.sentences()} == {MARK}
    assert texts(vocabulary, varied) == TEXT[:10]
    longest = int(plain.target.lengths.max())
    kept = variation(vocabulary, bpe_dropout=0.9, max_pieces=longest).vary(plain, [1])
    assert kept.target.lengths.max() == longest


def test_a_typing_error_in_every_so_many_letters() -> None:
    random = np.random.default_rng(1)
    text = "the quick brown fox jumps over the lazy dog " * 10
    typed = mistyped(text, random)
    assert typed != text
    assert abs(len(typed) - len(text)) <= len(text) // CHARACTERS_PER_TYPO
    assert mistyped("12 34 !", random) == "12 34 !"  # nothing to mistype
    assert mistyped("", random) == ""
