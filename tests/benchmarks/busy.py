"""How much of its pace nmt keeps on a machine that is shared, beside other work on the same cores.

    .venv/bin/python -m tests.benchmarks.busy --model demo-model --data demo --json busy.json

Measured are the updates of `nmt train`, a text that comes all at once, as a file does, and a pipe that is answered line by
line, the last two with both engines. Beside them runs, by turns, nothing, two plain loops of Python, another `nmt translate`,
or another job of PyTorch on two threads. All are real commands that are up before anything is measured: what runs beside is
stopped and continued by signals. In every round each company comes right after a turn alone, and a ratio is that of such a
pair.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nmt.saved_model import SavedModel
from tests.benchmarks import turns

NMT = (sys.executable, "-m", "nmt")
LOOP = (sys.executable, "-c", "while True: pass")
JOB = (sys.executable, "-c", "import torch\ntorch.set_num_threads(2)\na = torch.ones(512, 512)\nwhile True: a @ a")
ENGINES = ("torch", "ctranslate2")
SETTLING = 0.5  # seconds after company has come or gone


class Work(ABC):
    """A command that works for as long as it is asked to."""

    unit: str

    def __init__(self, *command: str | Path, **pipes: Any) -> None:
        self.process = subprocess.Popen(
            [*NMT, *map(str, command), "--quiet"], cwd=turns.ROOT, stderr=subprocess.DEVNULL, **pipes
        )

    @abstractmethod
    def pace(self, seconds: float) -> float:
        """Units a second, over about so many seconds from now."""

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Training(Work):
    unit = "target tokens/s"

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__("train", "-m", folder, "--steps", "1000000", "--validate-every", "1000000", *options)
        self.log = folder / "metrics.jsonl"

    def events(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [event for event in map(json.loads, lines) if "tokens_per_second" in event]

    def pace(self, seconds: float) -> float:
        """Of whole intervals of the log that lie within."""
        first, end = len(self.events()) + 1, time.monotonic() + seconds
        while len(events := self.events()) <= first or time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"nmt train ended with {self.process.returncode}")
            time.sleep(0.05)
        return statistics.harmonic_mean(event["tokens_per_second"] for event in events[first:])


class Translating(Work):
    unit = "lines/s"

    def __init__(self, model: Path, engine: str, lines: Sequence[str], at_once: int) -> None:
        """So many lines are sent at once, and the next when all are answered. Many go in by a path, as a file does."""
        command = ("translate", "-" if at_once == 1 else "/dev/stdin", "-m", model, "--engine", engine)
        super().__init__(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.groups = [lines[start : start + at_once] for start in range(0, len(lines), at_once)]
        self.number = 0

    def pace(self, seconds: float) -> float:
        inbox, outbox = self.process.stdin, self.process.stdout
        assert inbox
        assert outbox
        answered, began = 0, time.monotonic()
        while (passed := time.monotonic() - began) < seconds or not answered:
            group = self.groups[self.number % len(self.groups)]
            inbox.write("".join(line + "\n" for line in group).encode())
            inbox.flush()
            for _ in group:
                if not outbox.readline():
                    raise RuntimeError(f"nmt translate ended with {self.process.wait()}")
            answered += len(group)
            self.number += 1
        return answered / passed


class Company:
    """Processes that run beside the work, but only when they are let."""

    def __init__(self, *commands: Sequence[str]) -> None:
        quiet: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        self.processes = [subprocess.Popen(command, cwd=turns.ROOT, **quiet) for command in commands]

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            process.send_signal(number)

    @contextmanager
    def there(self) -> Iterator[None]:
        self.signal(signal.SIGCONT)
        time.sleep(SETTLING)
        yield
        self.signal(signal.SIGSTOP)
        time.sleep(SETTLING)
        if any(process.poll() is not None for process in self.processes):
            raise RuntimeError("what ran beside the work has ended")

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def measure(work: Work, companies: dict[str, Company], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each company: units a second alone and beside it, and what was kept in each pair of turns."""
    work.pace(seconds)  # the warm-up
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in companies}
    for _ in range(rounds):
        for name, company in companies.items():
            alone = work.pace(seconds)
            with company.there():
                found[name].append((alone, work.pace(seconds)))
    return [
        {
            "company": name,
            "unit": work.unit,
            "alone": statistics.median(alone for alone, _ in pairs),
            "beside": statistics.median(beside for _, beside in pairs),
            "kept": [beside / alone for alone, beside in pairs],
        }
        for name, pairs in found.items()
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    columns = {
        "alone": lambda row: f"{row['alone']:,.1f} {row['unit']}",
        "beside": lambda row: f"{row['beside']:,.1f}",
        "kept": lambda row: f"{statistics.median(row['kept']):.2f} ({min(row['kept']):.2f}-{max(row['kept']):.2f})",
    }
    return turns.table(rows, ["contender", "company"], columns)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What nmt keeps of its pace beside other work.")
    parser.add_argument("--model", "-m", type=Path, default=Path("model"), help="to translate with (default: model)")
    parser.add_argument("--data", default="demo", help="to train on (default: demo)")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of turns for each company (default: 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn, at least (default: 3)")
    parser.add_argument("--lines", type=int, default=400, help="that come all at once (default: 400)")
    parser.add_argument("--wait", type=float, default=12, help="seconds until all that runs beside is up (default: 12)")
    parser.add_argument("--only", default="", help="works whose name begins so (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    options = parser.parse_args(arguments)
    text, _ = SavedModel.open(options.model).heldout("test") or ([], [])
    rows = []
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        folder = Path(root)
        (folder / "text").write_text("".join(line + "\n" for line in text * 10_000))
        works: dict[str, Callable[[], Any]] = {
            "nmt train": lambda: Training(folder / "model", "--data", options.data),
            **{
                f"{name}, {engine}": partial(Translating, options.model, engine, text, count)
                for name, count in (("file", options.lines), ("pipe", 1))
                for engine in ENGINES
            },
        }
        second = [*NMT, "translate", "-m", str(options.model), str(folder / "text")]
        companies = {
            "two loops": Company(LOOP, LOOP),
            "another nmt translate": Company(second),
            "PyTorch": Company(JOB),
        }
        for company in companies.values():
            stack.callback(company.close)
        time.sleep(options.wait)
        for company in companies.values():
            company.signal(signal.SIGSTOP)
        for name, begin in works.items():
            if not name.startswith(options.only):
                continue
            work = begin()
            try:
                for row in measure(work, companies, options.rounds, options.seconds):
                    rows.append({"contender": name} | row)
                    print(rows[-1], file=sys.stderr)
            finally:
                work.close()
    print(f"{turns.machine(len(os.sched_getaffinity(0)))}\n\n{table(rows)}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
