"""Entries of the cache: whole or absent whatever happens while they are written, in the first place that works."""

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.data.cache import MANIFEST, SECONDS_PER_DAY, UNFINISHED, Cache
from nmt.errors import NmtError

HALF = """
import sys, time
from pathlib import Path
from nmt.data.cache import Cache
def fill(folder):
    (folder / "half").write_bytes(bytes(1000))
    print("half", flush=True)
    time.sleep(60)
Cache([Path(sys.argv[1])]).put("entry", fill)
"""


def fill(folder: Path) -> dict[str, Any]:
    (folder / "data").write_bytes(b"12345678")
    return {"says": "so"}


def contents(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_what_was_put_is_found(tmp_path: Path) -> None:
    cache = Cache([tmp_path / "place"])
    assert cache.get("entry") is None
    put = cache.put("entry", fill)
    found = cache.get("entry")
    assert found == put
    assert found.manifest["says"] == "so"
    assert (found.folder / "data").read_bytes() == b"12345678"
    assert found.folder.stat().st_mode == (tmp_path / "place").stat().st_mode  # others may read it as any folder
    assert contents(tmp_path / "place") == ["entry"]


@pytest.mark.parametrize("damage", ["truncated", "missing", "torn manifest"])
def test_a_damaged_entry_is_made_anew(tmp_path: Path, damage: str) -> None:
    """A file of the wrong size, a missing one and a torn manifest are noticed, reported, and replaced."""
    said: list[str] = []
    cache = Cache([tmp_path], said.append)
    folder = cache.put("entry", fill).folder
    if damage == "truncated":
        os.truncate(folder / "data", 7)
    elif damage == "torn manifest":
        (folder / MANIFEST).write_text('{"sizes": {')
    else:
        (folder / "data").unlink()
    assert cache.get("entry") is None
    assert [str(folder) in line and "damaged" in line for line in said] == [True]
    cache.put("entry", fill)
    assert cache.get("entry") is not None
    assert contents(tmp_path) == ["entry"]


def test_a_killed_writer_leaves_no_entry(tmp_path: Path) -> None:
    """What it leaves is not an entry, and the next writer removes it after a day, when no process can still work on it."""
    writer = subprocess.Popen([sys.executable, "-c", HALF, tmp_path], stdout=subprocess.PIPE)
    assert writer.stdout
    assert writer.stdout.readline() == b"half\n"
    cache = Cache([tmp_path])
    writer.kill()
    writer.communicate()
    assert cache.get("entry") is None
    cache.put("other", fill)
    [unfinished] = tmp_path.glob(f"*{UNFINISHED}")
    yesterday = unfinished.stat().st_mtime - SECONDS_PER_DAY - 60
    os.utime(unfinished, (yesterday, yesterday))
    cache.put("entry", fill)
    assert contents(tmp_path) == ["entry", "other"]


def test_no_place_is_one_sentence(tmp_path: Path) -> None:
    """If nothing can be written, the error names the last place and the way out."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NmtError, match="NMT_CACHE") as error:
        Cache([tmp_path / "file" / "one", tmp_path / "file" / "two"]).put("entry", fill)
    assert str(tmp_path / "file" / "two") in str(error.value)


def test_a_full_place_gives_way_to_the_next(tmp_path: Path) -> None:
    said: list[str] = []
    cache = Cache([tmp_path / "full", tmp_path / "roomy"], said.append)

    def fill_up(folder: Path) -> dict[str, Any]:
        if "full" in folder.parts:
            raise OSError(28, "No space left on device")
        return fill(folder)

    entry = cache.put("entry", fill_up)
    assert entry.folder == tmp_path / "roomy" / "entry"
    assert cache.get("entry") == entry
    assert contents(tmp_path / "full") == []
    [line] = said
    assert all(word in line for word in (str(tmp_path / "full"), "No space left", str(tmp_path / "roomy")))


@pytest.mark.parametrize(
    ("own", "xdg", "first"),
    [("/own", "/xdg", "/own"), ("", "/xdg", "/xdg/nmt"), ("", "", "/me/.cache/nmt"), ("", "relative", "/me/.cache/nmt")],
)  # fmt: skip
def test_the_places_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, xdg: str, first: str) -> None:
    """$NMT_CACHE, else $XDG_CACHE_HOME/nmt, else ~/.cache/nmt; then the model directory."""
    for name, value in {"NMT_CACHE": own, "XDG_CACHE_HOME": xdg, "HOME": "/me"}.items():
        monkeypatch.setenv(name, value)
    assert Cache.find(tmp_path).places == [Path(first), tmp_path / "prepared"]


def test_without_a_home_folder_the_model_directory_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N10: no folder named ~ is made."""

    def nobody(_uid: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setenv("NMT_CACHE", "~/cache")
    assert Cache.find(tmp_path).places == [tmp_path / "prepared"]
