"""Both languages in one file: a .tsv with a column each, or a .jsonl with an object per line. Either may be compressed.

lines.py says what a line is. In a .tsv a tab separates and everything else is text: quotes have no meaning, and "NA" or "null"
is a word like any other.
"""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from nmt.data.splits import LANGUAGE_CODE, Pair, Reader
from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import bare_name, read_lines

FORMATS = (".tsv", ".jsonl")
# Names of languages in a header, after their code of two letters: the code of three, the English name, the language's own name.
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
# Other words in a header. Some of them say which side a column is.
SIDE = {"source": 0, "src": 0, "target": 1, "tgt": 1, "trg": 1}
HEADINGS = {
    "id",
    "text",
    "sentence",
    "sentences",
    "segment",
    "original",
    "translation",
    "input",
    "output",
    "language",
    *SIDE,
}


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
    cell = cell.strip("\"' ")
    is_code = LANGUAGE_CODE.fullmatch(cell) is not None
    others: list[str] = []
    if (is_code and cell not in HEADINGS) or cell.lower() in map(str.lower, asked):
        codes = [_code(cell)]
    else:
        words = re.findall(r"[^\W\d_]+", cell)
        # A short capitalised word is how a sentence begins: It, Es, No.
        codes = [_code(word) for word in words if word.lower() in CODE_OF and not (word.istitle() and len(word) < 4)]
        others = [word.lower() for word in words if word.lower() in HEADINGS]
        if not words or len(codes) > 1 or len(codes) + len(others) < len(words):
            return None
    if codes:
        return next((language for language in asked if _code(language) == codes[0]), cell if is_code else codes[0])
    return next((asked[SIDE[word]] for word in others if word in SIDE), "")


def _code(language: str) -> str:
    return CODE_OF.get(language.lower(), language.lower())


def _read_jsonl(path: Path, source: str, target: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), 1):
        try:
            row = json.loads(line)
            texts = row["translation"] if isinstance(row, dict) and isinstance(row.get("translation"), dict) else row
            pair = _json_text(texts, source), _json_text(texts, target)
        except ValueError as error:
            reason = getattr(error, "msg", None) or error
            example = json.dumps({source: "...", target: "..."}, ensure_ascii=False)
            raise UsageError(f"{path}, line {number}: {reason}; each line must be an object such as {example}") from None
        yield pair


def _json_text(texts: Any, language: str) -> str:
    """The text in this language as one line; null is an empty one, as in the hub's data sets. Raises ValueError."""
    if not isinstance(texts, dict) or language not in texts:
        raise ValueError(f"no key '{language}'; keys found: {', '.join(texts) if isinstance(texts, dict) else 'none'}")
    text = texts[language]
    if not isinstance(text, str | None):
        raise ValueError(f"'{language}' is not text but {json.dumps(text)[:40]}")
    text = text or ""
    text.encode()  # half a surrogate pair is a UnicodeEncodeError, which is a ValueError
    return text.replace("\n", " ")
