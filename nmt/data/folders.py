"""Folders of parallel text: a file a language, `train|valid|test.<language>`, that line up. Any of them may be packed."""

import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from nmt.data.splits import SPLIT_OF, Pair, Reader, refuse_pipes
from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import read_lines

LANGUAGE = re.compile(r"(?!(?:tsv|csv|txt)$)[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")  # en, pt-BR, zh_Hans


def text_files(folder: Path, asked: tuple[str, str]) -> dict[str, dict[str, Path]]:
    """The files named as a split's side, by a language's code or as it is `asked` for: split -> language -> path.

    Raises UsageError where one is there twice.
    """
    files: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        stem, _, language = path.name.removesuffix(".gz").partition(".")
        if stem in SPLIT_OF and (LANGUAGE.fullmatch(language) or language in asked):
            sides = files.setdefault(SPLIT_OF[stem], {})
            if other := sides.get(language):
                raise UsageError(f"{folder}: {other.name} and {path.name} are the same side twice; remove one")
            sides[language] = path
    return files


def read_sides(folder: Path, sides: dict[str, Path], source: str, target: str) -> Reader | None:
    """The reader of one split's files, or None where neither language is among them."""
    left, right = sides.get(source), sides.get(target)
    if left and right:
        for path in (left, right):
            refuse_pipes(path)
        return Reader(_side_by_side(left, right), (left, right), "lines")
    if alone := left or right:
        raise UsageError(f"{folder}: {alone.name} has no counterpart in the other language")
    return None


def _side_by_side(source: Path, target: Path) -> Callable[[], Iterator[Pair]]:
    def read() -> Iterator[Pair]:
        for number, (left, right) in enumerate(zip_longest(read_lines(source), read_lines(target)), 1):
            if left is None or right is None:
                counts = {path: sum(1 for _ in read_lines(path)) for path in (source, target)}
                raise UsageError(
                    f"{source} has {counted(counts[source], 'line')} but {target} has {counts[target]:,}: "
                    f"line {number:,} has no counterpart; make the files line up"
                )
            yield left, right

    return read
