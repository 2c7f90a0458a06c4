"""What is held out: exactly the sources with the smallest digests, found in bounded memory."""

import hashlib
import heapq
import random

import pytest

from nmt.data import holdout
from nmt.data.holdout import hold_out
from nmt.data.splits import Pair
from nmt.lines import is_blank


def by_definition(pairs: list[Pair], splits: list[str]) -> tuple[dict[str, list[Pair]], set[str]]:
    """The held-out pairs and sources, with all digests in memory."""
    digests = {
        hashlib.blake2b(source.encode(), digest_size=12).digest(): source
        for source, target in pairs
        if not (is_blank(source) or is_blank(target))
    }
    wanted = min(holdout.MAX_HELD_OUT, len(pairs) // 20) * len(splits)
    chosen = [digests[digest] for digest in heapq.nsmallest(min(wanted, len(digests) // 2), digests)]
    share = len(chosen) // len(splits)
    held: dict[str, list[Pair]] = {}
    for number, split in enumerate(splits):
        waiting = set(chosen[number * share : (number + 1) * share])
        held[split] = []
        for source, target in pairs:
            if source in waiting and not is_blank(target):
                waiting.remove(source)
                held[split].append((source, target))
    return held, set(chosen)


@pytest.mark.parametrize("splits", [["valid"], ["test"], ["valid", "test"]])
@pytest.mark.parametrize("sources", [0, 1, 2, 7, 60, 199, 200, 500, 3_000])
@pytest.mark.parametrize("most", [10, 1_000])
def test_as_by_definition(monkeypatch: pytest.MonkeyPatch, splits: list[str], sources: int, most: int) -> None:
    """With many or few different sources and some blank sides: the same pairs in the same order, the same sources."""
    monkeypatch.setattr(holdout, "MAX_HELD_OUT", most)
    draw = random.Random(sources)
    pairs = [
        (
            f"source {draw.randrange(sources)}" if sources and draw.random() < 0.9 else " ",
            draw.choice(["", "\u200b", "x", "y", f"{number}"]),
        )
        for number in range(2_000)
    ]
    assert hold_out(pairs, splits) == by_definition(pairs, splits)
