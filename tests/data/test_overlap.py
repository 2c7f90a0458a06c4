"""How much held-out text occurs in the training text: counted by side, and reported in a sentence."""

from pathlib import Path
from typing import Any

import pytest

from nmt.config import TrainingConfig
from nmt.data import preparation
from nmt.data.cache import Cache
from nmt.data.corpus import load
from nmt.data.preparation import prepare_corpus
from nmt.data.vocabulary import Vocabulary
from tests.conftest import write_corpus

CONFIG = TrainingConfig()


def test_overlap_is_counted_and_nothing_is_dropped(tmp_path: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """N14: by side, lines and pairs apart. Case, white space and Unicode form make no difference."""
    train = [
        ("Hello  World .", "x"),
        ("hello world .", "y"),
        ("a good day .", "GUTEN\u00a0Tag ."),
        ("zu\u0308rich .", "Z\u00dcRICH"),
        ("", "guten tag ."),
        ("z", "Z"),
    ]
    valid = [("hello world .", "Hallo Welt ."), ("HELLO WORLD .", "Hallo ."), ("new", "neu"), ("", "")]
    valid += [("Z\u00fcrich .", "ZU\u0308RICH")]
    test = [("good day .", "guten tag .")]
    corpus = load(str(write_corpus(tmp_path / "data", train=train, valid=valid, test=test)), "en", "de", cache)
    _, report, facts = prepare_corpus(corpus, vocabulary, CONFIG, cache)
    assert facts["overlap"] == {
        "valid": {"lines": 5, "source": {"lines": 3, "pairs": 3}, "target": {"lines": 1, "pairs": 1}},
        "test": {"lines": 1, "source": {"lines": 0, "pairs": 0}, "target": {"lines": 1, "pairs": 1}},
    }
    assert report.kept == 5
    assert "valid: of its 5 lines, 3 sources and 1 targets also occur in the training text" in facts["notes"][0]


@pytest.mark.parametrize("fetched", [[("English 1", "x"), ("unseen", "y")], "<urlopen error>"])
def test_newstest2012_is_compared_with_wmt14_alone(
    wmt14: Path, data: Path, cache: Cache, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, fetched: Any
) -> None:
    """If sacreBLEU has it, it counts like valid and test, else a note says why not. The user's own text needs no fetch."""
    asked: list[tuple[str, ...]] = []

    def fetch(*languages: str) -> Any:
        asked.append(languages)
        return fetched

    monkeypatch.setattr(preparation, "newstest2012", fetch)
    mine = data.rename(data.with_name("wmt14"))
    prepare_corpus(load(str(mine), "en", "de", cache), vocabulary, CONFIG, cache)
    assert asked == []
    for _ in range(2):  # the second one from the cache
        facts = prepare_corpus(load("wmt14", "en", "de", cache), vocabulary, CONFIG, cache)[2]
        assert asked == [("en", "de")]
        found = {"source": {"lines": 1, "pairs": 1}, "target": {"lines": 0, "pairs": 0}}
        assert facts["overlap"].get("newstest2012") == (None if isinstance(fetched, str) else {"lines": 2} | found)
        assert any("newstest2012" in note for note in facts["notes"])
