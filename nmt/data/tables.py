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
from nmt.lines import bare_name, parse_json, read_lines

FORMATS = (".tsv", ".jsonl")
CODE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")  # a language in a header: en, pt-BR, zh_Hans
# What a header may call a language, as the code of two letters says: the code of three, its English name, its own.
NAMES = """
ar ara arabic العربية|bg bul bulgarian български|cs ces czech čeština|da dan danish dansk|de deu german deutsch|el ell greek
ελληνικά|en eng english englisch|es spa spanish español|et est estonian eesti|fa fas persian فارسی|fi fin finnish suomi|fr fra
french français|he heb hebrew עברית|hi hin hindi|hr hrv croatian hrvatski|hu hun hungarian magyar|id ind indonesian|it ita
italian italiano|ja jpn japanese 日本語|ko kor korean 한국어|lt lit lithuanian lietuvių|lv lav latvian latviešu|nl nld dutch
nederlands|no nor norwegian norsk|pl pol polish polski|pt por portuguese português|ro ron romanian română|ru rus russian
русский|sk slk slovak slovenčina|sl slv slovenian slovenščina|sr srp serbian српски|sv swe swedish svenska|th tha thai ไทย|tr
tur turkish türkçe|uk ukr ukrainian українська|vi vie vietnamese|zh zho chinese 中文
"""
CODE_OF = {name: names.split()[0] for names in NAMES.split("|") for name in names.split()}
# What else may stand in a header.
SIDE = {"source": 0, "src": 0, "target": 1, "tgt": 1, "trg": 1}
HEADINGS = set("id text sentence sentences segment original translation input output language".split()) | {*SIDE}  # noqa: SIM905


def format_of(path: Path) -> str | None:
    """`.tsv` or `.jsonl`, where the file's name says that it is one."""
    return next((ending for ending in FORMATS if bare_name(path).endswith(ending)), None)


def table_files(folder: Path) -> dict[str, Path]:
    """The tables that are named as a split: split -> path. Raises UsageError where a split has two."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        stem = path.name.partition(".")[0]
        if stem in SPLIT_OF and bare_name(path) in {stem + ending for ending in FORMATS}:
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
                    found = ", ".join(filter(None, header)) or "none"
                    raise UsageError(
                        f"{path}, line 1: no column '{missing[0]}'; languages found: {found} "
                        "(call the columns by language codes; if it is text and no header, put a line of two codes above it)"
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


def _header(cells: list[str], source: str, target: str) -> list[str | None] | None:
    """What the columns hold, where a first line tells: a language, or "" where a heading names none. None where it is text.

    Of more than two columns, those need not be told that hold neither of the two languages asked for.
    """
    header = [_heading(cell, (source, target)) for cell in cells]
    languages = [language for language in header if language]
    alike = len({*languages}) < len(languages) or len({cell.lower() for cell in cells}) < len(cells)
    told = None not in header or (len(cells) > 2 and {source, target} <= {*languages})
    return header if told and len(cells) > 1 and not alike else None


def _heading(cell: str, asked: tuple[str, str]) -> str | None:
    """The language that a header's cell names, by code or by name, as it is `asked` for; "" for none; None if it is text."""
    cell = cell.strip("\"' ")
    code_of = {language: CODE_OF.get(language.lower(), language.lower()) for language in asked}
    words = re.findall(r"[^\W\d_]+", cell)
    if (CODE.fullmatch(cell) and cell not in HEADINGS) or cell.lower() in map(str.lower, asked):
        words = [cell]
        named = [CODE_OF.get(cell.lower(), cell.lower())]
    else:  # a short word as German or English begin a sentence, such as It or Es, is none
        named = [
            CODE_OF[word.lower()]
            for word in words
            if word.lower() in CODE_OF and not (word.istitle() and len(word) < 4)
        ]
    headings = [word for word in words if word.lower() in HEADINGS]
    if not words or len(named) + len(headings) < len(words) or len(named) > 1:
        return None
    if not named:
        return next((asked[SIDE[word.lower()]] for word in headings if word.lower() in SIDE), "")
    return next(
        (language for language in asked if code_of[language] == named[0]), cell if CODE.fullmatch(cell) else named[0]
    )


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
