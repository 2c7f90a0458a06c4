"""Both languages in one file: what a .tsv and a .jsonl hold, to the character, and what of them is refused."""

import gzip
import json
import re
from pathlib import Path

import pytest

from nmt.data.corpus import load
from nmt.data.splits import Pair
from tests.conftest import write_corpus
from tests.data.conftest import complaint, numbered, splits

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
    """Quotes, NA, backslashes, spaces and every line break but LF are text; without a header columns are as asked."""
    path = write(tmp_path / name, tsv(ODD))
    assert read(path) == read(path, "fr", "cs") == ODD
    assert load(str(path), "en", "de").name == name


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.jsonl.gz"])
@pytest.mark.parametrize("nested", [True, False])
def test_an_object_a_line(tmp_path: Path, name: str, nested: bool) -> None:
    """A `translation` object or a key a language, as on the hub, give the same text."""
    assert read(write(tmp_path / name, jsonl(ODD, nested))) == ODD


def test_a_header_names_the_columns(tmp_path: Path) -> None:
    """Columns go by the codes of a first line, in any order, both ways, and of any number of languages."""
    path = write(tmp_path / "mine.tsv", tsv([("eins", "one"), ("zwei", "two")], "de\ten\n"))
    assert read(path) == [("one", "eins"), ("two", "zwei")]
    assert read(path, "de", "en") == [("eins", "one"), ("zwei", "two")]
    many = write(tmp_path / "many.tsv", b"fr\tpt-BR\tzh_Hans\nun\tum\t\xe4\xb8\x80\n")
    assert read(many, "zh_Hans", "fr") == [("\u4e00", "un")]
    assert "no column 'de'; languages found: fr, pt-BR, zh_Hans" in complaint(many, "fr", "de")


def test_a_header_in_capitals_is_one_too(tmp_path: Path) -> None:
    """Taken for text, it would train the other direction."""
    assert read(write(tmp_path / "capitals.tsv", b"DE\tEN\nHaus\thouse\n")) == [("house", "Haus")]


@pytest.mark.parametrize(
    "header",
    [
        "German\tEnglish",
        '"de"\t"en"',
        "'DE'\t'EN'",
        "deu\teng",
        "Deutsch\tEnglisch",
        "text_de\ttext_en",
        "Target\tSource",
    ],
)
def test_a_header_in_words_is_one_too(tmp_path: Path, header: str) -> None:
    """N37: names of languages, quoted codes, codes of three letters, and the words source and target, in any order."""
    path = write(tmp_path / "words.tsv", f"{header}\nHaus\thouse\n".encode())
    assert read(path) == [("house", "Haus")]


def test_columns_beside_the_two_may_have_any_name(tmp_path: Path) -> None:
    """N37: as tables from elsewhere have them."""
    path = write(tmp_path / "many.tsv", b"id\tEnglish\tGerman\tlicence\n1\thouse\tHaus\tCC BY\n")
    assert read(path) == [("house", "Haus")]


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("original\ttranslation", "none"),
        ("sentence1\tsentence2", "none"),
        ("EN\tFR", "en, fr"),
        ("French\ten", "fr, en"),
    ],
)
def test_a_header_that_is_not_understood_is_refused(tmp_path: Path, header: str, found: str) -> None:
    """N37: it is no pair, and the order of the columns is not known; what to write is said."""
    message = complaint(write(tmp_path / "mine.tsv", f"{header}\nHaus\thouse\n".encode()))
    assert re.search(
        rf"line 1: no column '(en|de)'; languages found: {found} .* put a line of two codes above it", message
    )


@pytest.mark.parametrize(
    "line",
    [
        *("Hi\tHallo", "no\tno", "en\tDie", "en de\tde", "Go.\tGeh.", "It\tEs", "No\tSi", "He\tEr"),
        *(
            "German\tDeutsch",
            "French\tFranzösisch",
            "Text\ttext",
            "Input\tEingabe",
            "Text 1\tText 1",
            "English text\tDas",
        ),
    ],
)
def test_text_is_no_header(tmp_path: Path, line: str) -> None:
    """N37: a first line that does not call both columns by what a header is made of is the first pair."""
    path = write(tmp_path / "mine.tsv", f"{line}\nx\ty\n".encode())
    assert read(path) == [tuple(line.split("\t")), ("x", "y")]


