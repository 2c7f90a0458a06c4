"""What the benchmarks share: contenders in processes of their own that take turns on one machine, and the table of results.

All contenders live at once, but one computes at a time: after a warm-up, every round asks each in turn for the same work, in
reverse order every other round, so that what drifts on the machine falls on all alike. A ratio is taken within a round; what is
printed is the median over the rounds, with the least and the greatest. A contender that cannot be built keeps its row.

Parent and contender speak in lines of JSON. `Contender` is the parent's end; `open_channel` and `serve` are the other. The
contenders' Pythons need not have nmt, nor PyTorch, so this file imports neither.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAUSE = 0.5  # seconds before each turn: threads of the one before may spin a while after their work


class Lost(Exception):
    """A contender could not be built, or failed at its work."""


class Contender:
    """The parent's end of a contender's process."""

    def __init__(self, name: str, precision: str, command: Sequence[str], folder: Path, threads: int) -> None:
        """`command` begins with the Python. What goes to stderr is kept in the folder."""
        self.name, self.precision = name, precision
        self.rounds: list[float] = []  # seconds
        self.facts: dict[str, Any] = {}
        self.errors = folder / f"{name} {precision}"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.name} {self.precision}"

    @property
    def lost(self) -> bool:
        return "lost" in self.facts

    def answer(self) -> dict[str, Any]:
        """The next line of JSON. Raises Lost if there is none."""
        assert self.process.stdout
        if line := self.process.stdout.readline():
            return dict(json.loads(line))
        status = self.process.wait()
        raise Lost((self.errors.read_text().strip() or f"it ended with {status}").splitlines()[-1])

    def ask(self, request: Any) -> dict[str, Any]:
        """The answer to a request. Raises Lost if there is none."""
        assert self.process.stdin
        time.sleep(PAUSE)
        with suppress(BrokenPipeError):  # it ended, and `answer` says why
            print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.answer()

    def prepare(self, request: Any) -> dict[str, Any]:
        """Wait until it is built, then give it a first turn, the warm-up. Returns that turn's answer; {} if it is lost."""
        try:
            self.facts = self.answer()
            self.facts["memory_before"] = self.facts["memory"]
            return self.ask(request)
        except Lost as reason:
            self.facts["lost"] = str(reason)
            return {}

    def turn(self, request: Any) -> None:
        """A timed turn, unless it is lost; what the answer says is added to the facts."""
        if self.lost:
            return
        try:
            done = self.ask(request)
        except Lost as reason:
            self.facts["lost"] = str(reason)
            return
        self.rounds.append(done.pop("seconds"))
        done["idle"] = max(done["idle"], self.facts.get("idle", 0.0))
        self.facts |= done

    def finish(self) -> dict[str, Any]:
        """Its last answer; the process ends."""
        with self.process:
            assert self.process.stdin
            self.process.stdin.close()
            return {} if self.lost else self.answer()


def in_turn(field: list[Contender], number: int) -> list[Contender]:
    """The order of a round."""
    return field if number % 2 == 0 else field[::-1]


def ratio(reference: list[float], own: list[float]) -> dict[str, float]:
    """How many times as fast as the reference: median over the rounds, the least, the greatest."""
    ratios = [theirs / mine for theirs, mine in zip(reference, own, strict=True)]
    return {"ratio": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)}


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; short rows, those of the lost, are filled with empty cells."""
    full = [titles, *([*row, *[""] * (len(titles) - len(row))] for row in rows)]
    head, *body = (f"| {' | '.join(row)} |" for row in full)
    return "\n".join([head, "|---" * len(titles) + "|", *body])


def machine(threads: int) -> str:
    """What the numbers were measured on, in a phrase."""
    with Path("/proc/cpuinfo").open() as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    return f"{threads} threads on {cores} cores of {names[0] if names else 'a CPU'}, Python {platform.python_version()}"


def peak_memory(process: int | str = "self") -> float:
    """MiB that a process has held at most. Unlike getrusage's figure, the kernel's has nothing of the parent's."""
    [line] = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def open_channel() -> Callable[..., None]:
    """In a contender: how to answer. Whatever libraries print goes to stderr from now on."""
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(**facts: Any) -> None:
        print(json.dumps(facts), file=answers, flush=True)

    return answer


def serve(answer: Callable[..., None], work: Callable[[Any], dict[str, Any]]) -> None:
    """In a contender: do what each request says, until there are no more. Answers hold the seconds that the work took, the
    memory so far, and the processor's seconds spent while the contender should have been idle.
    """
    rested = time.process_time()
    for line in sys.stdin:
        request = json.loads(line)
        idle, began = time.process_time() - rested, time.perf_counter()
        done = work(request)
        seconds = time.perf_counter() - began
        answer(seconds=seconds, memory=peak_memory(), idle=idle, **done)
        rested = time.process_time()
