"""The cache of prepared data: one folder per entry, named by a key of everything that its content depends on.

An entry is written in a temporary folder and renamed, so that it is whole or absent. Its manifest.json lists the sizes of its
files: an entry that a full disk or a crash tore is noticed when it is opened, and made again.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt.errors import NmtError

FORMAT = 4  # of all entries; it is part of every key
MANIFEST = "manifest.json"
UNFINISHED = ".part"  # ending of temporary folders
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class Entry:
    """A whole entry: its folder and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> "Entry":
        """Raises OSError or ValueError unless the manifest is whole and every file in it has the size given there."""
        manifest = json.loads((folder / MANIFEST).read_bytes())
        for name, size in manifest["sizes"].items():
            if (found := (folder / name).stat().st_size) != size:
                raise OSError(f"{name} holds {found:,} bytes instead of {size:,}")
        return cls(folder, manifest)


class Cache:
    """Entries in the first of several places that can be used."""

    def __init__(self, places: Sequence[Path], say: Callable[[str], None] = lambda text: None) -> None:
        """`say` receives messages about damaged entries and about places that cannot be written."""
        self.places, self.say = list(places), say

    @classmethod
    def find(cls, model_directory: Path, say: Callable[[str], None] = lambda text: None) -> "Cache":
        """The cache of a run: $NMT_CACHE, else $XDG_CACHE_HOME/nmt or ~/.cache/nmt; as a last resort the model directory."""
        xdg = os.environ.get("XDG_CACHE_HOME", "")
        home = xdg if os.path.isabs(xdg) else "~/.cache"  # the XDG rules say to ignore a relative one
        own = os.path.expanduser(os.environ.get("NMT_CACHE") or os.path.join(home, "nmt"))
        places = [] if own.startswith("~") else [Path(own).absolute()]  # "~" stays where there is no home folder
        return cls([*places, model_directory.absolute() / "prepared"], say)

    def get(self, name: str) -> Entry | None:
        """The entry of this name, or None. A damaged entry is removed, with a message."""
        for folder in (place / name for place in self.places):
            if os.path.isdir(folder):  # unlike Path.is_dir, False without permission
                try:
                    return Entry.open(folder)
                except (OSError, ValueError) as damage:
                    self.say(f"{folder} is damaged ({damage}) and is made again")
                    shutil.rmtree(folder, ignore_errors=True)
        return None

    def put(self, name: str, fill: Callable[[Path], dict[str, Any]]) -> Entry:
        """Make an entry: `fill` writes its files into a folder and returns the manifest.

        If a place is full or cannot be written, the next one is used. Raises NmtError if none is left.
        """
        fault = ""
        for place in self.places:
            if fault:
                self.say(f"{fault}, so it goes to {place}")
            try:
                return _write(place, name, fill)
            except OSError as error:
                fault = f"{place}: the prepared data cannot be written ({error.strerror or error})"
        raise NmtError(f"{fault}; make room there, or set NMT_CACHE to a folder with enough room")


def key_of(**parts: Any) -> str:
    """A digest of the parts and of the format of entries."""
    text = json.dumps({"format": FORMAT} | parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _write(place: Path, name: str, fill: Callable[[Path], dict[str, Any]]) -> Entry:
    place.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(place)
    with TemporaryDirectory(UNFINISHED, f"{name}.", place, ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary, name)  # unlike the temporary folder, this one has the user's permissions
        folder.mkdir()
        manifest = fill(folder)
        manifest["sizes"] = {path.name: path.stat().st_size for path in folder.iterdir()}
        (folder / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False) + "\n", encoding="utf-8")
        for path in folder.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        with suppress(OSError):  # another process was first with the same entry
            folder.rename(place / name)
    return Entry.open(place / name)


def _remove_leftovers(place: Path) -> None:
    """Remove temporary folders that killed processes left behind, once they are a day old."""
    for folder in place.glob(f"*{UNFINISHED}"):
        with suppress(OSError):  # another process may remove it at the same time
            if time.time() - folder.stat().st_mtime > SECONDS_PER_DAY:
                shutil.rmtree(folder)
