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
    """FOLDER:CONFIG reads the `translation` column of that configuration."""
    text = [of_hub(language, count) for count in (4, 2, 1)]
    assert splits(load(f"{hub_folder}:{language}-en", "en", language)) == text


def test_a_column_per_language_is_read(tmp_path: Path, datasets: Any) -> None:
    """A missing text is an empty line, which cleaning counts. A line break inside a text is a space."""
    folder = columns(datasets, tmp_path / "plain", en=["a\nb", None, "c"], de=["A\n", "B", "C\u2028D"], id=[1, 2, 3])
    assert list(load(str(folder), "en", "de").train) == [("a b", "A "), ("", "B"), ("c", "C\u2028D")]


def test_what_cannot_be_trained_on_is_named(tmp_path: Path, datasets: Any, hub_folder: Path) -> None:
    """A wrong configuration, language or split lists those found, and a column of numbers is refused."""
    for config in ("", ":es-en"):
        assert re.search("de-en.*fr-en", complaint(f"{hub_folder}{config}"))
    assert "no text in 'fr'; languages found: de, en" in complaint(f"{hub_folder}:de-en", "en", "fr")
    plain = columns(datasets, tmp_path / "plain", en=["a"], de=[1])
    assert "no text in 'de'; languages found: en" in complaint(plain)
    assert complaint(columns(datasets, tmp_path / "part", "test", en=["a"], de=["A"])).endswith("splits found: test")


def test_wmt14_is_counted(wmt14: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: a download that is not all of WMT14, whose published size is compared, is refused with both counts."""
    corpus = load("wmt14", "en", "de")
    assert (corpus.name, list(corpus.train)) == ("wmt14", of_hub("de", 4))
    for split, count in {"train": 4, "valid": 2, "test": 1}.items():
        monkeypatch.setattr(corpora, "WMT14_COUNTS", {"train": 4, "valid": 2, "test": 1} | {split: 4_508_785})
        with pytest.raises(NmtError, match=f"'{split}': {count}.* instead of .*'{split}': 4508785") as error:
            load("wmt14", "en", "de")
        assert error.value.exit_code == 1
    monkeypatch.undo()
    assert corpora.WMT14_COUNTS == {"train": 4_508_785, "valid": 3_000, "test": 3_003}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "nmt: --data wmt/wmt14:de-en: the Hugging Face hub cannot be reached"),
        (["--data", "corpus/mine"], "nmt: --data corpus/mine: no such folder here, and the Hugging Face hub cannot be"),
    ],
)
def test_out_of_reach_is_one_sentence(nmt: Nmt, tmp_path: Path, words: list[str], error: str) -> None:
    """D4, N5: without a network, exit 1 with the ways out. A mistyped folder looks like a name on the hub: both are said."""
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "home")}
    done = nmt("train", *words, cwd=tmp_path, **dict.fromkeys(ELSEWHERE, "") | nowhere)
    assert (done.returncode, done.stdout) == (1, b"")
    *before, last = done.stderr.decode().splitlines()
    assert ["no such folder here; asking the Hugging Face hub" in line for line in before] == [True] * bool(words)
    assert last.startswith(error)
    assert [way for way in ("--data demo", "--data FOLDER", "train.en") if way not in last] == []


def test_without_a_home_folder_none_is_made(tmp_path: Path, datasets: Any) -> None:
    """N10: a container's user without name and HOME gets one sentence that names HF_HOME, and no folder called ~."""
    columns(datasets, tmp_path / "plain", en=["a"], de=["A"])
    script = "import pwd\ndef nobody(uid): raise KeyError(uid)\npwd.getpwuid = nobody\nfrom nmt.__main__ import main\nmain()"
    command = [sys.executable, "-P", "-c", script, "train", "--data", str(tmp_path / "plain"), "-m", "model"]
    hidden = {"HOME", "HF_HOME", "XDG_CACHE_HOME", "NMT_CACHE", *ELSEWHERE}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    (tmp_path / "here").mkdir()
    done = subprocess.run(command, capture_output=True, cwd=tmp_path / "here", env=environment, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert re.fullmatch(
        r"nmt: --data \S+/plain: there is no home folder .*; set HOME or HF_HOME\n",
        done.stderr.decode(),
    )
    assert list((tmp_path / "here").iterdir()) == []
