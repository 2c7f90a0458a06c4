"""What whole `nmt translate` processes take: threads (fault S1), a cold start, files, and the memory of long pipes.

    .venv/bin/python -m tests.benchmarks.processes --model german --json processes.json

Every case is the command itself, from its start to its end, on the model's test set repeated as often as it takes. The cases
of a group take turns, in reverse order every other round; speeds and peak memory are compared with the group's first case.
Memory is what one process has held at most, the imports included.

- Threads: nobody should have to know that there is such a thing. Left alone, bound to two cores by taskset, or two commands at
  once, nmt must be about as fast as with OMP_NUM_THREADS=2 (two at once: both together).
- Cold start: one line, from the command to its translation.
- Files: the same file through PyTorch and through what `nmt export` wrote.
- Pipes: `cat FILE | nmt translate`, once each. Five times the lines may not need more memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from nmt.model_directory import ModelDirectory
from tests.benchmarks import turns
from tests.benchmarks.translation import export, make_miniature

TORCH = "torch"
ENGINES = (TORCH, "ctranslate2 fp32", "ctranslate2 int8")
LINES = 2_000  # of a file
PIPED = (20_000, 100_000)


@dataclass(frozen=True)
class Case:
    """A command, or several at once."""

    name: str
    lines: int
    engine: str = TORCH
    copies: int = 1
    threads: int | None = None  # OMP_NUM_THREADS
    bound: bool = False  # to two cores
    piped: bool = False


def groups(lines: int, piped: Iterable[int], rounds: int) -> list[tuple[int, list[Case]]]:
    """Rounds, and the cases that take turns in them."""
    return [
        (
            rounds,
            [
                Case("threads: OMP_NUM_THREADS=2", lines, threads=2),
                Case("threads: left alone", lines),
                Case("threads: taskset to two cores", lines, bound=True),
                Case("threads: two at once", lines, copies=2),
            ],
        ),
        (rounds, [Case(f"cold start: {engine}", 1, engine) for engine in ENGINES]),
        (rounds, [Case(f"file: {engine}", lines, engine) for engine in ENGINES]),
        *((1, [Case(f"pipe: {engine}", count, engine, piped=True) for count in piped]) for engine in ENGINES),
    ]


def run(case: Case, models: dict[str, dict[str, str]], beam: int, folder: Path) -> tuple[float, float]:
    """Seconds, and the peak memory of one process in MiB. Raises Lost if a command fails, or loses a line."""
    engine, _, precision = case.engine.partition(" ")
    where = models[precision]
    if "lost" in where:
        raise turns.Lost(where["lost"])
    file = folder / f"{case.lines}.txt"
    command = [sys.executable, "-m", "nmt", "translate", "-" if case.piped else str(file), "--beam", str(beam)]
    command += ["--model", where["model"], "--quiet"] + (["--engine", engine] if engine != TORCH else [])
    if case.bound:
        command = ["taskset", "--cpu-list", ",".join(map(str, sorted(os.sched_getaffinity(0))[:2])), *command]
    threads = {"OMP_NUM_THREADS": str(case.threads)} if case.threads else {}
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | threads
    sources, processes, outputs = [], [], [folder / f"{copy}.out" for copy in range(case.copies)]
    began = time.perf_counter()
    for output in outputs:
        source = subprocess.Popen(["cat", str(file)], stdout=subprocess.PIPE) if case.piped else None
        with output.open("wb") as out, Path(f"{output}.err").open("wb") as errors:
            process = subprocess.Popen(
                command, stdin=source.stdout if source else subprocess.DEVNULL, stdout=out, stderr=errors,
                env=environment, cwd=turns.ROOT,
            )  # fmt: skip
        processes.append(process)
        if source and source.stdout:
            source.stdout.close()  # the command's alone now
            sources.append(source)
    peak = watch(processes)
    seconds = time.perf_counter() - began
    for source in sources:
        source.wait()
    for process, output in zip(processes, outputs, strict=True):
        written = output.read_bytes().count(b"\n")
        if process.returncode or written != case.lines:
            said = Path(f"{output}.err").read_text().strip().splitlines()
            raise turns.Lost(said[-1] if said else f"{written:,} of {case.lines:,} lines")
    return seconds, peak


def watch(processes: list[subprocess.Popen[bytes]]) -> float:
    """Wait until all have ended. Returns the most that one of them has held, in MiB."""
    peak, ended = 0.0, threading.Event()

    def look() -> None:
        nonlocal peak
        while not ended.wait(0.05):
            for process in processes:
                with suppress(OSError, ValueError):  # it has ended
                    peak = max(peak, turns.peak_memory(process.pid))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for process in processes:
            process.wait()
    finally:
        ended.set()
        watcher.join()
    return peak


def measure(
    cases: list[Case], rounds: int, models: dict[str, dict[str, str]], beam: int, folder: Path
) -> list[dict[str, Any]]:
    """The rows of a group."""
    rows: list[dict[str, Any]] = [
        {"case": case.name, "lines": case.copies * case.lines, "seconds": []} for case in cases
    ]
    for number in range(rounds):
        for case, row in list(zip(cases, rows, strict=True))[:: 1 if number % 2 == 0 else -1]:
            if "lost" in row:
                continue
            try:
                seconds, memory = run(case, models, beam, folder)
            except turns.Lost as reason:
                row["lost"] = str(reason)
                continue
            row["seconds"].append(seconds)
            row["memory"] = max(memory, row.get("memory", 0.0))
            print(f"{case.name}, {case.lines:,} lines: {seconds:.1f} s, {memory:,.0f} MiB", file=sys.stderr)
    first = rows[0]
    for row in rows:
        if "lost" in row:
            continue
        row["lines_per_second"] = median(row["lines"] / seconds for seconds in row["seconds"])
        if "lost" not in first:
            per_line = [[seconds / each["lines"] for seconds in each["seconds"]] for each in (first, row)]
            row |= turns.ratio(*per_line) | {"memory_ratio": row["memory"] / first["memory"]}
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The results in Markdown."""
    titles = ["command", "lines", "seconds", "lines/s", "x the first of its kind (least-greatest)", "peak memory, MiB"]
    titles += ["x the first's"]
    lines = []
    for row in rows:
        start = [row["case"], f"{row['lines']:,}"]
        if "lost" in row:
            lines.append([*start, f"lost: {row['lost']}"])
            continue
        compared = f"{row['ratio']:.2f} ({row['least']:.2f}-{row['greatest']:.2f})" if "ratio" in row else ""
        lines.append(
            [
                *start, f"{median(row['seconds']):,.2f}", f"{row['lines_per_second']:,.1f}", compared,
                f"{row['memory']:,.0f}", f"{row['memory_ratio']:.2f}" if "memory_ratio" in row else "",
            ]
        )  # fmt: skip
    return turns.markdown(titles, lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", "-m", type=Path, default=Path("model"), help="the model directory (default: model)")
    parser.add_argument("--rounds", type=int, default=5, help="of each group but the pipes (default: 5)")
    parser.add_argument("--beam", type=int, default=4, help="as for nmt translate (default: 4)")
    parser.add_argument("--no-pipes", action="store_true", help="leave out the pipes, which take by far the longest")
    parser.add_argument("--smoke", action="store_true", help="does it run: a tiny random model, a few lines, one round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too, every round's seconds")
    options = parser.parse_args(arguments)
    lines, piped = LINES, PIPED if not options.no_pipes else ()
    if options.smoke:
        lines, piped, options.rounds = 4, (4, 20), 1
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        directory = make_miniature(folder / "miniature") if options.smoke else ModelDirectory(options.model)
        heldout = directory.read_heldout("test")
        if heldout is None:
            raise SystemExit(f"{directory.path}: the model's corpus had no test set to translate")
        for count in (1, lines, *piped):
            text = "".join(f"{line}\n" for line in islice(cycle(heldout[0]), count))
            (folder / f"{count}.txt").write_text(text, encoding="utf-8", newline="\n")
        models = {precision: export(directory, precision, folder) for precision in ("fp32", "int8")}
        models[""] = {"model": str(directory.path.resolve())}
        rows = []
        for rounds, cases in groups(lines, piped, options.rounds):
            rows += measure(cases, rounds, models, options.beam, folder)
    print(f"{turns.machine(2)}, beam {options.beam}.\n\n{table(rows)}")
    if options.json:
        options.json.write_text(json.dumps({"beam": options.beam, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
