"""The rule of lines, for training text, the input of `nmt translate` and the files of `nmt score` alike.

A line ends at LF and nowhere else. One trailing CR and a leading byte order mark are stripped, a last line without LF counts,
and the encoding is UTF-8 whatever the locale. Python's text files also break lines at CR, and `str.splitlines` at nine more
characters; either would shift every later line of a parallel corpus.

Packed text, and text in UTF-16 or UTF-32, is recognised by its first bytes, whatever the file's name and from a pipe too.
"""

import bz2
import codecs
import gzip
import io
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from nmt.errors import UsageError
from nmt.storage import replace_bytes

BYTE_ORDER_MARK = "\ufeff"
ZERO_WIDTH_SPACE = "\u200b"

# Regular expressions of a file's first bytes.
UNPACKERS: dict[bytes, Callable[[Any], Any]] = {
    rb"\x1f\x8b": gzip.open,
    rb"\xfd7zXZ\x00": lzma.open,
    rb"BZh[1-9]1AY&SY": bz2.open,
}
NOT_TEXT = {
    rb"PK\x03\x04": "a ZIP archive, as .docx and .odt files are; save its content as plain text",
    rb"%PDF-": "a PDF; extract its text with `pdftotext`",
    rb"\x28\xb5\x2f\xfd": "packed by zstd; unpack it with `zstd -d`",
}
# For text without a mark: most of its characters are letters with smaller numbers than this if the encoding is right.
LETTER_LIMITS = {"utf-32-le": 0x110000, "utf-32-be": 0x110000, "utf-16-le": 0x2000, "utf-16-be": 0x2000}

# C0 and C1 controls (tab, CR, NUL and U+0085 among them), DEL and the two Unicode separators.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MARKUP = re.compile(r"<[/!?]?[A-Za-z-][^<>]*>|&#?\w+;")  # tags of HTML and XML, and entities
# Line separators that JSON leaves as they are, and surrogates, which file names may hold and UTF-8 cannot.
_UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def clean(line: str) -> str:
    """Replace every control character by one space, as the vocabulary expects it."""
    return line if line.isprintable() else _CONTROLS.sub(" ", line)  # printable lines have no control characters


def is_blank(line: str) -> bool:
    """Whether the line shows nothing: only white space, control characters, U+200B and U+FEFF."""
    return not clean(line).replace(ZERO_WIDTH_SPACE, "").replace(BYTE_ORDER_MARK, "").strip()


def needs_no_translation(line: str, copies: bool = True) -> bool:
    """Whether the line is its own translation: it has no letter outside its tags, only digits, punctuation and signs.

    For a model that does not copy such lines (`copies` is false), only blank lines and tags need no translation.
    """
    text = _MARKUP.sub("", line)
    return not any(map(str.isalpha, text)) and (copies or is_blank(text))


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield the lines of a binary stream, each as soon as it has arrived.

    A file or a pipe may be packed, or in UTF-16 or UTF-32; any other iterable must yield lines in UTF-8. Raises UsageError
    with `name` if it cannot be read or is not text, and with the line's number at the first invalid UTF-8.
    """
    try:
        for number, raw in enumerate(_utf8(stream, name) if isinstance(stream, io.BufferedIOBase) else stream, 1):
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{name}, line {number}: not UTF-8 (byte {error.start + 1} is 0x{raw[error.start]:02x}); "
                    "convert it first, for example with `iconv -f latin1 -t utf-8`"
                ) from None
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            yield line.removesuffix("\n").removesuffix("\r")
    except (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError) as error:  # damaged, or a failing disk
        raise UsageError(f"{name}: {getattr(error, 'strerror', None) or error}") from None


def _utf8(stream: io.BufferedIOBase, name: str) -> Iterable[bytes]:
    """The stream's lines, unpacked and in UTF-8. Raises UsageError if the first bytes show that it is not text."""
    if not hasattr(stream, "peek"):
        stream = io.BufferedReader(cast(io.RawIOBase, stream))
    head: bytes = stream.peek(1)  # everything that has arrived
    for magic, kind in NOT_TEXT.items():
        if re.match(magic, head):
            raise UsageError(f"{name}: not plain text but {kind}")
    for magic, unpack in UNPACKERS.items():
        if re.match(magic, head):
            return _utf8(unpack(stream), name)
    if encoding := _wide_encoding(head):
        return (line.encode() for line in io.TextIOWrapper(cast(IO[bytes], stream), encoding, newline="\n"))
    return stream


def _wide_encoding(head: bytes) -> str | None:
    """The encoding of UTF-16 or UTF-32 text, by its byte order mark; None for other text.

    Text without a mark is recognised by line feeds that have zero bytes beside them, and by characters that are mostly letters
    when read as units of two or four bytes.
    """
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # first, because UTF-16's mark begins UTF-32's
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    single_feeds = head.count(b"\n")
    for encoding, limit in LETTER_LIMITS.items() if 0 in head else ():
        feed = "\n".encode(encoding)
        units = [head[start : start + len(feed)] for start in range(0, len(head) - len(feed) + 1, len(feed))]
        feeds = units.count(feed)
        letters = sum(0 < int.from_bytes(unit, "little" if feed[0] else "big") < limit for unit in units)
        if 2 * feeds > single_feeds or (2 * letters > len(units) and (feeds or not single_feeds)):
            return encoding
    return None


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, plain or packed. Raises UsageError if it cannot be read."""
    try:
        with path.open("rb") as stream:
            yield from decode_lines(stream, str(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def bare_name(path: Path) -> str:
    """The file's name without the endings that say how its text is stored: train.en for train.en.txt.gz."""
    return re.sub(r"(?i)(\.txt)?(\.(gz|xz|bz2))?$", "", path.name)


def encode_lines(lines: Iterable[str]) -> Iterator[bytes]:
    """Inverse of `decode_lines`: doubles a leading BOM or trailing CR so that decoding restores it."""
    for number, line in enumerate(lines):
        mark = BYTE_ORDER_MARK if number == 0 and line.startswith(BYTE_ORDER_MARK) else ""
        end = "\r\n" if line.endswith("\r") else "\n"
        yield (mark + line + end).encode()


def write_gz(path: Path, lines: Iterable[str]) -> None:
    """Write a .gz whose bytes depend on the lines alone: its header has no time and no file name."""
    replace_bytes(path, gzip.compress(b"".join(encode_lines(lines)), mtime=0))


def json_line(value: Any) -> str:
    """JSON on one line, in valid UTF-8, even for readers that also end a line at U+2028."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def standard_input() -> IO[bytes]:
    """The bytes of stdin. Raises UsageError if the caller closed it."""
    if sys.stdin is None:
        raise UsageError("standard input is closed; name a file, or pipe text in")
    return sys.stdin.buffer


def standard_output() -> IO[bytes]:
    """The bytes of stdout, which neither the locale nor the platform changes. Raises UsageError if the caller closed it."""
    if sys.stdout is None:
        raise UsageError("standard output is closed; connect it to a file or a pipe")
    return sys.stdout.buffer
