"""Where `--output` leads: a file that appears only when it is whole, or a pipe or device that is written to directly.

An existing file keeps its name, links, owner and mode. A new file is written beside it and renamed where that changes none of
these. Elsewhere (hard links, a file that a container mounts, a read-only folder) the complete content is copied into it.
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

WRITING_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)  # no fault of the name


class Destination:
    """The target of `--output`."""

    def __init__(self, path: Path, option: str = "--output") -> None:
        """Raises UsageError if it cannot be written, so that the user learns of it before the work. `option` named it."""
        self.option = option
        self.path, self.target = path, Path(os.path.realpath(path))  # as the user named it, and with all links followed
        with writing_to(path, option):
            self.is_file = not path.exists() or path.is_file() or path.is_dir()
            self.has_room = self.is_file and os.access(self.target.parent, os.W_OK)  # for other files beside it
            if self.is_file and path.exists():
                os.close(os.open(self.target, os.O_WRONLY))
            elif self.is_file and not self.has_room:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Yields a file to write. The target has its content after the block, or is unchanged if the block raises.

        Raises NmtError where the disk is full.
        """
        with writing_to(self.path, self.option), self._replacement() if self.is_file else self.path.open("wb") as out:
            yield out

    @contextmanager
    def _replacement(self) -> Iterator[IO[bytes]]:
        existing = self.target.stat() if self.target.exists() else None
        temporary = self.target.with_name(f"{self.target.name}.{os.getpid()}.part")
        with temporary.open("x+b") if self.has_room else tempfile.TemporaryFile() as out:
            try:
                if existing:  # before it holds anything that others may not read
                    os.fchmod(out.fileno(), stat.S_IMODE(existing.st_mode))
                yield out
                out.flush()
                if self.has_room and (not existing or (existing.st_nlink == 1 and existing.st_uid == os.geteuid())):
                    with suppress(OSError):  # a mounted file cannot be replaced
                        temporary.replace(self.target)
                        return
                out.seek(0)
                with self.target.open("wb") as target:
                    shutil.copyfileobj(out, target)
            finally:
                if self.has_room:
                    temporary.unlink(missing_ok=True)


@contextmanager
def writing_to(output: Path, option: str = "--output") -> Iterator[None]:
    """Turn an OSError into one sentence: NmtError for a full disk and the like, else UsageError."""
    try:
        yield
    except OSError as error:
        if error.errno in WRITING_FAULTS:
            raise NmtError(f"{option} {output}: {error.strerror}") from None
        fault = error.strerror if output.parent.is_dir() else f"there is no folder {output.parent}"
        raise UsageError(f"{option} {output}: {fault}; name a file that can be written") from None
