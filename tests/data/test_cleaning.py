"""Which pairs are dropped, and for what reason they are counted: noted once, or judged one by one, the same."""

import itertools

import numpy as np
import pytest

from nmt.config import TrainingConfig
from nmt.data import cleaning
from nmt.data.cleaning import (
    REPEATED,
    CleaningReport,
    copies_letterless,
    digest_of,
    dropping,
    facts_of,
    mark_repeated,
    report_of,
)
from nmt.data.encoding import Encoder
from nmt.data.prepared import prepare
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary
from tests.data.conftest import NOISE, usable

TEXTS = ["", " ", "\u200b", "\x00", "a", "b", "a\tb", "\u2028"]
PAIRS: list[Pair] = [*itertools.product(TEXTS, TEXTS), *itertools.product(TEXTS[3:], TEXTS[2:])]


def facts(pairs: list[Pair]) -> np.ndarray:
    found = np.array([facts_of(*pair) for pair in pairs], np.uint8)
    digests = b"".join(digest_of(f"{source}\n{target}\n".encode()) for source, target in pairs)
    mark_repeated(found, np.frombuffer(digests, np.uint64))
    return found


@pytest.mark.parametrize("identical", [False, True])
@pytest.mark.parametrize("duplicates", [False, True])
def test_facts_drop_what_judging_pair_by_pair_drops(identical: bool, duplicates: bool) -> None:
    """For any settings, the facts keep the same pairs as `usable`, and count the same reasons."""
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
        ([("⠓⠑", "he")], False),
        ([("he", "⠓⠑")] * 5, None),
        ([("1 2", "1 2"), ("3", "drei"), ("4", "vier")], False),
        ([("1 2", "1 2"), ("3", "3"), ("4", "vier")], True),
        ([("3", "drei"), *[("a", "b")] * 99], False),
        ([("3", "drei"), *[("a", "b")] * 100], None),  # a mistake, perhaps
        ([("", "a"), ("-", ""), ("a", "b")], None),  # of no use to training
        ([("<p>", "der Absatz"), ("(a)", "(a)")], False),
        ([], None),
    ],
)
def test_sources_without_a_letter_are_copied_or_not(pairs: list[Pair], copies: bool | None) -> None:
    """N44: as most of them are in the training text; where fewer than one pair in a hundred has one, that tells nothing."""
    assert copies_letterless(facts(pairs)) is copies


@pytest.mark.parametrize("buckets", [1, 3, 16])
def test_repetitions_are_all_but_the_first(monkeypatch: pytest.MonkeyPatch, buckets: int) -> None:
    """Of equal digests each but the first is marked, as a set of those seen would have it, and no other."""
    monkeypatch.setattr(cleaning, "BUCKETS", buckets)
    digests = np.random.default_rng(1).integers(0, 500, 2_000).astype(np.uint64)
    found = np.zeros(2_000, np.uint8)
    mark_repeated(found, digests)
    expected = [digest in digests[:number] for number, digest in enumerate(digests)]
    assert (found == REPEATED).tolist() == expected


def test_nothing_is_no_repetition() -> None:
    """A corpus of no pairs, and of one, has none."""
    for count in (0, 1):
        found = np.zeros(count, np.uint8)
        mark_repeated(found, np.zeros(count, np.uint64))
        assert not found.any()


def cleaned(pairs: list[Pair], vocabulary: Vocabulary, **settings: bool) -> tuple[CleaningReport, int]:
    """The report of both filters, and the number of pairs that came through them."""
    config, report = TrainingConfig.model_validate(settings), CleaningReport()
    return report, len(prepare(usable(pairs, config, report), Encoder(vocabulary, 256, 3.0), report))


NOISY = [("Hello .", "Hallo ."), *NOISE, ("Hello .", "Hallo .")]


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, {}),
        ({"drop_identical": True}, {"with identical sides": 1}),
        ({"drop_duplicates": True}, {"seen before": 1}),
        ({"drop_identical": True, "drop_duplicates": True}, {"with identical sides": 1, "seen before": 1}),
    ],
)
def test_each_dropped_pair_is_counted_under_its_reason(
    vocabulary: Vocabulary, settings: dict[str, bool], more: dict[str, int]
) -> None:
    """Read is kept plus dropped, by reason; identical sides and repetitions are dropped on request alone."""
    report, kept = cleaned(NOISY, vocabulary, **settings)
    always = ("with an empty source", "with an empty target", "over 256 pieces", "with a length ratio over 3")
    assert dict(report.dropped) == dict.fromkeys(always, 1) | more
    assert (report.read, report.kept) == (8, kept) == (8, 4 - len(more))
    assert report.control_characters == 1


def test_a_repetition_is_of_both_sides() -> None:
    """A source with another translation, and a target of another source, are no duplicates."""
    pairs = [("a", "A"), ("a", "B"), ("c", "A"), ("a", "A")]
    assert list(usable(pairs, TrainingConfig(drop_duplicates=True), CleaningReport())) == pairs[:3]


def test_the_report_reads_as_one_line(vocabulary: Vocabulary) -> None:
    """What a person sees holds what was read, kept and dropped, the reasons, and the control characters."""
    report, _ = cleaned([*NOISY, ("", "y")], vocabulary)
    assert str(report) == (
        "read 9 pairs, kept 4, dropped 5: 2 with an empty source, 1 with an empty target, "
        "1 with a length ratio over 3, 1 over 256 pieces; control characters became spaces in 1"
    )
    assert str(CleaningReport(read=1_000)) == "read 1,000 pairs, kept 1,000, dropped 0"
