"""Kill a training run at random moments, as a power cut would, and see that every resume continues bit for bit.

    .venv/bin/python -m tests.benchmarks.kills [KILLS] [--ranks 2]

One run goes straight through. Another is killed with SIGKILL, all of its processes at once, at moments drawn evenly over a
straight run's time (while preparing, training, saving, validating, writing), and begun again with the same command until it is
done. Both must leave the same weights, the same last training state and the same log but for its clocks, to the last byte.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from nmt.data.corpus import demo_folder
from nmt.lines import read_lines
from tests.conftest import torchrun, write_corpus

RECIPE = """
[model]
layers = 2
d_model = 64
heads = 4
d_ff = 128

[training]
steps = 300
tokens_per_update = 500
warmup = 100
vocab_size = 600
validate_every = 25
average = 3
precision = "fp32"
"""
CLOCKS = ("minutes", "tokens_per_second")


def start(folder: Path, name: str, ranks: int) -> subprocess.Popen[bytes]:
    nmt = ["-m", "nmt", "train", "--data", "corpus", "--config", "recipe.toml", "--preset", "tiny", "-m", name]
    command = torchrun(ranks, *nmt) if ranks > 1 else [sys.executable, *nmt]
    with (folder / f"{name}.log").open("ab") as log:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}  # so that sums are taken in one order
        return subprocess.Popen(command, cwd=folder, stderr=log, env=environment)


def kill(process: subprocess.Popen[bytes]) -> None:
    """With its ranks, to each of which torchrun gives a process group of its own."""
    process.send_signal(signal.SIGSTOP)  # so that it starts none meanwhile
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [int(pid) for task in tasks for pid in task.read_text().split()]
    for pid in [*children, process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.wait()


def result(model: Path) -> dict[str, Any]:
    """What must not depend on interruptions."""
    last = max((model / "checkpoints").iterdir())
    progress = json.loads((last / "progress.json").read_text())
    events = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    return {
        "weights": hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest(),
        "last weights": hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest(),
        "moments": hashlib.sha256((last / "optimizer.pt").read_bytes()).hexdigest(),
        "progress": {name: value for name, value in progress.items() if name not in ("minutes", "seconds")},
        "log": [{name: value for name, value in event.items() if name not in CLOCKS} for event in events],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kills", type=int, nargs="?", default=20)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    moments = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        (folder / "recipe.toml").write_text(RECIPE)
        sides = (read_lines(demo_folder() / f"train.{language}.gz") for language in ("en", "de"))
        pairs = list(islice(zip(*sides, strict=True), 400))
        write_corpus(folder / "corpus", train=pairs, valid=pairs[:20])
        began = time.perf_counter()
        assert start(folder, "straight", given.ranks).wait() == 0, (folder / "straight.log").read_text()
        straight = time.perf_counter() - began
        print(f"straight: {straight:.0f} s")
        killed, starts = 0, 0
        while True:
            process, starts = start(folder, "killed", given.ranks), starts + 1
            wait = moments.uniform(0, 0.6 * straight)
            try:
                code = process.wait(wait) if killed < given.kills else process.wait()
            except subprocess.TimeoutExpired:
                kill(process)
                killed += 1
                saved = max((path.name for path in folder.glob("killed/checkpoints/*")), default="nothing saved")
                print(f"kill {killed} after {wait:.1f} s, with {saved}")
                continue
            assert code == 0, (folder / "killed.log").read_text()
            if killed >= given.kills:
                break
            # It came to its end too soon: the rest of the kills are for another run, from the beginning.
            compare(folder)
            print(f"done after {killed} kills: the same")
            shutil.rmtree(folder / "killed")
            (folder / "killed.log").unlink()
        compare(folder)
        print(f"{killed} kills, {starts} starts, ranks {given.ranks}: the same to the last byte")


def compare(folder: Path) -> None:
    expected, found = result(folder / "straight"), result(folder / "killed")
    for name, value in expected.items():
        assert found[name] == value, f"{name} differs: {value} but {found[name]}"


if __name__ == "__main__":
    main()
