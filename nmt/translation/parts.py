"""Finished windows in files beside the output: a killed translation resumes from them, and several processes share the work.

Every process that torchrun starts translates every n-th window and appends it to a file of its own: OUT.rank0.part,
OUT.rank1.part and so on. The first line of a file identifies the job, each further line holds a window, and a last line says
that the process has finished. The first process waits for the others' last lines, reads the windows in order and deletes the
files. When the same command is given again, every process keeps the windows in its file up to the first one that is torn or
whose source differs.

The processes share nothing but these files: on several machines the output must be in a folder that all of them see.
"""

import glob
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from nmt.destination import Destination, writing_to
from nmt.errors import NmtError
from nmt.process import this_process

POLL_INTERVAL = 0.1  # seconds

Flag = tuple[str, int]  # one of FLAGS, and the number of a line that has it
Window = tuple[list[str], list[Flag]]  # the output of each line, and what the user should know about these lines


class Parts:
    """The files of one output."""

    def __init__(self, destination: Destination, digests: list[str], job: str) -> None:
        """Cuts this process's file behind the last window that can be used.

        `digests` identify the source of each window, `job` everything else that decides the output.
        """
        self.destination, self.digests, self.process = destination, digests, this_process()
        self.header = _encoded([hashlib.sha256(job.encode()).hexdigest(), self.process.count])
        self.end = _encoded(["end", self.process.run])
        self.done = 0  # windows in this process's file
        path, usable = self._path(self.process.rank), 0
        if path.exists():
            for _, end in self._read(self.process.rank):
                self.done, usable = self.done + 1, end
            with writing_to(destination.path):
                os.truncate(path, usable)

    @property
    def pending(self) -> range:
        """The numbers of the windows that this process has yet to translate."""
        first = self.process.rank + self.done * self.process.count
        return range(first, len(self.digests), self.process.count)

    def append(self, window: Window) -> None:
        """Save the translation of the first pending window. Raises NmtError where the disk is full."""
        self._append(_encoded([self.digests[self.pending[0]], *window]))
        self.done += 1

    def finish(self) -> None:
        """Tell the first process that this one has translated its share."""
        self._append(self.end)

    def wait(self) -> None:
        """Return when all other processes have finished. If one fails, torchrun ends this one."""
        while not all(map(self._is_finished, range(1, self.process.count))):
            time.sleep(POLL_INTERVAL)

    def windows(self) -> Iterator[Window]:
        """All windows in order. Raises NmtError if a process has translated another text, or with another model."""
        readers = [self._read(rank) for rank in range(self.process.count)]
        for number in range(len(self.digests)):
            rank = number % self.process.count
            window, _ = next(readers[rank], (None, 0))
            if window is None:
                raise NmtError(f"{self._path(rank)}: damaged, or of another text or model; give the command again")
            yield window

    def delete(self) -> None:
        """Delete the files, and those that a translation by more processes may have left."""
        target = self.destination.target
        for path in target.parent.glob(f"{glob.escape(target.name)}.rank*.part"):
            path.unlink()

    def _path(self, rank: int) -> Path:
        target = self.destination.target
        return target.with_name(f"{target.name}.rank{rank}.part")

    def _read(self, rank: int) -> Iterator[tuple[Window, int]]:
        """The usable windows in a process's file, each with the position where its line ends."""
        with self._path(rank).open("rb") as file:
            if file.readline() != self.header:
                return
            for expected in self.digests[rank :: self.process.count]:
                line = file.readline()
                try:
                    digest, lines, flags = json.loads(line)
                except ValueError:  # torn, or the last line
                    return
                if digest != expected or not line.endswith(b"\n"):
                    return
                yield (lines, flags), file.tell()

    def _append(self, line: bytes) -> None:
        with writing_to(self.destination.path), self._path(self.process.rank).open("ab") as file:
            file.write(line if file.tell() else self.header + line)

    def _is_finished(self, rank: int) -> bool:
        with suppress(OSError), self._path(rank).open("rb") as file:
            file.seek(-len(self.end), os.SEEK_END)
            return file.read() == self.end
        return False


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"
