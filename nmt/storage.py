"""Files and folders that are replaced as a whole: a reader, a kill or a full disk finds the old or the new, never a part.

New content is written beside the old under a name ending in `.part`, then renamed.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_bytes(path: Path, content: bytes) -> None:
    """Write or replace a file. Raises OSError with the file's name, and then leaves the old content in place."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)  # a full disk needs the space
        error.filename = error.filename or str(path)
        raise


def replace_text(path: Path, text: str) -> None:
    """`replace_bytes` for text, in UTF-8."""
    replace_bytes(path, text.encode("utf-8"))


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which replaces `folder` at the end, or is deleted if an exception ends the block."""
    part = folder.with_name(folder.name + ".part")
    remove(part)
    part.mkdir(parents=True)
    try:
        yield part
        for path in part.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        remove(folder)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)  # a full disk needs the space


def remove(path: Path) -> None:
    """Delete a file or folder if it exists; of a symbolic link only the link. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The hexadecimal SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
