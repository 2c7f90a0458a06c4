"""Folders of parallel text: a table per split, or a file per language, `train|valid|test.<language>`, aligned by line."""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path

from nmt.data.splits import LANGUAGE_CODE, NAMES, SPLIT_OF, Pair, Reader
from nmt.data.tables import FORMATS, format_of, read_table
from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import bare_name, read_lines

NOT_LANGUAGES = ("csv", "txt")  # endings that look like language codes
PAIRED = re.compile(r"(.+)\.(([^.-]+)-([^.-]+))\.(\3|\4)")  # Books.de-en.de, as OPUS names files; train.de-en.de


def read_folder(folder: Path, source: str, target: str) -> tuple[dict[str, Reader], str]:
    """The readers of a folder's splits, none if no file is named like text of one; and a sentence on files not used, or "".

    Raises UsageError if there is no training text in both languages, a side has no counterpart or is there twice.
    """
    files, others = _split_files(folder, (source, target))
    readers: dict[str, Reader] = {}
    for split in NAMES if files else ():
        sides = files.get(split, {})
        tables = [path for ending in FORMATS for path in sides.get(ending.removeprefix("."), [])]
        left, right = (sides.get(language, []) for language in (source, target))
        for same in (left, right, tables + left, tables + right):
            if len(same) > 1:
                names = " and ".join(path.name for path in same)
                raise UsageError(f"{folder}: {names} are the same text twice; remove one, or join them with `cat`")
        if tables:
            readers[split] = read_table(tables[0], source, target)
        elif left and right:
            readers[split] = Reader(partial(_read_aligned, *left, *right), (*left, *right), "lines")
        elif split == "train":
            unused, languages = _unused(others, (source, target), readers), ", ".join(sorted(sides)) or "none"
            option, missing = ("--target", target) if left else ("--source", source)
            raise UsageError(
                f"{folder}: no training text train.{missing} for {option} {missing}; languages found: {languages}"
                + (unused and f"; {unused}")
            )
        elif left or right:
            raise UsageError(f"{folder}: {[*left, *right][0].name} has no counterpart in the other language")
    return readers, _unused(others, (source, target), readers)


def _split_files(folder: Path, asked: tuple[str, str]) -> tuple[dict[str, dict[str, list[Path]]], list[Path]]:
    """The files whose names say what they are: split -> language, or ending of a table -> paths; and all other files.

    `asked` are the languages asked for; files named by another language code are listed too. If none is named train, a pair of
    files in OPUS's style of any name is the training text. A pair in other languages is listed under both codes, as in de-en.
    """
    files: dict[str, dict[str, list[Path]]] = {}
    opus: dict[str, list[Path]] = {}  # sides of a pair of any name
    others = []
    for path in sorted(folder.iterdir()):
        name = bare_name(path)
        stem, _, side = name.partition(".")
        if paired := PAIRED.fullmatch(name):
            stem, both, *languages, side = paired.groups()
            side = side if {*languages} == {*asked} else both
        is_code = LANGUAGE_CODE.fullmatch(side.lower()) and side not in NOT_LANGUAGES
        if stem in SPLIT_OF and (paired or is_code or side in asked or f".{side}" in FORMATS):
            files.setdefault(SPLIT_OF[stem], {}).setdefault(side, []).append(path)
        elif paired:
            opus.setdefault(side, []).append(path)
        else:
            others.append(path)
    if opus:
        files.setdefault("train", opus)
    return files, others


def _unused(paths: Iterable[Path], asked: tuple[str, str], found: Collection[str]) -> str:
    """A sentence on files that look like text of a split not found, and what to call them; "" if there are none."""
    unused = []
    for path in paths:
        words = [word.removeprefix("news") for word in re.findall("[a-z]+", path.name.lower())]  # newstest2014.de
        split = next((SPLIT_OF[word] for word in words if word in SPLIT_OF), None)
        ending = next((f".{language}" for language in asked if language.lower() in words), format_of(path))
        if split and ending and split not in found and path.is_file():
            unused.append(f"{path.name} (call it {split}{ending})")
    return f"not used, for their names: {', '.join(unused)}" if unused else ""


def _read_aligned(source: Path, target: Path) -> Iterator[Pair]:
    for number, (left, right) in enumerate(zip_longest(read_lines(source), read_lines(target)), 1):
        if left is None or right is None:
            counts = {path: sum(1 for _ in read_lines(path)) for path in (source, target)}
            raise UsageError(
                f"{source} has {counted(counts[source], 'line')} but {target} has {counts[target]:,}: "
                f"line {number:,} has no counterpart; make the files line up"
            )
        yield left, right
