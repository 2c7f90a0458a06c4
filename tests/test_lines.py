"""The rule of lines: what ends one, what is stripped, cleaned, blank or copied, and how faulty files are named."""

import bz2
import gzip
import io
import json
import lzma
import sys
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.errors import UsageError
from nmt.lines import (
    clean,
    decode_lines,
    encode_lines,
    is_blank,
    json_line,
    needs_no_translation,
    read_lines,
    write_gz,
)

SEPARATORS = ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\x1d", "\x1e", "\r"]


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_only_lf_ends_a_line(tmp_path: Path, separator: str, suffix: str) -> None:
    """D1: characters at which other readers break lines stay inside the line."""
    text = f"one{separator}two\nthree\n".encode()
    path = tmp_path / f"text{suffix}"
    path.write_bytes(gzip.compress(text) if suffix else text)
    assert list(read_lines(path)) == [f"one{separator}two", "three"]


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"", []),
        (b"a\nno end", ["a", "no end"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"\xef\xbb\xbfHello .\r\nname\tvalue\r\nlast", ["Hello .", "name\tvalue", "last"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfa\n", ["\ufeffa"]),
        (b"a\n\xef\xbb\xbfb\nc\xef\xbb\xbf\n", ["a", "\ufeffb", "c\ufeff"]),
    ],
)
def test_ends_and_byte_order_mark(raw: bytes, lines: list[str]) -> None:
    """U4: one trailing CR and a leading byte order mark are stripped, a last line without LF counts, all else is kept."""
    assert list(decode_lines(io.BytesIO(raw), "text")) == lines


SCRIPTS = ["„Öl“ – bitte.\r\nZwei\r\n", "Привет.\nЕщё\n", "你好 世界。\n上海\n", "😀 ok"]
WIDE = [f"utf-{width}{order}" for width in (16, 32) for order in ("", "-le", "-be")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", *WIDE])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_packed_and_wide_text_is_known_by_its_bytes(tmp_path: Path, encoding: str, pack: Callable[[bytes], bytes]) -> None:
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
        ("a\n".encode("utf-16") + b"\0", "utf-16"),
        (gzip.compress(b"a\n" * 99)[:20], "ended before the end"),
        (gzip.compress(b"a\n" * 99)[:-8] + bytes(8), "CRC"),
    ],
    ids=["zip", "pdf", "zstd", "torn UTF-16", "torn gzip", "damaged gzip"],
)
def test_what_is_no_text_is_refused_with_the_way_out(raw: bytes, said: str) -> None:
    """N3: each by its own name, without advice to convert it from Latin-1."""
    with pytest.raises(UsageError, match=f"letter: .*{said}") as error:
        list(decode_lines(io.BytesIO(raw), "letter"))
    assert "latin1" not in str(error.value)


@pytest.mark.parametrize("bad", [b"caf\xe9 au lait", b"\xff", b"\xed\xa0\x80", b"torn \xe2\x80", b"\xc0\xaf"])
def test_invalid_utf8_is_named(tmp_path: Path, bad: bytes) -> None:
    """D2: what is not UTF-8 is an error with the file's name and the line, after the lines before it."""
    path = tmp_path / "latin1.en"
    path.write_bytes(b"fine\x0b\r\x0c\nfine\n" + bad + b"\nfine\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["fine\x0b\r\x0c", "fine"]
    with pytest.raises(UsageError, match=r"latin1\.en, line 3: not UTF-8"):
        next(lines)
    with pytest.raises(UsageError, match="missing: No such file"):
        next(read_lines(tmp_path / "missing"))


def test_clean_replaces_controls_alone() -> None:
    """Over all of Unicode, each control character and U+2028/9 becomes one space, and no other character changes."""
    every = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    changed = {before: after for before, after in zip(every, clean(every), strict=True) if before != after}
    controls = {character for character in every if unicodedata.category(character) == "Cc"}
    assert changed == dict.fromkeys(controls | {"\u2028", "\u2029"}, " ")


def test_blank() -> None:
    """B4: white space, controls, U+200B and U+FEFF make a blank line, in any mixture, and any other character does not."""
    for line in ("", " ", "\u00a0", "\u200b", "\ufeff", "\r", "\0", "\x85", "\u2028", "\u3000", " \u200b\t\ufeff "):
        assert is_blank(line), ascii(line)
    for line in ("-", ".", "a", "\u200ba", "\u00ad", "\u200d", "...", "0", "\u0301"):
        assert not is_blank(line), ascii(line)


def test_needs_no_translation() -> None:
    """B4: digits, punctuation, signs and tags are their own translation; one letter of any script is not."""
    for line in ("-", "...", "***", "1.", "3.50 €", "12:30 – 14:00", "²", "١٢٣", "😀", "", "<b>§ 7</b>"):
        assert needs_no_translation(line), line
    for line in ("Yes.", "ß", "漢", "1a", "3 km", "ŵ", "й", "– a –", "ª", "ʰ"):
        assert not needs_no_translation(line), line
    assert not needs_no_translation("3.50", copies=False)
    assert needs_no_translation("<br> ", copies=False)


def test_held_out_lines_come_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also lines that begin or end with what reading strips. The packed bytes depend on neither name nor time."""
    lines = ["\ufeff\ufeffGrüße\r", "\r", "", "a\u2028b\x0bc", "😀 ", "\ufeff last\r\r"]
    assert list(decode_lines(io.BytesIO(b"".join(encode_lines(lines))), "text")) == lines
    write_gz(tmp_path / "one.gz", lines)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    write_gz(tmp_path / "another.gz", iter(lines))
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "another.gz").read_bytes()
    assert list(read_lines(tmp_path / "one.gz")) == lines


@pytest.mark.parametrize("text", [*SEPARATORS, "\x7f", "\x9f", "\udcff", "\u0000", '"\\', "Müller → 你好 😀"])
def test_json_is_one_line_for_every_reader(text: str) -> None:
    """It is valid UTF-8 and reads back the same; letters stay letters."""
    line = json_line({"text": f"a{text}b"})
    assert line.splitlines() == [line]
    assert json.loads(line.encode("utf-8")) == {"text": f"a{text}b"}
    assert "ü" not in text or text in line
