"""Which pairs are dropped: facts noted once agree with a judgement pair by pair."""

import itertools

import numpy as np
import pytest

from nmt.config import TrainingConfig
from nmt.data.cleaning import (
    CleaningReport,
    copies_letterless,
    digest_of,
    dropping,
    facts_of,
    mark_repeated,
    report_of,
)
from nmt.data.splits import Pair
from tests.data.conftest import usable

TEXTS = ["", " ", "\u200b", "\x00", "a", "b", "a\tb", "\u2028"]
PAIRS: list[Pair] = [*itertools.product(TEXTS, TEXTS), *itertools.product(TEXTS[3:], TEXTS[2:])]


def facts(pairs: list[Pair]) -> np.ndarray:
    found = np.array([facts_of(*pair) for pair in pairs], np.uint16)
    mark_repeated(found, np.frombuffer(b"".join(digest_of(*pair) for pair in pairs), np.uint64))
    return found


@pytest.mark.parametrize("identical", [False, True])
@pytest.mark.parametrize("duplicates", [False, True])
def test_facts_drop_what_judging_pair_by_pair_drops(identical: bool, duplicates: bool) -> None:
    settings = TrainingConfig(drop_identical=identical, drop_duplicates=duplicates)
    report = CleaningReport()
    kept = list(usable(PAIRS, settings, report))
    found = facts(PAIRS)
    assert [pair for pair, fact in zip(PAIRS, found, strict=True) if not fact & dropping(settings)] == kept
    assert report_of(found, dropping(settings)) == report
    assert report.kept == len(kept)


@pytest.mark.parametrize(
    ("pairs", "copies"),
    [
        ([("12", "zwölf")], False),
        ([("12", "12")], True),
        ([("he", "⠓⠑")] * 5, None),
        ([("3", "drei"), *[("a", "b")] * 99], False),
        ([("3", "drei"), *[("a", "b")] * 100], None),  # perhaps a mistake
        ([("", "a"), ("-", ""), ("a", "b")], None),  # useless for training
    ],
)
def test_sources_without_a_letter_are_copied_or_not(pairs: list[Pair], copies: bool | None) -> None:
    """N44: the majority of the training text decides, if at least one pair in a hundred has such a source."""
    found = [copies_letterless(facts(pairs), usual) for usual in (True, False)]
    assert found == ([True, False] if copies is None else [copies, copies])