def test_the_same_text_is_the_same_corpus(tmp_path: Path) -> None:
    """Text files, a .tsv with a header or none, and both kinds of .jsonl have one fingerprint, CRLF and BOM or not."""
    pairs = [("one", "eins"), ("two", "zwei")]
    crlf = b"\xef\xbb\xbf" + tsv(pairs, "en\tde\n").replace(b"\n", b"\r\n")
    tables = {"a.tsv": tsv(pairs), "b.tsv": crlf, "c.jsonl": jsonl(pairs), "d.jsonl.gz": jsonl(pairs, False)}
    paths = [write(tmp_path / name, content) for name, content in tables.items()]
    paths.append(write_corpus(tmp_path / "folder", train=pairs))
    assert len({load(str(path), "en", "de").train.sha256 for path in paths}) == 1


@pytest.mark.parametrize("valid", ["valid", "validation", "val", "dev"])
def test_a_folder_may_hold_tables(tmp_path: Path, valid: str) -> None:
    """Splits go by their names in every format, and each split may have its own."""
    write(tmp_path / "train.tsv.gz", tsv([("a", "A")]))
    write(tmp_path / f"{valid}.jsonl", jsonl([("v", "V"), ("w", "W")]))
    write_corpus(tmp_path, test=[("t", "T")])
    corpus = load(str(tmp_path), "en", "de")
    assert splits(corpus) == [[("a", "A")], [("v", "V"), ("w", "W")], [("t", "T")]]
    assert corpus.notes == ()


@pytest.mark.parametrize("other", ["train.jsonl", "train.tsv.gz", "train.en"])
def test_one_split_has_one_format(tmp_path: Path, other: str) -> None:
    """A split in two files that could each be meant is refused with both names."""
    write(tmp_path / "train.tsv", tsv(ODD))
    write(tmp_path / other, b"x\ty\n")
    message = complaint(tmp_path)
    assert "train.tsv" in message
    assert other in message


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("train.tsv", b"a\tb\nc\n", "line 2: 1 column instead of 2"),
        ("train.tsv", b"a\tb\nc\td\te\n", "line 2: 3 columns instead of 2"),
        ("train.tsv", b"en\tde\tfr\na\tb\n", "line 2: 2 columns instead of 3"),
        ("train.tsv", b"a\tb\n\n", "line 2: 1 column instead of 2"),
        ("train.tsv", b"a\tb\nc\td\xe9\n", "line 2: not UTF-8"),
        ("train.tsv", b"en\tfr\na\tb\n", "line 1: no column 'de'; languages found: en, fr"),
        ("train.jsonl", b'{"en": "a", "de": "b"}\n{"en": "c"\n', "line 2: not JSON"),
        ("train.jsonl", b'{"en": "a", "de": "b"}\n\n', "line 2: not JSON"),
        ("train.jsonl", b"[" * 100_000 + b"\n", "line 1: not JSON"),
        ("train.jsonl", b'["a", "b"]\n', "line 1: no JSON object"),
        ("train.jsonl", b'{"en": "a", "de": "b"}\n{"en": "a", "fr": "b"}\n', "line 2: no key 'de'; keys found: en, fr"),
        ("train.jsonl", b'{"translation": {"en": "a"}, "de": "b"}\n', "line 1: no key 'de'; keys found: en"),
        ("train.jsonl", b'{"en": "a", "de": 3}\n', "line 1: 'de' is no text but 3"),
        ("train.jsonl", b'{"en": "a", "de": "\\ud83d"}\n', "line 1: 'de' holds half of a surrogate pair"),
    ],
)
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_line_that_is_none_is_named(tmp_path: Path, name: str, content: bytes, said: str, packed: str) -> None:
    """Wrong columns, bad JSON, a missing key and what is no text are refused on loading with file and line."""
    path = write(tmp_path / (name + packed), content)
    assert f"{path}, {said}" in complaint(tmp_path)


def test_a_line_break_in_json_is_a_space(tmp_path: Path) -> None:
    """An escaped line feed does not make two lines of one, and null is an empty side, for cleaning to count."""
    path = write(tmp_path / "mine.jsonl", b'{"en": "a\\nb", "de": null, "id": 7}\n')
    assert read(path) == [("a b", "")]


def test_a_table_is_held_out_of_like_text(tmp_path: Path) -> None:
    """One file alone is a whole corpus: the same pairs are held out of it as of text files."""
    of_table = load(str(write(tmp_path / "mine.tsv", tsv(numbered(1_000)))), "en", "de")
    assert splits(of_table) == splits(load(str(write_corpus(tmp_path / "text", train=numbered(1_000))), "en", "de"))
    assert list(map(len, splits(of_table))) == [900, 50, 50]


def test_an_empty_table_is_an_empty_corpus(tmp_path: Path) -> None:
    """A file of no lines, or of a header alone, has no pairs, as empty text files have none."""
    assert read(write(tmp_path / "empty.tsv", b"")) == read(write(tmp_path / "header.tsv", b"en\tde\n")) == []
