"""A file translated in parts: shared out over the processes that torchrun starts, and gone on with after a sudden end.

A part is a window of lines, and a small file beside the output when it is done. Of n processes each makes every n-th, and then
signs off with an empty file; the first one waits for that, and puts the parts together in order.

Files are all that the processes know of each other. On several machines the folder of the output has to be a shared one: of a
process that signs off elsewhere nothing can be seen, and the first one waits for it until torchrun is ended.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nmt.destination import Destination, writable
from nmt.errors import NmtError
from nmt.lines import replace_text, sha256_of

DIGITS = 16  # of the digests in the names
POLL = 0.1  # seconds between two looks at whether another process has signed off
RUN = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")  # tell one start of all processes from another

Flagged = dict[str, list[int]]  # which line numbers have which flags
Part = tuple[list[str], Flagged]  # what is written of its lines, and of which of them a reader should know something


def process() -> tuple[int, int]:
    """This process's number and how many there are: those that torchrun has started, or this one alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Parts:
    """The parts of one translation."""

    def __init__(self, destination: Destination, file: Path, job: Sequence[object]) -> None:
        """Of the file's text as it is now; `job` is all else that its translation follows from."""
        self.file, self.digest = file, sha256_of(file)
        digest = hashlib.sha256((self.digest + repr(job)).encode())
        run = hashlib.sha256(repr([os.environ.get(name) for name in RUN]).encode())
        output = self.output = destination.target
        self.destination = destination
        self.folder = output.with_name(f"{output.name}.{digest.hexdigest()[:DIGITS]}.parts")
        self.signature = f"{output.name}.{run.hexdigest()[:DIGITS]}.rank"
        self.rank, self.processes = process()
        if self.rank:
            with suppress(OSError):  # left by a run that was ended: on several machines runs may have one id
                self._signed(self.rank).unlink()

    def __contains__(self, number: int) -> bool:
        """Whether the part is there, as it was written."""
        return self._read(number) is not None

    def open(self) -> None:
        """Make the folder. Raises UsageError where that cannot be."""
        with writable(self.output):
            self.folder.mkdir(exist_ok=True)

    def put(self, number: int, part: Part) -> None:
        text = json.dumps(part)
        replace_text(self._path(number), f"{_seal(number, text)}\n{text}")

    def get(self, number: int) -> Part:
        """A part that was put. Raises NmtError where it is no more what was written."""
        text = self._read(number)
        if text is None:
            raise NmtError(f"{self._path(number)}: damaged, or gone; the same command makes it anew")
        lines, flagged = json.loads(text)
        return lines, flagged

    def _read(self, number: int) -> str | None:
        path = self._path(number)
        try:
            seal, _, text = path.read_bytes().decode().partition("\n") if path.is_file() else ("", "", "")
        except (OSError, UnicodeDecodeError):
            return None
        return text if seal == _seal(number, text) else None

    def text_changed(self) -> bool:
        """Whether the file is another than it was."""
        return sha256_of(self.file) != self.digest

    def sign_off(self) -> None:
        """This process has made its parts, and touches nothing from here on. Raises UsageError where it cannot say so."""
        with writable(self.output):
            self._signed(self.rank).touch()

    def wait(self, count: int) -> None:
        """Return once all other processes have signed off, and all `count` parts are there: torchrun ends us if one fails.

        Raises NmtError where a process has signed off without its parts: those that it made are of something else.
        """
        for rank in range(1, self.processes):
            while not self._signed(rank).exists():
                time.sleep(POLL)
            # Asked for one name, a network's file system may answer what it knew before.
            there = os.listdir(self.folder)
            if not {self._path(number).name for number in range(rank, count, self.processes)}.issubset(there):
                raise NmtError(
                    f"--output {self.output}: rank {rank} has translated another text, or with other weights; see that all "
                    "processes find the same ones, and that nothing changes them meanwhile"
                )

    def discard(self) -> None:
        """Delete the parts and signatures, and what is left of other translations into the same file."""
        name = re.compile(re.escape(self.output.name) + rf"\.[0-9a-f]{{{DIGITS}}}\.(parts|rank\d+)")
        for path in self.folder.parent.iterdir():
            if name.fullmatch(path.name):
                if path.suffix == ".parts":
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def leave(self) -> int:
        """The end came early: returns how many parts are there to go on from; where none is, nothing is left behind."""
        if self.rank == 0:  # others would take the folder from under those that still need it
            with suppress(OSError):  # it holds something, or is not there
                self.folder.rmdir()
        return len(list(self.folder.glob("*.json")))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"

    def _signed(self, rank: int) -> Path:
        return self.output.with_name(f"{self.signature}{rank}")


def _seal(number: int, text: str) -> str:
    """What only this text as this part begins with: a file that a failing disk or a hand has changed is made anew."""
    return hashlib.sha256(f"{number} {text}".encode()).hexdigest()
