"""What was prepared before: folders on disk, each whole or not there, found again by a key of all that they depend on.

An entry is written beside and renamed. Its manifest.json holds the sizes of its files, so that what was torn off by a full
disk or a failing machine is noticed on opening, and made anew.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.errors import NmtError
from nmt.lines import parse_json

FORMAT = 2  # of all entries; another one makes every key another
MANIFEST = "manifest.json"


class Damaged(OSError):
    """A folder that is no whole entry; the text says why."""


@dataclass(frozen=True)
class Entry:
    """A whole entry: its folder, and what its manifest says."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> "Entry":
        """Raises Damaged unless all files of the manifest are there in their sizes."""
        try:
            manifest = parse_json((folder / MANIFEST).read_bytes())
            for name, size in manifest["sizes"].items():
                if (found := (folder / name).stat().st_size) != size:
                    raise Damaged(f"{name} holds {found:,} bytes instead of {size:,}")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(str(error) or type(error).__name__) from None
        return cls(folder, manifest)


class Cache:
    """Folders that entries are looked for in and written to, the first that serves."""

    def __init__(self, places: Sequence[Path], say: Callable[[str], None] = lambda text: None) -> None:
        """At least one place. `say` is told what a person should know: damage, and a place that cannot be written."""
        self.places, self.say = list(places), say

    @classmethod
    def find(cls, model_directory: Path, say: Callable[[str], None] = lambda text: None) -> "Cache":
        """The places of a run: $NMT_CACHE, else $XDG_CACHE_HOME/nmt or ~/.cache/nmt; the model directory after it."""
        home = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(home):  # unset, or to be ignored by the XDG rules
            home = os.path.expanduser("~/.cache")
        own = os.environ.get("NMT_CACHE") or (os.path.join(home, "nmt") if os.path.isabs(home) else "")
        places = [Path(os.path.expanduser(own)).absolute()] if own else []
        return cls([*places, model_directory.absolute() / "prepared"], say)

    def get(self, name: str) -> Entry | None:
        """The entry of this name, or None where there is none or only a damaged one, which is said."""
        for place in self.places:
            if os.path.isdir(place / name):  # unlike Path.is_dir, false where it may not be looked at
                try:
                    return Entry.open(place / name)
                except Damaged as damage:
                    self.say(f"{place / name} is damaged ({damage}) and will be made anew")
        return None

    def put(self, name: str, fill: Callable[[Path], dict[str, Any]]) -> Entry:
        """Make an entry: `fill` writes files into a folder and returns what the manifest is to say.

        Where a place cannot be written or is full, the next one serves. Raises NmtError where none does.
        """
        for place, other in zip(self.places, [*self.places[1:], None], strict=True):
            try:
                return _write(place, name, fill)
            except OSError as error:
                fault = f"{place}: the prepared data cannot be written ({error.strerror or error})"
            if other:
                self.say(f"{fault}, so it goes to {other}")
        raise NmtError(f"{fault}; make room there, or name a folder that has it in NMT_CACHE")


def key_of(**parts: Any) -> str:
    """A name for all that these parts say, and for the format of entries."""
    text = json.dumps({"format": FORMAT} | parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _write(place: Path, name: str, fill: Callable[[Path], dict[str, Any]]) -> Entry:
    place.mkdir(parents=True, exist_ok=True)
    _sweep(place)
    new = place / f"{name}.{secrets.token_hex(4)}.new"
    new.mkdir()
    lock = os.open(new, os.O_RDONLY)
    part = new.with_suffix(".part")
    try:
        _lock(lock)
        new.rename(part)  # from here on it may be swept, once the lock is let go
        manifest = fill(part)
        manifest["sizes"] = {path.name: path.stat().st_size for path in part.iterdir()}
        (part / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False) + "\n", encoding="utf-8")
        for path in [*part.iterdir(), part]:
            _sync(path)
        _replace(part, place / name)
        _sync(place)
    finally:
        os.close(lock)
        shutil.rmtree(part, ignore_errors=True)
    return Entry.open(place / name)


def _replace(part: Path, folder: Path) -> None:
    """Give the entry its name, unless another process was first and its entry, the same, is whole."""
    try:
        part.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        try:
            Entry.open(folder)
        except Damaged:
            folder.rename(part.with_suffix(".old.part"))
            part.rename(folder)
            shutil.rmtree(part.with_suffix(".old.part"), ignore_errors=True)


def _sweep(place: Path) -> None:
    """Remove what killed processes left behind: parts whose lock nobody holds any more."""
    for part in place.glob("*.part"):
        try:
            lock = os.open(part, os.O_RDONLY)
        except OSError:
            continue
        try:
            if _lock(lock):
                shutil.rmtree(part, ignore_errors=True)
        finally:
            os.close(lock)


def _lock(descriptor: int) -> bool:
    """Whether the folder could be locked. Where a file system has no such locks, nothing is ever swept."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
