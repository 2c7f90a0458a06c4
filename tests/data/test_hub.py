"""Data sets in the hub's layout: the real `datasets` library on local folders, and the hub out of reach."""

from pathlib import Path
from typing import Any

import pytest

from nmt.data import corpus as corpora
from nmt.data.corpus import Pair, load
from nmt.errors import NmtError, UsageError
from tests.conftest import Nmt

NOWHERE = "http://127.0.0.1:9"  # nothing listens there
# Settings of a developer's machine that would lead elsewhere; "" removes them from a process.
ELSEWHERE = ["HF_DATASETS_CACHE", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"]
ELSEWHERE += [name for proxy in ("http_proxy", "https_proxy", "all_proxy") for name in (proxy, proxy.upper())]


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library, with its cache inside tmp_path."""
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")  # load() sets it
    import datasets

    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return datasets


def rows(language: str, count: int) -> list[Any]:
    return [{"translation": {language: f"{language} {number}", "en": f"english {number}"}} for number in range(count)]


@pytest.fixture
def hub_folder(tmp_path: Path, datasets: Any) -> Path:
    """A data set with two configurations, laid out as WMT14's is on the hub: 4 training pairs, 2 valid, 1 test."""
    folder, card = tmp_path / "layout", "---\nconfigs:\n"
    for language in ("de", "fr"):
        card += f"- config_name: {language}-en\n  data_files:\n"
        for split, count in (("train", 4), ("validation", 2), ("test", 1)):
            path = f"{language}-en/{split}-00000-of-00001.parquet"
            card += f"  - split: {split}\n    path: {language}-en/{split}-*\n"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            features = datasets.Features({"translation": datasets.Translation([language, "en"])})
            datasets.Dataset.from_list(rows(language, count), features=features).to_parquet(folder / path)
    (folder / "README.md").write_text(card + "---\n")
    return folder


def columns(datasets: Any, folder: Path, split: str = "train", **texts: list[Any]) -> Path:
    """A folder with one parquet file."""
    folder.mkdir()
    datasets.Dataset.from_dict(texts).to_parquet(folder / f"{split}.parquet")
    return folder


def complaint(data: Path | str, source: str = "en", target: str = "de") -> str:
    """The one line that this data set is refused with."""
    with pytest.raises(UsageError) as error:
        load(str(data), source, target)
    assert "\n" not in str(error.value)
    return str(error.value)


def pairs(language: str, count: int) -> list[Pair]:
    return [(f"english {number}", f"{language} {number}") for number in range(count)]


@pytest.mark.parametrize("language", ["de", "fr"])
def test_a_configuration_gives_its_three_splits(hub_folder: Path, language: str) -> None:
    """FOLDER:CONFIG reads that configuration's `translation` column, `validation` as valid."""
    corpus = load(f"{hub_folder}:{language}-en", "en", language)
    assert [list(split or []) for split in (corpus.train, corpus.valid, corpus.test)] == [
        pairs(language, count) for count in (4, 2, 1)
    ]


def test_swapped_languages_reverse_the_pairs(hub_folder: Path) -> None:
    """The same data set serves both directions."""
    back = load(f"{hub_folder}:de-en", "de", "en").train
    assert list(back) == [(target, source) for source, target in pairs("de", 4)]


def test_a_column_per_language_is_read(tmp_path: Path, datasets: Any) -> None:
    """Columns named after the languages do as well; a cell without text is an empty line, for cleaning to count."""
    folder = columns(datasets, tmp_path / "plain", en=["a", None, "c"], de=["A", "B", "C"], id=[1, 2, 3])
    assert list(load(str(folder), "en", "de").train) == [("a", "A"), ("", "B"), ("c", "C")]


def test_a_cell_is_one_line(tmp_path: Path, datasets: Any) -> None:
    """A line break inside a cell becomes a space, so that held-out text written as lines stays in step."""
    folder = columns(datasets, tmp_path / "plain", en=["a\nb", "c\r\nd", "\n"], de=["A\n", "C\u2028D", "E"])
    text = list(load(str(folder), "en", "de").train)
    assert len(text) == 3
    assert not any("\n" in side for pair in text for side in pair)
    assert (text[0][0], text[1][1]) == ("a b", "C\u2028D")


def test_a_missing_configuration_lists_those_there_are(hub_folder: Path) -> None:
    """Where a data set has several configurations and none is named, all are listed, with the way to name one."""
    message = complaint(hub_folder)
    assert message.startswith(f"--data {hub_folder}")
    assert "de-en" in message
    assert "fr-en" in message


def test_a_wrong_configuration_lists_those_there_are(hub_folder: Path) -> None:
    """A configuration that does not exist is refused with the list of those that do."""
    message = complaint(f"{hub_folder}:es-en")
    assert [name for name in ("es-en", "de-en", "fr-en") if name not in message] == []


def test_a_wrong_language_lists_those_found(tmp_path: Path, datasets: Any, hub_folder: Path) -> None:
    """A language the data set lacks is refused with the languages, or columns, that it has."""
    assert "no text in 'fr'; languages found: de, en" in complaint(f"{hub_folder}:de-en", "en", "fr")
    plain = columns(datasets, tmp_path / "plain", en=["a"], de=["A"])
    assert "no text in 'fr'; languages found: en, de" in complaint(plain, "en", "fr")


def test_a_plain_column_called_translation_is_a_column(tmp_path: Path, datasets: Any) -> None:
    """Text in a column named `translation`, with no languages inside, is refused with the columns found."""
    folder = columns(datasets, tmp_path / "plain", en=["a"], translation=["A"])
    assert "no text in 'de'; languages found: en, translation" in complaint(folder)


def test_a_data_set_without_train_is_refused(tmp_path: Path, datasets: Any) -> None:
    """A data set of test text alone cannot be trained on, and its splits are listed."""
    folder = columns(datasets, tmp_path / "plain", "test", en=["a"], de=["A"])
    assert complaint(folder).endswith("no 'train' split; splits found: test")


def test_a_folder_without_data_is_refused(tmp_path: Path, datasets: Any) -> None:
    """An empty folder, and one of other files, are refused by name."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("x")
    (tmp_path / "empty").mkdir()
    for name in ("empty", "other"):
        assert complaint(tmp_path / name).startswith(f"--data {tmp_path / name}")


def test_a_table_of_text_keeps_its_quotes(tmp_path: Path, datasets: Any) -> None:
    """A train.tsv is read line by line or refused, never taken for quoted CSV, which would merge and lose pairs."""
    lines = [("en", "de"), ('"Hi', "Hallo"), ("NA", "NA"), ('b" c', "B")]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    read: list[Pair] = []
    message = ""
    try:
        read = list(load(str(tmp_path / "data"), "en", "de").train)
    except UsageError as error:
        message = str(error)
    assert read == lines[1:] or "train.tsv" in message


def test_wmt14_is_counted(hub_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that is not all of WMT14 is refused with both counts, and the whole one passes under its name."""
    monkeypatch.setattr(corpora, "WMT14", (str(hub_folder), "de-en"))
    with pytest.raises(NmtError, match="train holds 4 pairs instead of 4,508,785") as error:
        load("wmt14", "en", "de")
    assert error.value.exit_code == 1
    right = {"train": 4, "valid": 2, "test": 1}
    for split in ("valid", "test"):
        monkeypatch.setattr(corpora, "WMT14_COUNTS", right | {split: 3})
        with pytest.raises(NmtError, match=f"wmt14: {split} holds {right[split]} pairs instead of 3"):
            load("wmt14", "en", "de")
    monkeypatch.setattr(corpora, "WMT14_COUNTS", right)
    corpus = load("wmt14", "en", "de")
    assert (corpus.name, list(corpus.train)) == ("wmt14", pairs("de", 4))


def test_out_of_reach_is_one_sentence(nmt: Nmt, tmp_path: Path) -> None:
    """Bare `nmt train` without a network exits 1 and names the data set, the embedded one, and a folder of one's own."""
    env = dict.fromkeys(ELSEWHERE, "") | {"HF_ENDPOINT": NOWHERE, "HF_HOME": str(tmp_path / "home")}
    done = nmt("train", cwd=tmp_path, **env)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b"")
    assert said.startswith("nmt: --data wmt/wmt14")
    assert said.count("\n") == 1
    assert [way for way in ("--data demo", "--data FOLDER", "train.en") if way not in said] == []
