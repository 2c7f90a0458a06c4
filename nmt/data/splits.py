"""A split of a corpus: its pairs, how they are read, and the files whose bytes decide them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import UsageError
from nmt.lines import sha256_of

Pair = tuple[str, str]  # a source line and its translation

NAMES = {"train": ("train",), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
SPLIT_OF = {name: split for split, names in NAMES.items() for name in names}


@dataclass(frozen=True)
class Split:
    """One part of a corpus: its pairs, how many there are, and a fingerprint of their text."""

    read: Callable[[], Iterator[Pair]]
    count: int
    sha256: str

    def __iter__(self) -> Iterator[Pair]:
        return self.read()


@dataclass(frozen=True)
class Reader:
    """How the pairs of a split are read. The bytes of the files, read in this form, are the text and nothing else is."""

    read: Callable[[], Iterator[Pair]]
    files: tuple[Path, ...]
    form: str


def fingerprint(pairs: Iterable[Pair], note: Callable[[str, str, bytes], None] | None = None) -> tuple[int, str]:
    """The number of pairs and the SHA-256 of their text. `note` is told of each pair, and of its bytes here."""
    digest, count = hashlib.sha256(), 0
    for left, right in pairs:
        text = f"{left}\n{right}\n".encode()
        digest.update(text)
        count += 1
        if note:
            note(left, right, text)
    return count, digest.hexdigest()


def refuse_pipes(path: Path) -> None:
    """Raises UsageError for a pipe or a device: text is read several times, and to its end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{path}: a pipe or a device, but the text is read several times; write it to a file")


def hash_files(paths: list[Path]) -> list[str]:
    """SHA-256 of the bytes of each file, several at a time. Raises UsageError for one that cannot be read.

    Bytes and not times of change decide what is in a cache: at well over a gigabyte a second they are cheap to ask.
    """
    with ThreadPoolExecutor(max_workers=8) as threads:  # hashlib lets go of the interpreter
        return list(threads.map(_hash_file, paths))


def _hash_file(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
