"""Folders of parallel text: a file a language, `train|valid|test.<language>`, that line up. Any of them may be packed."""

import re
from collections.abc import Callable, Collection, Iterator
from itertools import zip_longest
from pathlib import Path

from nmt.data.splits import SPLIT_OF, Pair, Reader, refuse_pipes
from nmt.data.tables import format_of
from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import bare_name, read_lines

LANGUAGE = re.compile(r"(?!(?:tsv|csv|txt)$)[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")  # en, pt-BR, zh_Hans
PAIRED = re.compile(r"(.+)\.(([^.-]+)-([^.-]+))\.(\3|\4)")  # Books.de-en.de, as OPUS names files; train.de-en.de


def text_files(folder: Path, asked: tuple[str, str], tables: Collection[str]) -> dict[str, dict[str, Path]]:
    """The files named as a split's side, by a language's code or as it is `asked` for: split -> language -> path.

    Where no file is named so for training, and no table (`tables` has their splits), those of any name that tells both
    languages are that; of other languages, they stand under both. Raises UsageError where a side is there twice.
    """
    files: dict[str, dict[str, Path]] = {}
    others: dict[str, dict[str, Path]] = {}  # of any name, under "train"
    for path in sorted(folder.iterdir()):
        name = bare_name(path)
        stem, _, language = name.partition(".")
        if paired := PAIRED.fullmatch(name):
            stem, both, *languages, language = paired.groups()
            language = language if {*languages} == {*asked} else both
        elif not (LANGUAGE.fullmatch(language) or language in asked):
            continue
        if stem in SPLIT_OF or paired:
            sides = (files if stem in SPLIT_OF else others).setdefault(SPLIT_OF.get(stem, "train"), {})
            if (other := sides.get(language)) and language in asked:
                raise UsageError(
                    f"{folder}: {other.name} and {path.name} are the same side twice; remove one, or join them with `cat`"
                )
            sides[language] = path
    return files if "train" in {*files, *tables} else others | files


def overlooked(folder: Path, asked: tuple[str, str], found: Collection[str]) -> str:
    """Which files look meant as a split's text, and what to call them; "" where none does.

    Those are passed over that would be what is `found` already: splits, and single sides such as train.en.
    """
    unused = []
    for path in sorted(folder.iterdir()):
        words = [word.removeprefix("news") for word in re.findall("[a-z]+", path.name.lower())]  # newstest2014.de
        split = next((SPLIT_OF[word] for word in words if word in SPLIT_OF), None)
        ending = next((f".{language}" for language in asked if language.lower() in words), format_of(path))
        if split and ending and not {split, f"{split}{ending}"} & {*found} and path.is_file():
            unused.append(f"{path.name} (call it {split}{ending})")
    return f"not used, for their names: {', '.join(unused)}" if unused else ""


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
