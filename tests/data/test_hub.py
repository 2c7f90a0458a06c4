"""Data sets in the hub's layout: the real `datasets` library on local folders, and the hub out of reach."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.data import corpus as corpora
from nmt.data.corpus import load
from nmt.errors import NmtError
from tests.conftest import Nmt
from tests.data.conftest import complaint, of_hub, splits

NOWHERE = "http://127.0.0.1:9"  # nothing listens there
# Settings of a developer's machine that would lead elsewhere; "" removes them from a process.
ELSEWHERE = ["HF_DATASETS_CACHE", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"]
ELSEWHERE += [name for proxy in ("http_proxy", "https_proxy", "all_proxy") for name in (proxy, proxy.upper())]


def columns(datasets: Any, folder: Path, split: str = "train", **texts: list[Any]) -> Path:
    """A folder with one parquet file."""
    folder.mkdir()
    datasets.Dataset.from_dict(texts).to_parquet(folder / f"{split}.parquet")
    return folder


@pytest.mark.parametrize("language", ["de", "fr"])
def test_a_configuration_gives_its_three_splits(hub_folder: Path, language: str) -> None:
    """FOLDER:CONFIG reads that configuration's `translation` column, `validation` as valid, in either direction."""
    text = [of_hub(language, count) for count in (4, 2, 1)]
    assert splits(load(f"{hub_folder}:{language}-en", "en", language)) == text
    swapped = [[(target, source) for source, target in split] for split in text]
    assert splits(load(f"{hub_folder}:{language}-en", language, "en")) == swapped


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


@pytest.mark.parametrize("config", ["", ":es-en"])
def test_a_configuration_that_is_none_lists_those_there_are(hub_folder: Path, config: str) -> None:
    """Where a data set has several configurations, none named and a wrong one are refused with the list of all."""
    message = complaint(f"{hub_folder}{config}")
    assert message.startswith(f"--data {hub_folder}{config}: ")
    assert [name for name in ("de-en", "fr-en") if name not in message] == []
    assert config or f"--data {hub_folder}:CONFIG" in message


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


def test_wmt14_is_counted(wmt14: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that is not all of WMT14 is refused with both counts, and the whole one passes under its name."""
    corpus = load("wmt14", "en", "de")
    assert (corpus.name, list(corpus.train)) == ("wmt14", of_hub("de", 4))
    for split, count in corpora.WMT14_COUNTS.items():
        monkeypatch.setattr(corpora, "WMT14_COUNTS", {"train": 4, "valid": 2, "test": 1} | {split: 4_508_785})
        with pytest.raises(NmtError, match=f"wmt14: {split} holds {count} pairs instead of 4,508,785") as error:
            load("wmt14", "en", "de")
        assert error.value.exit_code == 1


def test_wmt14_has_its_published_size() -> None:
    """Pairs of wmt/wmt14, de-en, as its card on the hub has them."""
    assert corpora.WMT14_COUNTS == {"train": 4_508_785, "valid": 3_000, "test": 3_003}


def test_out_of_reach_is_one_sentence(nmt: Nmt, tmp_path: Path) -> None:
    """Bare `nmt train` without a network exits 1 and names the data set, the embedded one, and a folder of one's own."""
    env = dict.fromkeys(ELSEWHERE, "") | {"HF_ENDPOINT": NOWHERE, "HF_HOME": str(tmp_path / "home")}
    done = nmt("train", cwd=tmp_path, **env)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b"")
    assert said.startswith("nmt: --data wmt/wmt14")
    assert said.count("\n") == 1
    assert [way for way in ("--data demo", "--data FOLDER", "train.en") if way not in said] == []


def test_a_folder_that_is_not_there_is_told_of(nmt: Nmt, tmp_path: Path) -> None:
    """N5: a slip in a folder's name looks like a name on the hub: both facts are told, the first before the hub is asked."""
    env = dict.fromkeys(ELSEWHERE, "") | {"HF_ENDPOINT": NOWHERE, "HF_HOME": str(tmp_path / "home")}
    asked, refused = nmt("train", "--data", "corpus/mine", cwd=tmp_path, **env).stderr.decode().splitlines()
    assert asked == (
        "warning: --data corpus/mine: no such folder here; asking the Hugging Face hub for a data set of that name"
    )
    assert refused.startswith(
        "nmt: --data corpus/mine: no such folder here, and the Hugging Face hub cannot be reached"
    )


def test_without_a_home_folder_none_is_made(tmp_path: Path, datasets: Any) -> None:
    """N10: a container's user without name and HOME gets one sentence that names HF_HOME, and no folder called ~."""
    columns(datasets, tmp_path / "plain", en=["a"], de=["A"])
    script = (
        "import pwd\ndef nobody(uid): raise KeyError(uid)\npwd.getpwuid = nobody\nfrom nmt.__main__ import main\nmain()"
    )
    command = [sys.executable, "-P", "-c", script, "train", "--data", str(tmp_path / "plain"), "-m", "model"]
    hidden = {"HOME", "HF_HOME", "XDG_CACHE_HOME", "NMT_CACHE", *ELSEWHERE}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    (tmp_path / "here").mkdir()
    done = subprocess.run(command, capture_output=True, cwd=tmp_path / "here", env=environment, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert re.fullmatch(
        r"nmt: --data \S+/plain: no copy of the data set can be kept in \S+ \(there is no home folder\); "
        r"set HOME or HF_HOME to a folder that can be written\n",
        done.stderr.decode(),
    )
    assert list((tmp_path / "here").iterdir()) == []


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """N10: as under HOME=/, which many containers set; not "the fetch failed; the same command tries again"."""
    folder = columns(datasets, tmp_path / "plain", en=["a"], de=["A"])
    (tmp_path / "file").touch()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "file" / "datasets")
    assert re.search(r"can be kept in \S+/file/datasets \(Not a directory\); set HOME or HF_HOME ", complaint(folder))
