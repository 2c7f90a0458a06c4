"""The rule of lines: what ends one, what is stripped, cleaned, blank or copied, and how faulty files are named."""

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nmt.errors import UsageError
from nmt.lines import bare_name, clean, decode_lines, is_blank, json_line, needs_no_translation, read_lines, write_gz

SEPARATORS = {
    "U+2028": "\u2028",
    "U+2029": "\u2029",
    "U+0085": "\u0085",
    "VT": "\v",
    "FF": "\f",
    "FS": "\x1c",
    "GS": "\x1d",
    "RS": "\x1e",
    "lone CR": "\r",
}


@pytest.mark.parametrize("separator", SEPARATORS.values(), ids=SEPARATORS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_only_lf_ends_a_line(tmp_path: Path, separator: str, suffix: str) -> None:
    """Characters that other readers break lines at stay inside the line, so the count is that of the LFs."""
    text = f"one{separator}two\nthree\n".encode()
    path = tmp_path / f"text{suffix}"
    path.write_bytes(gzip.compress(text) if suffix else text)
    assert list(read_lines(path)) == [f"one{separator}two", "three"]


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"\n\n", ["", ""]),
        (b"no end", ["no end"]),
        (b"a\nno end", ["a", "no end"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\r\n", [""]),
        (b"\xef\xbb\xbfHello .\r\nname\tvalue\r\nlast", ["Hello .", "name\tvalue", "last"]),
        (b"\xef\xbb\xbf\n", [""]),
        (b"\xef\xbb\xbf\xef\xbb\xbfa\n", ["\ufeffa"]),
        (b"a\n\xef\xbb\xbfb\nc\xef\xbb\xbf\n", ["a", "\ufeffb", "c\ufeff"]),
        (b" a \n", [" a "]),
    ],
)
def test_ends_and_byte_order_mark(tmp_path: Path, raw: bytes, lines: list[str]) -> None:
    """One trailing CR and a leading byte order mark are stripped, a last line without LF counts, all else is kept."""
    path = tmp_path / "text"
    path.write_bytes(raw)
    assert list(read_lines(path)) == lines


SCRIPTS = [
    "Ja\n",
    "Ich möchte „Öl“ – bitte.\r\nZwei\r\n",
    "Привет, мир.\nЕщё\n",
    "你好 世界。\n上海\n",
    "नमस्ते दुनिया\n",
    "สวัสดี ชาว\n",
    "안녕 하세요\n",
    "😀 no line feed",
]
WIDE = [f"utf-{width}{order}" for width in (16, 32) for order in ("", "-le", "-be")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", *WIDE])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_packed_and_wide_text_is_known_by_its_bytes(
    tmp_path: Path, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    """N3: UTF-16 and UTF-32, with a byte order mark or without, and gzip, xz and bzip2, whatever the name, or from a pipe."""
    for text in SCRIPTS:
        lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
        raw = pack(text.encode(encoding))
        (tmp_path / "TEXT.GZ").write_bytes(raw)
        assert list(read_lines(tmp_path / "TEXT.GZ")) == list(decode_lines(io.BytesIO(raw), "pipe")) == lines


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"PK\x03\x04\x14\0", "a ZIP archive"),
        (b"%PDF-1.7\n", "pdftotext"),
        (b"(\xb5/\xfd\x04\0", "`zstd -d`"),
        ("a\n".encode("utf-16") + b"\0", "begins as UTF-16-LE does, but is damaged"),
        (gzip.compress(b"a\n" * 99)[:20], "ended before the end"),
        (lzma.compress(b"a\n" * 99)[:40], "ended before the end"),
    ],
    ids=["zip", "pdf", "zstd", "torn UTF-16", "torn gzip", "torn xz"],
)
def test_what_is_no_text_is_refused_with_the_way_out(raw: bytes, said: str) -> None:
    """N3: each by its own name; nothing tells to convert it from Latin-1."""
    with pytest.raises(UsageError, match=said) as error:
        list(decode_lines(io.BytesIO(raw), "letter"))
    assert str(error.value).startswith("letter: ")
    assert "latin1" not in str(error.value)


@pytest.mark.parametrize(
    "text", ["before\0after\nok\n", "a\0b\n", "a\0b\0c\n", "\0\0\n", "\0" * 99, "F\x1cG\n", "a\tb\n"]
)
def test_zero_bytes_and_control_characters_are_not_yet_utf16(text: str) -> None:
    """N3: they are text in UTF-8, as ever, which `clean` makes spaces of."""
    assert list(decode_lines(io.BytesIO(text.encode()), "text")) == text.removesuffix("\n").split("\n")


@pytest.mark.parametrize(
    ("name", "bare"),
    [("a.en", "a.en"), ("a.en.gz", "a.en"), ("a.en.txt", "a.en"), ("a.en.txt.XZ", "a.en"), ("a.tsv.GZ", "a.tsv")],
)
def test_a_bare_name_tells_nothing_of_storage(name: str, bare: str) -> None:
    assert bare_name(Path("folder.txt") / name) == bare


