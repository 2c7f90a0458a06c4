"""Both languages in one file: a .tsv of columns, or a .jsonl of an object a line. Either may be packed.

A line is what lines.py says, and in a .tsv a tab separates and all else is text: quotes have no meaning, and "NA" or "null"
is a word like any other.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nmt.data.splits import SPLIT_OF, Pair, Reader, refuse_pipes
from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import parse_json, read_lines

FORMATS = (".tsv", ".jsonl")
CODE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")  # a language in a header: en, pt-BR, zh_Hans


def format_of(path: Path) -> str | None:
    """`.tsv` or `.jsonl`, where the file's name says that it is one."""
    name = path.name.removesuffix(".gz")
    return next((ending for ending in FORMATS if name.endswith(ending)), None)


def table_files(folder: Path) -> dict[str, Path]:
    """The tables that are named as a split: split -> path. Raises UsageError where a split has two."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        stem = path.name.partition(".")[0]
        if stem in SPLIT_OF and path.name.removesuffix(".gz") in {stem + ending for ending in FORMATS}:
            if other := files.get(SPLIT_OF[stem]):
                raise UsageError(f"{folder}: {other.name} and {path.name} are the same split twice; remove one")
            files[SPLIT_OF[stem]] = path
    return files


def read_table(path: Path, source: str, target: str) -> Reader:
    """The reader of a .tsv or .jsonl file. Raises UsageError where its first line does not hold the two languages."""
    refuse_pipes(path)
    read = (_read_tsv if format_of(path) == ".tsv" else _read_jsonl)(path, source, target)
    next(read(), None)
    return Reader(read, (path,), format_of(path) or "")


def _read_tsv(path: Path, source: str, target: str) -> Callable[[], Iterator[Pair]]:
    def read() -> Iterator[Pair]:
        columns, left, right = 2, 0, 1  # without a header: source, target
        for number, line in enumerate(read_lines(path), 1):
            cells = line.split("\t")
            if number == 1 and (header := _header(cells, source, target)):
                if missing := [language for language in (source, target) if language not in header]:
                    raise UsageError(
                        f"{path}, line 1: no column '{missing[0]}'; languages found: {', '.join(cells)} "
                        "(if this is text and no header, put a line of the two language codes above it)"
                    )
                columns, left, right = len(header), header.index(source), header.index(target)
                continue
            if len(cells) != columns:
                raise UsageError(
                    f"{path}, line {number}: {counted(len(cells), 'column')} instead of {columns}; "
                    "one tab, and no more, stands between two columns"
                )
            yield cells[left], cells[right]

    return read


def _header(cells: list[str], source: str, target: str) -> list[str] | None:
    """The languages of the columns, where a first line names them: the two asked for in any case, or codes."""
    if sorted(map(str.lower, cells)) == sorted((source.lower(), target.lower())):
        return [source if cell.lower() == source.lower() else target for cell in cells]
    codes = len(cells) > 1 and len(set(cells)) == len(cells) and all(map(CODE.fullmatch, cells))
    return cells if codes else None


def _read_jsonl(path: Path, source: str, target: str) -> Callable[[], Iterator[Pair]]:
    def read() -> Iterator[Pair]:
        for number, line in enumerate(read_lines(path), 1):
            try:
                row = parse_json(line)
            except ValueError as error:
                said = getattr(error, "msg", None) or str(error)
                raise UsageError(f"{path}, line {number}: not JSON ({said}); each line must be one object") from None
            place = f"{path}, line {number}"
            if not isinstance(row, dict):
                raise UsageError(f"{place}: no JSON object; write one as {{{json.dumps(source)}: ..., ...}}")
            texts = row["translation"] if isinstance(row.get("translation"), dict) else row
            yield _cell(texts, source, place), _cell(texts, target, place)

    return read


def _cell(texts: dict[str, Any], language: str, place: str) -> str:
    """The text in this language as one line; none (null) is an empty one, as in the hub's data sets."""
    if language not in texts:
        raise UsageError(f"{place}: no key '{language}'; keys found: {', '.join(texts) or 'none'}")
    text = texts[language]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UsageError(f"{place}: '{language}' is no text but {json.dumps(text)[:40]}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{place}: '{language}' holds half of a surrogate pair, which is no character") from None
    return text.replace("\n", " ")
