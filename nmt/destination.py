"""Where `--output` leads: a file that is written elsewhere and put in place once it is whole, or a pipe or device.

What stands there keeps its name, its links, its owner and its mode. Another file takes its place where that changes none of
these; else, as on a mount or in a folder that cannot be written, the content is copied into it.
"""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from nmt.errors import NmtError, UsageError

SPECIAL = (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK)  # are written into as they are


class Destination:
    """What `--output` names."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where it cannot be written, so far as can be told before the work."""
        self.path, self.target = path, Path(os.path.realpath(path))  # as it was named, and behind all links
        with writable(path):
            there = self._status()
            self.is_file = not there or stat.S_IFMT(there.st_mode) not in SPECIAL
            # whether other files can be made beside it
            self.has_room = self.is_file and os.access(self.target.parent, os.W_OK | os.X_OK)
            if there and self.is_file:
                os.close(os.open(self.target, os.O_WRONLY))  # not possible for a folder either
            elif self.is_file and not self.has_room:
                fault = errno.EACCES if self.target.parent.is_dir() else errno.ENOENT
                raise OSError(fault, os.strerror(fault))

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """What is written here stands there at the end, or after an error what stood there before."""
        part = self.target.with_name(f"{self.target.name}.{os.getpid()}.part") if self.has_room else None
        try:
            with writable(self.path):
                try:
                    out = self._open(part)
                except OSError:
                    part = None  # what may stand there is another's
                    raise
            with out:
                yield out
                if self.is_file:
                    out.flush()
                    self._put(out, part)
        except OSError as error:
            raise NmtError(f"--output {self.path}: {error.strerror}") from None
        finally:
            if part:
                part.unlink(missing_ok=True)

    def _status(self) -> os.stat_result | None:
        try:
            return self.path.stat()
        except FileNotFoundError:
            return None

    def _open(self, part: Path | None) -> IO[bytes]:
        if not self.is_file:
            return self.path.open("wb")
        if part is None:
            return tempfile.TemporaryFile()
        out = part.open("x+b")
        if there := self._status():  # before anything is in it that others may not read
            os.fchmod(out.fileno(), stat.S_IMODE(there.st_mode))
        return out

    def _put(self, out: IO[bytes], part: Path | None) -> None:
        there, new = self._status(), os.fstat(out.fileno())
        if part and (not there or (there.st_nlink == 1 and _kept(there) == _kept(new))):
            with suppress(OSError):  # of a mount
                part.replace(self.target)
                return
        out.seek(0)
        with self.target.open("wb") as target:
            shutil.copyfileobj(out, target)


def _kept(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mode, status.st_uid, status.st_gid


@contextmanager
def writable(output: Path) -> Iterator[None]:
    """Raises UsageError for an OSError of what is opened at or beside the output, and NmtError where the disk is full."""
    try:
        yield
    except OSError as error:
        if not output.parent.is_dir():
            raise UsageError(f"--output {output}: there is no folder {output.parent}; make it first") from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise NmtError(f"--output {output}: {error.strerror}") from None
        raise UsageError(f"--output {output}: {error.strerror}; name a file that can be written") from None
