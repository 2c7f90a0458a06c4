"""Folders of parallel text: a table per split, or a file per language, `train|valid|test.<language>`, aligned by line."""

import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path

from nmt.data.splits import LANGUAGE_CODE, SPLIT_OF, Pair, Reader
from nmt.data.tables import FORMATS, format_of, read_table
from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import bare_name, read_lines

NOT_LANGUAGES = ("csv", "txt")  # endings that look like language codes
PAIRED = re.compile(r"(.+)\.(([^.-]+)-([^.-]+))\.(\3|\4)")  # Books.de-en.de, as OPUS names files; train.de-en.de


def read_folder(folder: Path, source: str, target: str, warn: Callable[[str], None]) -> dict[str, Reader]:
    """The readers of a folder's splits, by split; empty if no file is named like text of one.

    Raises UsageError if there is no training text in both languages, a side has no counterpart or is there twice.
    """
    files = _split_files(folder, (source, target))
    readers: dict[str, Reader] = {}
    lonely = []
    for split, sides in files.items():
        table = next((path for path in sides.values() if format_of(path)), None)
        if table and len(sides) > 1:
            names = " and ".join(path.name for path in sides.values())
            raise UsageError(f"{folder}: {names} are the same split in two formats; remove one")
        paths = [sides[language] for language in (source, target) if language in sides]
        if table:
            readers[split] = read_table(table, source, target)
        elif len(paths) == 2:
            readers[split] = Reader(partial(_read_aligned, *paths), tuple(paths), "lines")
        elif paths and split != "train":
            lonely.append(paths[0].name)
    found = {*readers, *(f"{split}.{language}" for split, sides in files.items() for language in sides)}
    unused = unused_files(folder, (source, target), found)
    if files and "train" not in readers:
        languages = sorted(files.get("train", {}))
        option, missing = ("--source", source) if source not in languages else ("--target", target)
        raise UsageError(
            f"{folder}: no training text train.{missing} for {option} {missing}; "
            f"languages found: {', '.join(languages) or 'none'}" + (unused and f"; {unused}")
        )
    if lonely:
        raise UsageError(f"{folder}: {lonely[0]} has no counterpart in the other language")
    if files and unused:
        warn(f"{folder}: {unused}")
    return readers


def _split_files(folder: Path, asked: tuple[str, str]) -> dict[str, dict[str, Path]]:
    """The files whose names say what they are: split -> language, or ending of a table -> path.

    `asked` are the languages asked for; files named by another language code are listed too. If none is named train, a pair of
    files in OPUS's style of any name is the training text. A pair in other languages is listed under both codes, as in de-en.
    Raises UsageError if the same side is there twice.
    """
    files: dict[str, dict[str, Path]] = {}
    opus = []  # sides of a pair of any name

    def add(split: str, side: str, path: Path) -> None:
        sides = files.setdefault(split, {})
        if (other := sides.get(side)) and (side in asked or format_of(path)):
            raise UsageError(
                f"{folder}: {other.name} and {path.name} are the same side twice; remove one, or join them with `cat`"
            )
        sides[side] = path

    for path in sorted(folder.iterdir()):
        name = bare_name(path)
        stem, _, side = name.partition(".")
        if paired := PAIRED.fullmatch(name):
            stem, both, *languages, side = paired.groups()
            side = side if {*languages} == {*asked} else both
        is_code = LANGUAGE_CODE.fullmatch(side.lower()) and side not in NOT_LANGUAGES
        if stem in SPLIT_OF and (paired or is_code or side in asked or f".{side}" in FORMATS):
            add(SPLIT_OF[stem], side, path)
        elif paired:
            opus.append((side, path))
    for side, path in opus if "train" not in files else ():
        add("train", side, path)
    return files


def unused_files(folder: Path, asked: tuple[str, str], found: Collection[str] = ()) -> str:
    """A sentence on files that look like a split's text but have another name, and what to call them; "" if there are none.

    `found` has the splits and the single sides, such as train.en, that need no further file.
    """
    unused = []
    for path in sorted(folder.iterdir()):
        words = [word.removeprefix("news") for word in re.findall("[a-z]+", path.name.lower())]  # newstest2014.de
        split = next((SPLIT_OF[word] for word in words if word in SPLIT_OF), None)
        ending = next((f".{language}" for language in asked if language.lower() in words), format_of(path))
        if split and ending and not {split, f"{split}{ending}"} & {*found} and path.is_file():
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
