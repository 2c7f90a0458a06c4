"""A split of a corpus: its pairs, how to read them, and the files that hold them."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import UsageError
from nmt.storage import sha256_of

Pair = tuple[str, str]  # a source line and its translation

NAMES = {"train": ("train",), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
SPLIT_OF = {name: split for split, names in NAMES.items() for name in names}
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")  # en, pt-BR, zh_Hans


@dataclass(frozen=True)
class Split:
    """One part of a corpus. Each iteration reads its pairs anew."""

    read: Callable[[], Iterator[Pair]]
    count: int
    sha256: str  # of the text, see `fingerprint`

    def __iter__(self) -> Iterator[Pair]:
        return self.read()


@dataclass(frozen=True)
class Reader:
    """How to read the pairs of a split. The bytes of its files and their form alone determine the pairs."""

    read: Callable[[], Iterator[Pair]]
    files: tuple[Path, ...]
    form: str


def fingerprint(pairs: Iterable[Pair]) -> tuple[int, str]:
    """The number of pairs and the SHA-256 of their text."""
    digest, count = hashlib.sha256(), 0
    for source, target in pairs:
        digest.update(f"{source}\n{target}\n".encode())
        count += 1
    return count, digest.hexdigest()


def hash_files(paths: Iterable[Path]) -> list[str]:
    """The SHA-256 of each file's bytes. Raises UsageError for one that cannot be read."""
    with ThreadPoolExecutor() as threads:  # hashlib releases the interpreter lock
        return list(threads.map(_hash_file, paths))


def _hash_file(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
