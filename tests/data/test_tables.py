"""Both languages in one file: what a .tsv and a .jsonl hold, to the character, and what is refused."""

import gzip
import json
import re
from pathlib import Path

import pytest

from nmt.data.corpus import load
from nmt.data.splits import Pair
from tests.conftest import write_corpus
from tests.data.conftest import complaint, splits

# Text that readers of quoted CSV, or of other line breaks, change, join, split or lose.
ODD: list[Pair] = [
    ('"Hi', "Hallo"),
    ("NA", "null"),
    ('b" c', 'say ""B""'),
    ("'a', b;c", "\\t \\n \\N"),
    (" leading", "trailing "),
    ("", "empty"),
    ("A\u0085B\u2028C\x0bD\x0cE\x1cF", "price\r list"),
    ("# no comment", "\u00a0ﬁ 👩‍👧"),
]


def tsv(pairs: list[Pair], header: str = "") -> bytes:
    return (header + "".join(f"{source}\t{target}\n" for source, target in pairs)).encode()


def jsonl(pairs: list[Pair], nested: bool = True) -> bytes:
    rows = [{"en": source, "de": target} for source, target in pairs]
    return "".join(json.dumps({"translation": row} if nested else row) + "\n" for row in rows).encode()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(path: Path, source: str = "en", target: str = "de") -> list[Pair]:
    return list(load(str(path), source, target).train)


@pytest.mark.parametrize("name", ["mine.tsv", "mine.tsv.gz"])
def test_a_table_is_text_and_tabs(tmp_path: Path, name: str) -> None:
    """Quotes, NA, backslashes, spaces and every line break but LF are text. Without a header, the columns are as asked."""
    path = write(tmp_path / name, tsv(ODD))
    assert read(path) == read(path, "fr", "cs") == ODD
    assert load(str(path), "en", "de").name == name


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.jsonl.gz"])
@pytest.mark.parametrize("nested", [True, False])
def test_an_object_a_line(tmp_path: Path, name: str, nested: bool) -> None:
    """A `translation` object, or a key per language, as on the hub. A line feed is a space, and null an empty side."""
    assert read(write(tmp_path / name, jsonl([*ODD, ("a\nb", "")], nested))) == [*ODD, ("a b", "")]
    assert read(write(tmp_path / name, b'{"en": "a", "de": null, "id": 7}\n')) == [("a", "")]


def test_a_header_names_the_columns(tmp_path: Path) -> None:
    """Columns go by the codes of a first line, in any order, both ways, and of any number of languages."""
    path = write(tmp_path / "mine.tsv", tsv([("eins", "one"), ("zwei", "two")], "de\ten\n"))
    assert read(path) == [("one", "eins"), ("two", "zwei")]
    assert read(path, "de", "en") == [("eins", "one"), ("zwei", "two")]
    many = write(tmp_path / "many.tsv", b"fr\tpt-BR\tzh_Hans\nun\tum\t\xe4\xb8\x80\n")
    assert read(many, "zh_Hans", "fr") == [("\u4e00", "un")]
    assert "no column 'de'; languages found: fr, pt-BR, zh_Hans" in complaint(many, "fr", "de")


@pytest.mark.parametrize(
    "header",
    ["DE\tEN", "German\tEnglish", '"de"\t"en"', "deu\teng", "Target\tSource"],
)
def test_a_header_in_words_is_one_too(tmp_path: Path, header: str) -> None:
    """N37: names of languages, quoted codes, codes of three letters, and source and target. Further columns have any name."""
    assert read(write(tmp_path / "words.tsv", f"{header}\nHaus\thouse\n".encode())) == [("house", "Haus")]
    more = f"id\t{header}\tlicence\n1\tHaus\thouse\tCC BY\n"
    assert read(write(tmp_path / "more.tsv", more.encode())) == [("house", "Haus")]


@pytest.mark.parametrize(("header", "found"), [("sentence1\tsentence2", "none"), ("French\ten", "fr, en")])
def test_a_header_that_is_not_understood_is_refused(tmp_path: Path, header: str, found: str) -> None:
    """N37: it is not a pair, and the order of the columns is unknown."""
    message = complaint(write(tmp_path / "mine.tsv", f"{header}\nHaus\thouse\n".encode()))
    assert re.search(rf"line 1: no column '(en|de)'; languages found: {found} .* put a line of two codes above it", message)


@pytest.mark.parametrize("line", ["Hi\tHallo", "no\tno", "en\tDie", "It\tEs", "German\tDeutsch", "Text\ttext"])
def test_text_is_no_header(tmp_path: Path, line: str) -> None:
    """N37: a first line that does not name both columns as a header does is the first pair."""
    path = write(tmp_path / "mine.tsv", f"{line}\nx\ty\n".encode())
    assert read(path) == [tuple(line.split("\t")), ("x", "y")]


def test_the_same_text_is_the_same_corpus(tmp_path: Path) -> None:
    """Text files, a .tsv with or without a header, CRLF and BOM, and both kinds of .jsonl have one fingerprint."""
    pairs = [("one", "eins"), ("two", "zwei")]
    crlf = b"\xef\xbb\xbf" + tsv(pairs, "en\tde\n").replace(b"\n", b"\r\n")
    tables = {"a.tsv": tsv(pairs), "b.tsv": crlf, "c.jsonl": jsonl(pairs), "d.jsonl.gz": jsonl(pairs, False)}
    paths = [write(tmp_path / name, content) for name, content in tables.items()]
    paths.append(write_corpus(tmp_path / "folder", train=pairs))
    assert len({load(str(path), "en", "de").train.sha256 for path in paths}) == 1


def test_a_folder_may_hold_tables(tmp_path: Path) -> None:
    """Splits go by their names in every format, and each split may have its own."""
    write(tmp_path / "train.tsv.gz", tsv([("a", "A")]))
    write(tmp_path / "dev.jsonl", jsonl([("v", "V"), ("w", "W")]))
    write_corpus(tmp_path, test=[("t", "T")])
    corpus = load(str(tmp_path), "en", "de")
    assert splits(corpus) == [[("a", "A")], [("v", "V"), ("w", "W")], [("t", "T")]]
    assert corpus.notes == ()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("train.tsv", b"a\tb\nc\n", "line 2: 1 column instead of 2"),
        ("train.tsv", b"a\tb\nc\td\te\n", "line 2: 3 columns instead of 2"),
        ("train.tsv", b"a\tb\nc\td\xe9\n", "line 2: not UTF-8"),
        ("train.tsv", b"en\tfr\na\tb\n", "line 1: no column 'de'; languages found: en, fr"),
        ("train.jsonl", b'{"en": "a", "de": "b"}\n{"en": "c"\n', "line 2: no text in 'en' and 'de': {"),
        ("train.jsonl", b'["a", "b"]\n', "line 1: no text in 'en' and 'de': ["),
        ("train.jsonl", b'{"en": "a", "de": "b"}\n{"en": "a", "fr": "b"}\n', "line 2: no text in 'en' and 'de': {"),
        ("train.jsonl", b'{"en": "a", "de": 3}\n', "line 1: no text in 'en' and 'de': {"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    """Wrong columns, bad JSON, a missing key and what is not text are refused on loading, with file and line."""
    path = write(tmp_path / name, content)
    assert f"{path}, {said}" in complaint(tmp_path)
