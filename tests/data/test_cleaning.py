"""What is noted of each pair once, and that it drops the same pairs as judging them one by one."""

import itertools

import numpy as np
import pytest

from nmt.config import TrainingConfig
from nmt.data import cleaning
from nmt.data.cleaning import REPEATED, CleaningReport, digest_of, dropping, facts_of, mark_repeated, report_of, usable
from nmt.data.splits import Pair

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
