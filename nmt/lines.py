"""The one rule of lines, for training text, translate's input and score's files alike.

A line ends at LF and nowhere else. One trailing CR and a leading byte order mark are stripped, a last line without LF
counts, and the encoding is UTF-8 whatever the locale says. Python's own text files also break lines at CR, and
`str.splitlines` at nine further characters; either would shift every later line of a parallel corpus.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from nmt.errors import UsageError

BYTE_ORDER_MARK = "\ufeff"
INVISIBLE = "\u200b" + BYTE_ORDER_MARK  # drawn as nothing, yet no white space to str.isspace

# C0 and C1 controls (tab, CR, NUL and U+0085 among them), DEL and the two Unicode separators become a space.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Those of them that JSON does not escape by itself, and halves of surrogate pairs, which file names may hold.
_UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def clean(line: str) -> str:
    """The line as the vocabulary sees it: every control character replaced by one space, all else untouched."""
    return line if line.isprintable() else _CONTROLS.sub(" ", line)  # no control character is printable


def is_blank(line: str) -> bool:
    """Whether a reader would see nothing: white space, control characters, U+200B and U+FEFF alone."""
    return all(character.isspace() or character in INVISIBLE or _CONTROLS.match(character) for character in line)


def needs_no_translation(line: str) -> bool:
    """Whether the line holds no letter (digits, punctuation and signs alone), so that it is its own translation."""
    return not any(unicodedata.category(character).startswith("L") for character in line)


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of a binary stream that yields one LF-ended line at a time, as files and pipes do.

    Raises UsageError with `name` and the line's number at the first invalid UTF-8.
    """
    for number, raw in enumerate(stream, 1):
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


def open_binary(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked where the name ends in .gz. Raises UsageError if it cannot be opened."""
    try:
        return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a file, plain or .gz, read as they are asked for. Raises UsageError for what cannot be read."""
    with open_binary(path) as stream:
        try:
            yield from decode_lines(stream, str(path))
        except (OSError, EOFError, zlib.error) as error:  # a directory, a torn or false .gz, a failing disk
            raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


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
