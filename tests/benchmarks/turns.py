"""What the benchmarks share: contenders in processes of their own that take turns on one machine, and the table of results.

All contenders live at once, but one computes at a time: after a warm-up, every round asks each in turn for the same work, in
reverse order every other round, so that what drifts on the machine falls on all alike. A ratio is taken within a round; what is
printed is the median over the rounds, with the least and the greatest. A contender that cannot be built keeps its row.

Parent and contender speak in lines of JSON. `Contender` is the parent's end; `open_channel` and `serve` are the other. The
contenders' Pythons need not have nmt, nor PyTorch, so this file imports neither.
"""

import argparse
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

Row = dict[str, Any]  # what is measured of a contender

ROOT = Path(__file__).parents[2]
PAUSE = 0.5  # seconds before each turn: threads of the one before may spin a while after their work


class Lost(Exception):
    """A contender could not be built, or failed at its work."""


class Contender:
    """The parent's end of a contender's process."""

    def __init__(self, name: str, precision: str, command: Sequence[str], folder: Path, threads: int) -> None:
        """`command` begins with the Python. What goes to stderr is kept in the folder."""
        self.name, self.precision = name, precision
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

    def prepare(self, request: Any) -> dict[str, Any]:
        """Wait until it is built, then give it a first turn, the warm-up."""
        try:
            self.facts = self.answer()
        except Lost as reason:
            self.facts = {"lost": str(reason)}
            return {}
        self.facts["memory_before"] = self.facts["memory"]
        return self.turn(request)

    def turn(self, request: Any) -> dict[str, Any]:
        """The answer to a request; {} where the contender is lost, now or before."""
        if self.lost:
            return {}
        assert self.process.stdin
        time.sleep(PAUSE)
        try:
            with suppress(BrokenPipeError):  # it ended, and `answer` says why
                print(json.dumps(request), file=self.process.stdin, flush=True)
            done = self.answer()
        except Lost as reason:
            self.facts["lost"] = str(reason)
            return {}
        self.facts |= {"memory": done["memory"], "idle": max(done["idle"], self.facts.get("idle", 0.0))}
        return done

    def finish(self) -> dict[str, Any]:
        """Its last answer; the process ends."""
        with self.process:
            assert self.process.stdin
            self.process.stdin.close()
            return {} if self.lost else self.answer()


def race(
    entries: Sequence[tuple[Contender, Any]], rounds: int, each_round: Callable[[], None] = lambda: None
) -> list[list[dict[str, Any]]]:
    """For each contender and its request, the answers of all rounds; of the lost, fewer. Something may begin each round."""
    answers: list[list[dict[str, Any]]] = [[] for _ in entries]
    for number in range(rounds):
        each_round()
        for place, (contender, request) in list(enumerate(entries))[:: 1 if number % 2 == 0 else -1]:
            if done := contender.turn(request):
                answers[place].append(done)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return answers


def ratio(reference: list[float], own: list[float]) -> dict[str, float]:
    """How many times as fast as the reference: median over the rounds, the least, the greatest."""
    ratios = [theirs / mine for theirs, mine in zip(reference, own, strict=True)]
    return {"ratio": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)}


def table(rows: Sequence[Row], names: Sequence[str], columns: dict[str, Callable[[Row], str]]) -> str:
    """In Markdown: what a row is of, under these names, then its numbers by title; of a lost contender why it is lost."""
    lines = []
    for row in rows:
        told = dict(row) | {"contender": f"{row['contender']} {row.get('version', '')}".strip()}
        cells = [f"lost: {row['lost']}"] if "lost" in row else [cell(row) for cell in columns.values()]
        lines.append([*(told[name] for name in names), *cells, *[""] * (len(columns) - len(cells))])
    head, *body = (f"| {' | '.join(line)} |" for line in [[*names, *columns], *lines])
    return "\n".join([head, "|---" * (len(names) + len(columns)) + "|", *body])


def compared(row: Row) -> str:
    """The ratio for a table."""
    return f"{row['ratio']:.2f} ({row['least']:.2f}-{row['greatest']:.2f})" if "ratio" in row else ""


def machine(threads: int) -> str:
    """What the numbers were measured on, in a phrase."""
    with Path("/proc/cpuinfo").open() as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    return f"{threads} threads on {cores} cores of {names[0] if names else 'a CPU'}, Python {platform.python_version()}"


def command_line(description: str, rounds: int) -> argparse.ArgumentParser:
    """The options that the benchmarks beside peers have in common."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable, help="a Python with transformers and joeynmt")
    parser.add_argument("--threads", type=int, default=2, help="for each contender (default: 2)")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"timed turns of each contender (default: {rounds})")
    parser.add_argument("--smoke", action="store_true", help="does it run: tiny sizes, two rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too, every round's seconds")
    return parser


def peak_memory() -> float:
    """MiB that this process has held at most. Unlike getrusage's figure, the kernel's has nothing of the parent's."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
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
