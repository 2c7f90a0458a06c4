"""How much held-out text stands in the training text: counted by side, told in a sentence, and never the end of a run."""

import json
import pwd
import signal
from pathlib import Path
from typing import Any

import pytest

from nmt.config import TrainingConfig
from nmt.data import overlap, preparation
from nmt.data.cache import Cache
from nmt.data.corpus import load
from nmt.data.preparation import describe, prepare_corpus
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary
from tests.conftest import write_corpus

CONFIG = TrainingConfig()


def test_overlap_is_counted_and_nothing_is_dropped(tmp_path: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """N14: held-out lines in the training text are counted by side, lines and pairs apart; case, white space and Unicode form
    make no difference."""
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
    prepared = prepare_corpus(corpus, vocabulary, CONFIG, cache)
    assert prepared.overlap == {
        "valid": {"lines": 5, "source": {"lines": 3, "pairs": 3}, "target": {"lines": 1, "pairs": 1}},
        "test": {"lines": 1, "source": {"lines": 0, "pairs": 0}, "target": {"lines": 1, "pairs": 1}},
    }
    assert len(prepared.pairs) == 5
    assert prepared.notes[0].startswith("valid: of its 5 lines 3 sources and 1 targets stand in the training text too")
    assert json.loads(json.dumps(describe(corpus, prepared)))["overlap"] == prepared.overlap


def test_newstest2012_is_compared_with_wmt14_alone(
    wmt14: Path, data: Path, cache: Cache, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where sacrebleu has the test set it is counted like valid and test; a folder of one's own asks for nothing."""
    asked: list[tuple[str, str]] = []

    def fetched(source: str, target: str) -> list[Pair]:
        asked.append((source, target))
        return [("English 1", "x"), ("unseen", "y")]

    monkeypatch.setattr(preparation, "newstest2012", fetched)
    mine = data.rename(data.with_name("wmt14"))
    prepare_corpus(load(str(mine), "en", "de", cache), vocabulary, CONFIG, cache)
    assert asked == []
    prepared = prepare_corpus(load("wmt14", "en", "de", cache), vocabulary, CONFIG, cache)
    assert asked == [("en", "de")]
    assert prepared.overlap["newstest2012"] == {
        "lines": 2,
        "source": {"lines": 1, "pairs": 1},
        "target": {"lines": 0, "pairs": 0},
    }


def test_without_newstest2012_it_is_said(
    wmt14: Path, cache: Cache, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline, the comparison is left out with one line, now and when the pairs come from the cache, and no error."""
    monkeypatch.setattr(preparation, "newstest2012", lambda *_: "<urlopen error>")
    corpus = load("wmt14", "en", "de", cache)
    for _ in range(2):
        prepared = prepare_corpus(corpus, vocabulary, CONFIG, cache)
        assert set(prepared.overlap) == {"valid", "test"}
        assert [note for note in prepared.notes if "newstest2012" in note and "<urlopen error>" in note]


def test_without_a_home_folder_newstest2012_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """N10: sacrebleu would keep it in a folder called ~."""
    import sacrebleu.utils

    def nobody(_uid: int) -> None:
        raise KeyError

    for name in ("HOME", "SACREBLEU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(sacrebleu.utils, "get_files", lambda *_: pytest.fail("asked for the files"))
    assert "home" in overlap.newstest2012("en", "de")


@pytest.mark.parametrize("failure", [OSError("unreachable"), SystemExit(1), None])
def test_newstest2012_never_ends_a_run(monkeypatch: pytest.MonkeyPatch, failure: BaseException | None) -> None:
    """Errors of the network, sacrebleu's own exit and silence are each one reason in words."""
    import sacrebleu.utils

    def get_files(*_: Any) -> list[str]:
        if failure:
            raise failure
        signal.sigtimedwait([], 5)
        return []

    monkeypatch.setattr(sacrebleu.utils, "get_files", get_files)
    monkeypatch.setattr(overlap, "PATIENCE", 0.1)
    said = overlap.newstest2012("en", "de")
    assert isinstance(said, str)
    assert said


def test_newstest2012_is_read_from_sacrebleus_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that sacrebleu names are the pairs, in the run's direction."""
    import sacrebleu.utils

    (tmp_path / "src").write_text("one\ntwo\n")
    (tmp_path / "ref").write_text("eins\nzwei\n")
    asked: list[tuple[str, str]] = []

    def get_files(*names: str) -> list[str]:
        asked.append(names)  # type: ignore[arg-type]
        return [str(tmp_path / "src"), str(tmp_path / "ref"), "more"]

    monkeypatch.setattr(sacrebleu.utils, "get_files", get_files)
    assert overlap.newstest2012("en", "de") == [("one", "eins"), ("two", "zwei")]
    assert asked == [("wmt12", "en-de")]
