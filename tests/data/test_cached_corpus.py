"""A corpus in the cache: the same as without it, not read again, and never that of other text."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config import TrainingConfig
from nmt.data import corpus as corpora
from nmt.data import folders, preparation
from nmt.data import splits as split_module
from nmt.data.cache import Cache
from nmt.data.corpus import Corpus, load
from nmt.data.preparation import learn_vocabulary, prepare_corpus
from tests.conftest import write_corpus
from tests.data.conftest import NOISE, WriteRows, of_hub, splits

CONFIG = TrainingConfig(vocab_size=500)


def same_corpus(one: Corpus, other: Corpus) -> bool:
    counts = [{name: (split.count, split.sha256) for name, split in corpus.splits.items()} for corpus in (one, other)]
    return (
        counts[0] == counts[1]
        and splits(one) == splits(other)
        and (one.name, one.notes, one.key) == (other.name, other.notes, other.key)
        and np.array_equal(one.facts, other.facts)
    )


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, a pass over the training text is a failure."""

    def read(*_: Any) -> Any:
        raise AssertionError("the text was read")

    monkeypatch.setattr(corpora, "_measure", read)
    monkeypatch.setattr(Corpus, "usable", read)
    monkeypatch.setattr(preparation, "learn", read)


@pytest.mark.parametrize("given", [False, True])
def test_a_cached_corpus_is_the_corpus(data: Path, cache: Cache, given: bool) -> None:
    """From the cache it has the same splits, counts, fingerprints, notes and facts, whether text is held out or given."""
    if given:
        write_corpus(data, valid=NOISE, test=[("t", "T")])
    plain, first, again = (load(str(data), "en", "de", *place) for place in ((), (cache,), (cache,)))
    assert same_corpus(plain, first)
    assert same_corpus(plain, again)
    assert plain.splits["valid"].count == (len(NOISE) if given else 60)


def test_a_cached_corpus_is_not_read(data: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache, a run gets its ids and its held-out text without a pass over the training text."""
    corpus = load(str(data), "en", "de", cache)
    vocabulary = learn_vocabulary(corpus, CONFIG, cache)
    first = prepare_corpus(corpus, vocabulary, CONFIG, cache)
    forbid_reading(monkeypatch)
    again = load(str(data), "en", "de", cache)
    assert again.clean(CONFIG) == corpus.clean(CONFIG)
    assert splits(again)[1:] == splits(corpus)[1:]
    assert learn_vocabulary(again, CONFIG, cache).model == vocabulary.model
    assert prepare_corpus(again, vocabulary, CONFIG, cache) == first


def test_changed_bytes_are_another_corpus(data: Path, cache: Cache) -> None:
    """A file rewritten with other text of the same size and time is read anew; the old text is still in the cache."""
    path = data / "train.de"
    before, times = path.read_text(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    first = load(str(data), "en", "de", cache)
    train = list(first.train)
    path.write_text(before.swapcase())
    os.utime(path, ns=times)
    changed = load(str(data), "en", "de", cache)
    assert changed.key != first.key
    assert list(changed.train) == [(source, target.swapcase()) for source, target in train]
    path.write_text(before)
    again = load(str(data), "en", "de", cache)
    assert (again.key, list(again.train)) == (first.key, train)


def test_direction_form_and_split_are_in_the_key(tmp_path: Path) -> None:
    """The same bytes in the other direction, as another format or as another split are another corpus."""
    one, two = [("a", "A")], [("b", "B")]
    write_corpus(tmp_path / "plain", train=one, valid=two, test=one)
    write_corpus(tmp_path / "other", train=one, valid=one, test=two)
    (tmp_path / "x.tsv").write_text("{}\t{}\n")
    (tmp_path / "x.jsonl").write_text('{"en": "a", "de": "b"}\n')
    (tmp_path / "y.tsv").write_text('{"en": "a", "de": "b"}\tx\n')
    keys = {
        load(str(tmp_path / name), *languages).key
        for name in ("plain", "other", "x.tsv", "x.jsonl", "y.tsv")
        for languages in (("en", "de"), ("de", "en"))
    }
    assert len(keys) == 10


def test_the_hubs_layout_is_cached_by_content(
    wmt14: Path, write_rows: WriteRows, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parquet file rewritten in place is another corpus; the old bytes are not read again."""
    first = load("wmt14", "en", "de", cache)
    path = wmt14 / "train-00000-of-00001.parquet"
    before, rows = path.read_bytes(), [(source, target.upper()) for source, target in of_hub("de", 4)]
    write_rows(path, "de", rows)
    changed = load("wmt14", "en", "de", cache)
    assert list(changed.train) == rows
    assert changed.key != first.key
    path.write_bytes(before)
    forbid_reading(monkeypatch)
    assert load("wmt14", "en", "de", cache).key == first.key


def test_a_new_corpus_is_read_once_per_use_and_hashed_once(data: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four passes over the text: what to hold out, counts and facts, the BPE's sample, and the ids."""
    opened: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        function = getattr(module, name)

        def counting(path: Path) -> Any:
            opened[f"{name} {path.name}"] += 1
            return function(path)

        monkeypatch.setattr(module, name, counting)

    count(folders, "read_lines")
    count(split_module, "sha256_of")
    corpus = load(str(data), "en", "de", cache)
    prepare_corpus(corpus, learn_vocabulary(corpus, CONFIG, cache), CONFIG, cache)
    files = ("train.en", "train.de")
    assert opened == {f"read_lines {name}": 4 for name in files} | {f"sha256_of {name}": 1 for name in files}
