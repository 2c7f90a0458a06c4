"""The one rule of lines, for training text, translate's input and score's files alike.

A line ends at LF and nowhere else. One trailing CR and a leading byte order mark are stripped, a last line without LF
counts, and the encoding is UTF-8 whatever the locale says. Python's own text files also break lines at CR, and
`str.splitlines` at nine further characters; either would shift every later line of a parallel corpus.

Text that is packed, or in UTF-16 or UTF-32, is known by its first bytes and read all the same, from a pipe too.
"""

import bz2
import codecs
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from nmt.errors import UsageError

BYTE_ORDER_MARK = "\ufeff"
INVISIBLE = "\u200b" + BYTE_ORDER_MARK  # drawn as nothing, yet no white space to str.isspace

# What text may be packed by, and what is no text, by the first bytes of each.
PACKED: dict[bytes, Callable[[Any], Any]] = {
    rb"\x1f\x8b": gzip.open,
    rb"\xfd7zXZ\x00": lzma.open,
    rb"BZh[1-9]1AY&SY": bz2.open,
}
NO_TEXT = {
    rb"PK\x03\x04": "a ZIP archive, as .docx and .odt are; save what it holds as plain text",
    rb"%PDF-": "a PDF; `pdftotext` takes the text out of it",
    rb"\x28\xb5\x2f\xfd": "packed by zstd; unpack it with `zstd -d`",
}
MARKS = {  # the longer first, for UTF-16's is the beginning of UTF-32's
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Without a mark: the encoding, and a number that few of its characters reach.
WIDE = {"utf-32-le": 0x110000, "utf-32-be": 0x110000, "utf-16-le": 0x2000, "utf-16-be": 0x2000}

# C0 and C1 controls (tab, CR, NUL and U+0085 among them), DEL and the two Unicode separators become a space.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MARKUP = re.compile(r"<[/!?]?[A-Za-z-][^<>]*>|&#?\w+;")  # tags of HTML and XML, and entities
# Those of them that JSON does not escape by itself, and halves of surrogate pairs, which file names may hold.
_UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def clean(line: str) -> str:
    """The line as the vocabulary sees it: every control character replaced by one space, all else untouched."""
    return line if line.isprintable() else _CONTROLS.sub(" ", line)  # no control character is printable


def is_blank(line: str) -> bool:
    """Whether a reader would see nothing: white space, control characters, U+200B and U+FEFF alone."""
    return all(character.isspace() or character in INVISIBLE or _CONTROLS.match(character) for character in line)


def needs_no_translation(line: str, copies: bool = True) -> bool:
    """Whether the line is its own translation: it holds no letter (digits, punctuation and signs alone) but in its tags.

    Where a model `copies` no such lines, for its training text translates them, only blank ones and tags are.
    """
    text = _MARKUP.sub("", line)
    return not any(unicodedata.category(character)[0] == "L" for character in text) and (copies or is_blank(text))


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of a binary stream that yields one LF-ended line at a time, as files and pipes do.

    A file or a pipe may be packed, or in UTF-16 or UTF-32. Raises UsageError with `name` for what cannot be read, and at the
    first invalid UTF-8 with the line's number.
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
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:  # a torn packed file, a failing disk
        raise UsageError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: begins as {error.encoding.upper()} does, but is damaged ({error.reason}); convert it to UTF-8 first"
        ) from None


def _utf8(stream: io.BufferedIOBase, name: str) -> Iterable[bytes]:
    """The stream, unpacked and in UTF-8, by what its first bytes tell. Raises UsageError for what is no text."""
    if not hasattr(stream, "peek"):
        stream = io.BufferedReader(cast(io.RawIOBase, stream))
    head: bytes = stream.peek(1)  # all that is there
    for begin, what in NO_TEXT.items():
        if re.match(begin, head):
            raise UsageError(f"{name}: no plain text but {what}")
    for begin, unpack in PACKED.items():
        if re.match(begin, head):
            return _utf8(unpack(stream), name)
    if encoding := _wide(head):
        return (line.encode() for line in io.TextIOWrapper(cast(IO[bytes], stream), encoding, newline="\n"))
    return stream


def _wide(head: bytes) -> str | None:
    """The encoding of text in UTF-16 or UTF-32, by its byte order mark. Without one, by line feeds that have zero bytes beside
    them, and letters that are small numbers when they are read as two or four bytes.
    """
    if marked := next((encoding for mark, encoding in MARKS.items() if head.startswith(mark)), None):
        return marked
    narrow = head.count(b"\n")
    for encoding, beyond in WIDE.items() if 0 in head else ():
        feed = "\n".encode(encoding)
        units = [head[at : at + len(feed)] for at in range(0, len(head) - len(feed) + 1, len(feed))]
        feeds = units.count(feed)
        small = sum(0 < int.from_bytes(unit, "little" if feed[0] else "big") < beyond for unit in units)
        if 2 * feeds > narrow or (2 * small > len(units) and (feeds or not narrow)):
            return encoding
    return None


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a file, plain or packed, read as they are asked for. Raises UsageError for what cannot be read."""
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    with stream:
        yield from decode_lines(stream, str(path))


def bare_name(path: Path) -> str:
    """The file's name without the endings that only tell how its text is kept: train.en of train.en.txt.gz."""
    return re.sub(r"(?i)(\.txt)?(\.(gz|xz|bz2))?$", "", path.name)


def encode_lines(lines: Iterable[str]) -> Iterator[bytes]:
    """The bytes of which `decode_lines` makes these lines again: what it would strip of a line stands there twice."""
    for number, line in enumerate(lines):
        first = BYTE_ORDER_MARK * (number == 0 and line.startswith(BYTE_ORDER_MARK))
        last = "\r" * line.endswith("\r")
        yield f"{first}{line}{last}\n".encode()


def write_gz(path: Path, lines: Iterable[str]) -> None:
    """Write the lines to a .gz whose bytes depend on them alone (no time, no file name in its header)."""
    with path.open("wb") as raw:
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            packed.writelines(encode_lines(lines))
        raw.flush()
        os.fsync(raw.fileno())


def sha256_of(path: Path) -> str:
    """Of the file's bytes. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there; of a link the link alone, never what it leads to. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A new folder beside this one, which takes its place once all is written, and else leaves no trace."""
    part = folder.with_name(folder.name + ".part")
    remove(part)
    part.mkdir(parents=True)
    try:
        yield part
        for file in part.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
        remove(folder)
        part.rename(folder)
    finally:  # a full disk needs the space
        shutil.rmtree(part, ignore_errors=True)


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file beside and rename, so that a reader finds the old one or the new one, whole."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:  # a full disk needs the space
        part.unlink(missing_ok=True)
        error.filename = error.filename or str(path)
        raise


def replace_text(path: Path, text: str) -> None:
    """`replace_bytes` of text."""
    replace_bytes(path, text.encode("utf-8"))


def parse_json(text: str | bytes) -> Any:
    """The value. Raises ValueError for all that is none, also where it is nested too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def json_line(value: Any) -> str:
    """JSON on one line for every reader, also for those who end a line at U+2028, and in UTF-8 whatever it holds."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def standard_input() -> IO[bytes]:
    """The bytes of stdin. Raises UsageError where the caller closed it."""
    if sys.stdin is None:
        raise UsageError("standard input is closed; name a file, or pipe text in")
    return sys.stdin.buffer


def standard_output() -> IO[bytes]:
    """The bytes of stdout, so that neither the locale nor the platform changes what is written."""
    if sys.stdout is None:
        raise UsageError("standard output is closed; connect it to a file or a pipe")
    return sys.stdout.buffer
