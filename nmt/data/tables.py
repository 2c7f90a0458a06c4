"""Both languages in one file: a .tsv with a column each, or a .jsonl with an object per line. Either may be compressed.

lines.py says what a line is. In a .tsv a tab separates and everything else is text: quotes have no meaning, and "NA" or "null"
is a word like any other.
"""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nmt.data.splits import LANGUAGE_CODE, Pair, Reader
from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import bare_name, read_lines
from nmt.writing import CODE_OF

FORMATS = (".tsv", ".jsonl")
# Words in a header that name no language. Some of them say which side a column is.
SIDE = {"source": 0, "src": 0, "target": 1, "tgt": 1, "trg": 1}
HEADINGS = {*SIDE, "id", "text", "sentence", "sentences", "segment", "original", "translation", "input", "output", "language"}


def format_of(path: Path) -> str | None:
    """`.tsv` or `.jsonl` if the file's name has that ending, compressed or not."""
    return next((ending for ending in FORMATS if bare_name(path).endswith(ending)), None)


def read_table(path: Path, source: str, target: str) -> Reader:
    """The reader of a .tsv or .jsonl file."""
    read = _read_tsv if format_of(path) == ".tsv" else _read_jsonl
    return Reader(partial(read, path, source, target), (path,), format_of(path) or "")


def _read_tsv(path: Path, source: str, target: str) -> Iterator[Pair]:
    columns, left, right = 2, 0, 1  # without a header: source, target
    for number, line in enumerate(read_lines(path), 1):
        cells = line.split("\t")
        if number == 1 and (header := _header(cells, (source, target))):
            if missing := [language for language in (source, target) if language not in header]:
                raise UsageError(
                    f"{path}, line 1: no column '{missing[0]}'; languages found: {', '.join(filter(None, header)) or 'none'} "
                    "(name the columns by language codes; if this is text and not a header, put a line of two codes above it)"
                )
            columns, left, right = len(header), header.index(source), header.index(target)
            continue
        if len(cells) != columns:
            raise UsageError(
                f"{path}, line {number}: {counted(len(cells), 'column')} instead of {columns}; "
                "exactly one tab separates two columns"
            )
        yield cells[left], cells[right]


def _header(cells: list[str], asked: tuple[str, str]) -> list[str | None] | None:
    """What the columns contain if this first line is a header (see `_heading`); None if it is text.

    Columns beside the two languages asked for may have any name.
    """
    header = [_heading(cell, asked) for cell in cells]
    languages = [language for language in header if language]
    repeated = len({*languages}) < len(languages) or len({cell.lower() for cell in cells}) < len(cells)
    understood = None not in header or (len(cells) > 2 and {*asked} <= {*languages})
    return header if understood and len(cells) > 1 and not repeated else None


def _heading(cell: str, asked: tuple[str, str]) -> str | None:
    """The language that a header's cell names by code or in words; "" for another heading; None if the cell is text.

    A language that was asked for is returned as it was asked for.
    """
    name = cell.strip("\"' ")
    if exact := [language for language in asked if language.lower() == name.lower()]:
        return exact[0]
    is_code = LANGUAGE_CODE.fullmatch(name)
    words = [name] if is_code else re.findall(r"[^\W\d_]+", name)
    others = [word.lower() for word in words if word.lower() in HEADINGS]
    # A short capitalised word is how a sentence begins: It, Es, No.
    known = [word for word in words if word.lower() in CODE_OF and not (word.istitle() and len(word) < 4)]
    languages = [word for word in (words if is_code else known) if word.lower() not in HEADINGS]
    if not words or len(languages) > 1 or len(languages) + len(others) < len(words):
        return None
    if languages:
        code = _code(languages[0])
        return next((language for language in asked if _code(language) == code), code)
    return next((asked[SIDE[word]] for word in others if word in SIDE), "")


def _code(language: str) -> str:
    return CODE_OF.get(language.lower(), language)


def _read_jsonl(path: Path, source: str, target: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), 1):
        try:
            row = json.loads(line)
            texts = row.get("translation", row)
            left, right = (_one_line(texts[language]) for language in (source, target))
        except (ValueError, KeyError, TypeError, AttributeError):  # not JSON, no such key, no object, no text
            example = json.dumps({source: "...", target: "..."}, ensure_ascii=False)
            raise UsageError(
                f"{path}, line {number}: no text in '{source}' and '{target}': {line:.80}; each line must be an object "
                f"such as {example}"
            ) from None
        yield left, right


def _one_line(text: str | None) -> str:
    """The text on one line; null is an empty one, as in the hub's data sets."""
    if text is None:
        return ""
    text.encode()  # raises ValueError for half of a surrogate pair
    return text.replace("\n", " ")
