"""Shared by the tests of data: refused corpora, a noisy corpus, an own cache, and data sets in the hub's layout."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.config import TrainingConfig
from nmt.data import corpus as corpora
from nmt.data.cache import Cache
from nmt.data.cleaning import CONTROLS, REASONS, REPEATED, CleaningReport, dropping, facts_of
from nmt.data.corpus import Corpus, load
from nmt.data.splits import NAMES, Pair
from nmt.errors import UsageError
from tests.conftest import write_corpus

WriteRows = Callable[[Path, str, list[Pair]], None]

# A pair for each filter, and a last one with a control character, which is kept.
NOISE: list[Pair] = [("", "x"), ("y", " "), ("x", "word " * 20), ("Same .", "Same ."), ("w " * 300, "W " * 300)]
NOISE += [("a\tb", "c")]


def usable(pairs: Iterable[Pair], settings: TrainingConfig, report: CleaningReport) -> Iterator[Pair]:
    """An independent judge of pairs, one by one: yields those to keep and counts the others in the report."""
    drops = dropping(settings)
    seen: set[Pair] = set()
    for source, target in pairs:
        facts = facts_of(source, target)
        if settings.drop_duplicates:
            facts |= REPEATED if (source, target) in seen else 0
            seen.add((source, target))
        report.read += 1
        if reason := next((reason for fact, reason in REASONS.items() if facts & drops & fact), None):
            report.dropped[reason] += 1
            continue
        report.control_characters += bool(facts & CONTROLS)
        yield source, target


def complaint(data: Path | str, source: str = "en", target: str = "de", cache: Cache | None = None) -> str:
    """The sentence with which this corpus is refused."""
    with pytest.raises(UsageError) as error:
        load(str(data), source, target, cache)
    return str(error.value)


def splits(corpus: Corpus) -> list[list[Pair]]:
    """The pairs of train, valid and test."""
    return [list(corpus.splits.get(name, [])) for name in NAMES]


def numbered(count: int) -> list[Pair]:
    return [(f"sentence {number}", f"Satz {number}") for number in range(count)]


@pytest.fixture
def data(tmp_path: Path, demo_pairs: list[Pair]) -> Path:
    """A folder of 1,212 training pairs. Each filter drops some, and some occur more than once."""
    return write_corpus(tmp_path / "data", train=[*demo_pairs[:600], *NOISE, *demo_pairs[300:900], *NOISE])


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache([tmp_path / "cache"])


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library `datasets`, with its cache inside tmp_path."""
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")  # load() sets it
    import datasets

    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "huggingface")
    return datasets


@pytest.fixture
def write_rows(datasets: Any) -> WriteRows:
    """Writes pairs of English and another language to a parquet file, in a `translation` column."""

    def write(path: Path, language: str, pairs: list[Pair]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        features = datasets.Features({"translation": datasets.Translation([language, "en"])})
        rows = [{"translation": {language: target, "en": source}} for source, target in pairs]
        datasets.Dataset.from_list(rows, features=features).to_parquet(path)

    return write


def of_hub(language: str, count: int) -> list[Pair]:
    """The text of `hub_folder`."""
    return [(f"english {number}", f"{language} {number}") for number in range(count)]


@pytest.fixture
def hub_folder(tmp_path: Path, write_rows: WriteRows) -> Path:
    """A data set with two configurations, laid out as WMT14 is on the hub: 4 training pairs, 2 valid, 1 test."""
    folder, card = tmp_path / "layout", "---\nconfigs:\n"
    for language in ("de", "fr"):
        card += f"- config_name: {language}-en\n  data_files:\n"
        for split, count in (("train", 4), ("validation", 2), ("test", 1)):
            card += f"  - split: {split}\n    path: {language}-en/{split}-*\n"
            path = folder / f"{language}-en" / f"{split}-00000-of-00001.parquet"
            write_rows(path, language, of_hub(language, count))
    (folder / "README.md").write_text(card + "---\n")
    return folder


@pytest.fixture
def wmt14(hub_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the data files of `hub_folder`, which stands in for WMT14."""
    monkeypatch.setattr(corpora, "WMT14", (str(hub_folder), "de-en"))
    monkeypatch.setattr(corpora, "WMT14_COUNTS", {"train": 4, "valid": 2, "test": 1})
    return hub_folder / "de-en"
