"""Entries of the cache: whole or not there, whatever happens while they are written, in the first place that serves."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nmt.data.cache import MANIFEST, Cache, Damaged, Entry, key_of
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
    """An entry is a folder of the files that were written, and its manifest says what it was told."""
    cache = Cache([tmp_path / "place"])
    assert cache.get("entry") is None
    put = cache.put("entry", fill)
    found = cache.get("entry")
    assert found == put
    assert found.manifest["says"] == "so"
    assert (found.folder / "data").read_bytes() == b"12345678"
    assert contents(tmp_path / "place") == ["entry"]


@pytest.mark.parametrize("damage", ["truncated", "longer", "missing", "no manifest", "torn manifest", "other manifest"])
def test_a_damaged_entry_is_made_anew(tmp_path: Path, damage: str) -> None:
    """A file of the wrong size, a missing one and a torn manifest are noticed, said, and mended by the next writer."""
    said: list[str] = []
    cache = Cache([tmp_path], said.append)
    folder = cache.put("entry", fill).folder
    if damage == "truncated":
        os.truncate(folder / "data", 7)
    elif damage == "longer":
        (folder / "data").write_bytes(b"123456789")
    elif damage == "missing":
        (folder / "data").unlink()
    elif damage == "no manifest":
        (folder / MANIFEST).unlink()
    else:
        (folder / MANIFEST).write_text('{"sizes": {' if damage == "torn manifest" else "[1]")
    with pytest.raises(Damaged):
        Entry.open(folder)
    assert cache.get("entry") is None
    assert len(said) == 1
    assert str(folder) in said[0]
    assert "damaged" in said[0]
    cache.put("entry", fill)
    assert cache.get("entry") is not None
    assert contents(tmp_path) == ["entry"]


def test_the_first_writer_wins(tmp_path: Path) -> None:
    """A second process that made the same thing at the same time uses what is there, and leaves nothing of its own."""
    cache = Cache([tmp_path])

    def late(folder: Path) -> dict[str, Any]:
        cache.put("entry", fill)
        return fill(folder) | {"says": "late"}

    assert cache.put("entry", late).manifest["says"] == "so"
    assert contents(tmp_path) == ["entry"]


def test_many_writers_at_once(tmp_path: Path) -> None:
    """Eight writers of one entry end with one whole entry, none disturbed by another's clearing up."""
    faults: list[BaseException] = []

    def put() -> None:
        try:
            assert Cache([tmp_path]).put("entry", fill).manifest["says"] == "so"
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert contents(tmp_path) == ["entry"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_writer_leaves_no_entry(tmp_path: Path, number: int) -> None:
    """After a kill half way there is no entry; its part is removed by the next writer, but not while it is at work."""
    writer = subprocess.Popen([sys.executable, "-c", HALF, tmp_path], stdout=subprocess.PIPE)
    assert writer.stdout
    assert writer.stdout.readline() == b"half\n"
    cache = Cache([tmp_path])
    assert cache.get("entry") is None
    cache.put("other", fill)
    assert len(contents(tmp_path)) == 2
    writer.send_signal(number)
    writer.communicate()
    assert cache.get("entry") is None
    cache.put("entry", fill)
    assert contents(tmp_path) == ["entry", "other"]


@pytest.mark.parametrize("error", [NmtError("x"), KeyboardInterrupt(), RuntimeError()])
def test_a_failed_writer_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    """A fault of the corpus, an interrupt and a bug go on to the caller, and no part stays."""

    def failing(folder: Path) -> dict[str, Any]:
        fill(folder)
        raise error

    with pytest.raises(type(error)):
        Cache([tmp_path]).put("entry", failing)
    assert contents(tmp_path) == []


def test_a_full_place_gives_way_to_the_next(tmp_path: Path) -> None:
    """Where the disk is full, the entry is made in the next place, is said to be, and is found there."""
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
    assert len(said) == 1
    assert all(word in said[0] for word in (str(tmp_path / "full"), "No space left", str(tmp_path / "roomy")))


def test_no_place_is_one_sentence(tmp_path: Path) -> None:
    """Where nothing can be written, the error names the last place, the reason and the way out."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NmtError, match="NMT_CACHE") as error:
        Cache([tmp_path / "file" / "one", tmp_path / "file" / "two"]).put("entry", fill)
    assert str(tmp_path / "file" / "two") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not shutil.which("unshare") or os.geteuid() != 0, reason="a full disk is made by mounting one")
def test_a_really_full_disk(tmp_path: Path) -> None:
    """On a file system of one megabyte, an entry of two goes to the next place, and none of it stays behind."""
    script = """
import sys
from pathlib import Path
from nmt.data.cache import Cache
def fill(folder):
    with (folder / "data").open("wb") as file:
        for _ in range(20):
            file.write(bytes(100_000))
    return {}
entry = Cache([Path(sys.argv[1]), Path(sys.argv[2])], print).put("entry", fill)
print(entry.folder, [path.name for path in Path(sys.argv[1]).iterdir()])
"""
    small = tmp_path / "small"
    small.mkdir()
    command = (
        f"mount -t tmpfs -o size=1m none {small} && exec {sys.executable} -c '{script}' {small} {tmp_path / 'next'}"
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout
    assert done.stdout.endswith(f"{tmp_path / 'next' / 'entry'} []\n")


@pytest.mark.parametrize(
    ("variables", "first"),
    [
        ({"NMT_CACHE": "/own", "XDG_CACHE_HOME": "/xdg", "HOME": "/home/me"}, "/own"),
        ({"NMT_CACHE": "", "XDG_CACHE_HOME": "/xdg", "HOME": "/home/me"}, "/xdg/nmt"),
        ({"NMT_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/home/me"}, "/home/me/.cache/nmt"),
        ({"NMT_CACHE": "", "XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.cache/nmt"),
    ],
)
def test_the_places_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], first: str
) -> None:
    """$NMT_CACHE, else $XDG_CACHE_HOME/nmt, else ~/.cache/nmt; and the model directory where that cannot be written."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Cache.find(tmp_path).places == [Path(first), tmp_path / "prepared"]


def test_without_a_home_folder_the_model_directory_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N10: and no folder that is called ~."""

    def nobody(_uid: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for own in ("", "~/cache"):
        monkeypatch.setenv("NMT_CACHE", own)
        assert Cache.find(tmp_path).places == [tmp_path / "prepared"]


def test_a_key_is_of_all_its_parts() -> None:
    """Another value, another name and another type are another key; the order in which they are told is not."""
    assert key_of(a=1, b="x") == key_of(b="x", a=1)
    assert len({key_of(a=1), key_of(a=2), key_of(b=1), key_of(a="1"), key_of(a=[1])}) == 5