def test_lines_are_read_as_they_are_asked_for() -> None:
    """A line is handed on before the next one is read, which a slow pipe depends on."""
    read = 0

    def pipe() -> Iterator[bytes]:
        nonlocal read
        for raw in (b"one\n", b"two\n"):
            read += 1
            yield raw

    lines = decode_lines(pipe(), "pipe")
    assert (next(lines), read) == ("one", 1)


@pytest.mark.parametrize("bad", [b"caf\xe9 au lait", b"\xff", b"\xed\xa0\x80", b"torn \xe2\x80", b"\xc0\xaf"])
def test_invalid_utf8_is_named(tmp_path: Path, bad: bytes) -> None:
    """What is not UTF-8 (Latin-1, surrogates, torn and overlong forms) is an error with the file's name and the line."""
    path = tmp_path / "latin1.en"
    path.write_bytes(b"fine\x0b\r\x0c\nfine\n" + bad + b"\nfine\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["fine\x0b\r\x0c", "fine"]
    with pytest.raises(UsageError, match=r"latin1\.en, line 3: not UTF-8"):
        next(lines)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    """A missing file, a directory and a torn or damaged .gz are errors naming the file, no other exception."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.gz").mkdir()
    packed = gzip.compress(os.urandom(10_000).hex().encode())
    (tmp_path / "torn.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "damaged.gz").write_bytes(packed[:2_000] + bytes(100) + packed[2_100:])
    for name in ("missing", "missing.gz", "folder", "folder.gz", "torn.gz", "damaged.gz"):
        with pytest.raises(UsageError) as error:
            list(read_lines(tmp_path / name))
        assert str(tmp_path / name) in str(error.value)


def test_clean_replaces_controls_alone() -> None:
    """Over all of Unicode, each control character and U+2028/9 becomes one space, and no other character changes."""
    every = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    cleaned = clean(every)
    assert len(cleaned) == len(every)
    changed = {before: after for before, after in zip(every, cleaned, strict=True) if before != after}
    controls = {character for character in every if unicodedata.category(character) == "Cc"}
    assert changed == dict.fromkeys(controls | {"\u2028", "\u2029"}, " ")


@pytest.mark.parametrize(
    "line", ["", " ", "\t", "\u00a0", "\u200b", "\ufeff", "\r", "\0", "\x85", "\u2028", "\u3000", " \u200b\t\ufeff "]
)
def test_blank(line: str) -> None:
    """White space, controls, U+200B and U+FEFF make a blank line, in any mixture."""
    assert is_blank(line)


@pytest.mark.parametrize("line", ["-", ".", "a", "\u200ba", "\u00ad", "\u200d", "...", "0", "\u0301"])
def test_not_blank(line: str) -> None:
    """Any other character, drawn or not, makes a line that is no blank."""
    assert not is_blank(line)


@pytest.mark.parametrize("line", ["-", "...", "***", "1.", "3.50 €", "12:30 – 14:00", "²", "١٢٣", "😀", "", "§ 7"])
def test_needs_no_translation(line: str) -> None:
    """Digits, punctuation and signs alone are their own translation."""
    assert needs_no_translation(line)


@pytest.mark.parametrize("line", ["Yes.", "ß", "漢", "1a", "3 km", "ŵ", "й", "– a –"])
def test_letters_need_translation(line: str) -> None:
    """One letter of any script is enough to need translation."""
    assert not needs_no_translation(line)


def test_write_gz_depends_on_the_lines_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packed bytes are the same under another name and at another time, and read back as the same lines."""
    lines = ["Grüße", "", "a\u2028b\x0bc", "😀 ", " last"]
    write_gz(tmp_path / "one.gz", lines)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    write_gz(tmp_path / "another.gz", iter(lines))
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "another.gz").read_bytes()
    assert list(read_lines(tmp_path / "one.gz")) == lines


def test_the_locale_changes_nothing(tmp_path: Path) -> None:
    """In an ASCII locale, files and the standard streams are UTF-8 all the same."""
    text = "Grüße\n漢\u2028字\n".encode()
    (tmp_path / "text").write_bytes(text)
    code = """
import sys
from pathlib import Path
from nmt.lines import decode_lines, read_lines, standard_input, standard_output
for lines in (read_lines(Path("text")), decode_lines(standard_input(), "stdin")):
    standard_output().writelines(line.encode() + b"\\n" for line in lines)
print(sys.stdout.encoding, file=sys.stderr)
"""
    locale = {
        "LC_ALL": "C",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, cwd=tmp_path, env=os.environ | locale, check=True
    )
    assert done.stdout == text + text
    assert b"utf-8" not in done.stderr.lower()  # else the test would prove nothing


@pytest.mark.parametrize("text", [*SEPARATORS.values(), "\x7f", "\x9f", "\udcff", "\u0000", '"\\', "Müller → 你好 😀"])
def test_json_is_one_line_for_every_reader(text: str) -> None:
    """Whatever takes lines apart, and in UTF-8; it reads back as the same, and letters stay letters."""
    line = json_line({"text": f"a{text}b"})
    assert line.splitlines() == [line]
    assert json.loads(line.encode("utf-8")) == {"text": f"a{text}b"}
    assert "ü" not in text or text in line
