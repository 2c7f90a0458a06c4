"""Pairs that look wrong: each sign is seen where it is, and good text passes."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nmt.config import TrainingConfig
from nmt.data.corpus import load
from nmt.data.misfits import (
    COPIED,
    FOREIGN,
    LENGTHS,
    LOOPING,
    MARKUP,
    MISFITS,
    NUMBERS,
    Judge,
    judged,
    mark_lengths,
    misfits_note,
    pardon_the_usual,
    unaligned,
)
from nmt.data.splits import Pair
from tests.conftest import write_corpus
from tests.runs import train

GOOD: list[Pair] = [
    ("Two men are playing football in the rain.", "Zwei Männer spielen im Regen Fußball."),
    ("See page 12.", "Siehe Seite 12."),
    ("It is half past two.", "Es ist 2:30 Uhr."),  # a number may be spelled out on one side
    ("New York", "New York"),
    ("OK", "In Ordnung"),
    ("Ha ha ha ha ha ha ha ha!", "Hi hi hi hi hi hi hi hi!"),  # on both sides
    ("/usr/bin/python3 --version", "/usr/bin/python3 --version"),
    ("", ""),
]
BAD = [
    (COPIED, ("The old man has seen the house.", "The old man has seen the house.")),
    (FOREIGN, ("Der alte Mann hat das Haus gesehen.", "Der alte Mann sah dieses Haus am Abend.")),
    (FOREIGN, ("The old man has seen the house.", "He saw that very house in the evening.")),
    (FOREIGN, ("The old man has seen the house.", "Le vieil homme a vu la maison hier dans la soirée.")),
    (LOOPING, ("The old man has seen the house.", "Der Mann hat das Haus das Haus das Haus das Haus das Haus.")),
    (NUMBERS, ("In 1987 there were 24 of them.", "Im Jahr 1978 waren es 42.")),
    (MARKUP, ("It&apos;s the man&apos;s house.", "Es ist das Haus des Mannes.")),
    (MARKUP, ("The man has a house .", "Der Mann hat ein Haus.")),
    (MARKUP, ("The man has a ho@@ use.", "Der Mann hat ein Haus.")),
]


@pytest.mark.parametrize(("sign", "pair"), BAD)
def test_each_sign_is_seen(sign: int, pair: Pair) -> None:
    assert Judge("en", "de").signs_of(*pair) & sign
    assert MISFITS[sign]


def test_good_pairs_pass(demo_pairs: list[Pair]) -> None:
    """Short ones and names too; of the demo corpus all."""
    judge = Judge("en", "de")
    assert [pair for pair in GOOD if judge.signs_of(*pair)] == []
    assert not judged(demo_pairs, "en", "de").any()


def test_languages_that_are_unknown_are_not_judged() -> None:
    """A code of which the library has no model, with or without a region."""
    pair = ("Der alte Mann hat das Haus gesehen.", "Der alte Mann sah dieses Haus am Abend.")
    assert Judge("en-GB", "de_AT").signs_of(*pair) == FOREIGN
    assert Judge("en", "tlh").signs_of(*pair) == 0


def test_lengths_are_measured_by_the_corpuss_own_ratio() -> None:
    """A language that needs half the characters is no fault; twice the usual ratio is."""
    characters = np.array([[100, 50 + n] for n in range(-10, 11)] + [[100, 200], [100, 10], [3, 6]], np.int32)
    facts = np.zeros(len(characters), np.uint16)
    mark_lengths(facts, characters)
    assert np.flatnonzero(facts == LENGTHS).tolist() == [21, 22]
    mark_lengths(np.zeros(0, np.uint16), np.zeros((0, 2), np.int32))


def test_what_is_usual_in_a_corpus_is_no_misfit() -> None:
    """More than a fifth of the pairs: a tokenised corpus is not thrown away."""
    facts = np.array([MARKUP] * 21 + [NUMBERS] * 20 + [0] * 59, np.uint16)
    assert pardon_the_usual(facts) == [MISFITS[MARKUP]]
    assert facts.tolist() == [0] * 21 + [NUMBERS] * 20 + [0] * 59


def test_the_note_adds_up() -> None:
    facts = np.array([MARKUP | NUMBERS, NUMBERS, *[0] * 98], np.uint16)
    note = misfits_note(facts)
    assert note.startswith("of 100 pairs looked at, 2.0% look wrong: 2.0% with other numbers, 1.0% escaped, ")
    assert "clean = true" in note
    assert misfits_note(facts[2:]) == ""


def test_shifted_sides_are_noticed(demo_pairs: list[Pair]) -> None:
    """One line lost at the top; nothing is said of few pairs or of equal lengths."""
    shifted = [(pair[0], other[1]) for pair, other in pairwise(demo_pairs)]
    assert unaligned(shifted)
    assert not unaligned(demo_pairs)
    assert not unaligned(shifted[:50])
    assert not unaligned([("a", "b")] * 200)


def test_clean_drops_and_counts_and_a_sample_is_told_of(corpus: Path, demo_pairs: list[Pair], tmp_path: Path) -> None:
    """By reason; without the setting nothing is dropped, and the share of a sample is said."""
    bad = [pair for _, pair in BAD]
    data = write_corpus(tmp_path / "noisy", train=[*demo_pairs[:200], *bad], valid=demo_pairs[200:203])
    settings = TrainingConfig(clean=True)
    report = load(str(data), "en", "de", clean=True).clean(settings)
    assert (report.read, report.kept) == (209, 200)
    assert report.dropped["in another language"] == 3  # the copied one is counted as copied
    assert "1 with a sentence copied" in str(report)
    told = train(tmp_path / "model", data)
    assert "of 209 pairs looked at, 4.3% look wrong" in told.stderr
    assert "kept 209" in told.stderr
    done = train(tmp_path / "cleaned", data, clean=True)
    assert "kept 200, dropped 9" in done.stderr
    assert json.loads((tmp_path / "cleaned" / "config.json").read_text())["data"]["kept"] == 200
