"""A file translated in parts: shared out over the processes that torchrun starts, and gone on with after a sudden end.

A part is a window of lines, and a small file beside the output when it is done. Each process makes every so-manieth; the first
one puts them together in order.
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

from nmt.lines import replace_text

DIGITS = 16  # of the digest in the folder's name
POLL = 0.1  # seconds between two looks at whether another process has made a part

Part = tuple[list[str], dict[str, list[int]]]  # what is written of its lines, and which line numbers have which flags


def process() -> tuple[int, int]:
    """This process's number and how many there are: those that torchrun has started, or this one alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Parts:
    """The parts of one translation."""

    def __init__(self, output: Path, file: Path, job: Sequence[object]) -> None:
        """Of the file's text as it is now; `job` is all else that its translation follows from."""
        with file.open("rb") as text:
            digest = hashlib.file_digest(text, "sha256")
        digest.update(repr(job).encode())
        self.output = output
        self.folder = output.with_name(f"{output.name}.{digest.hexdigest()[:DIGITS]}.parts")

    def __contains__(self, number: int) -> bool:
        return self._path(number).exists()

    def open(self) -> None:
        """Make the folder. Raises OSError where that cannot be."""
        self.folder.mkdir(exist_ok=True)

    def put(self, number: int, part: Part) -> None:
        replace_text(self._path(number), json.dumps(part, ensure_ascii=False))

    def get(self, number: int) -> Part:
        """A part; where another process is to make it, wait until it has: torchrun ends us if that one fails."""
        while number not in self:
            time.sleep(POLL)
        lines, flagged = json.loads(self._path(number).read_text(encoding="utf-8"))
        return lines, flagged

    def discard(self) -> None:
        """All is put together: delete the parts, and what is left of other translations into the same file."""
        name = re.compile(re.escape(self.output.name) + rf"\.[0-9a-f]{{{DIGITS}}}\.parts")
        for folder in self.folder.parent.iterdir():
            if name.fullmatch(folder.name):
                shutil.rmtree(folder, ignore_errors=True)

    def leave(self) -> int:
        """The end came early: returns how many parts are there to go on from; where none is, nothing is left behind."""
        with suppress(OSError):  # it holds something, or is not there
            self.folder.rmdir()
        return len(list(self.folder.glob("*.json")))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"
