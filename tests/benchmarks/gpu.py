"""What nmt does on one data-centre GPU: `gpu.sh` runs this, on a machine that need not have a network.

    bash tests/benchmarks/gpu.sh DATA OUT [WHEELS]       DATA: a folder of text, train|valid|test.en and .de

In under seven minutes: the speed of the base model, compiled and not, without cuDNN's attention and with it; a minute and a
half of `nmt train` and the BLEU of what came of it; the speed of decoding; the tests that need CUDA; then, as time is left, the
speed of the big model and of other cuts into micro-batches. OUT gets gpu.json and gpu.md, rewritten after every part, so that a
run that is cut short has told what it knows, the output of the tests, and the trained model's log and report. `--miniature`
goes through the same on a CPU in small.

- Speeds are of made-up pairs, so that they do not depend on DATA: ids of a vocabulary of 37,000 with Zipf's frequencies, in
  sentences as long as WMT14's.
- Target tokens count EOS and no padding. FLOPs a target token are counted from the architecture as in training.py; a model's
  FLOP utilisation is these against the GPU's published dense bf16 peak, or against its best square matrix product where this
  table knows none.
- The time of the paper's 100,000 updates is that of its 25,000 target tokens each at the speed seen, validation left out.
"""

import argparse
import contextlib
import gc
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from nmt import devices
from nmt.config import PRESETS, ModelConfig, TrainingConfig
from nmt.data.batching import Plan
from nmt.data.preparation import PreparedPairs, Side
from nmt.event_log import EventLog
from nmt.ids import FIRST_PIECE
from nmt.model.transformer import Transformer
from nmt.saved_model import SavedModel
from nmt.training import trainer as training
from nmt.training.ahead import ahead
from nmt.training.probe import find_micro_batch
from nmt.training.trainer import Trainer
from nmt.translation.translator import load_translator
from tests.benchmarks.training import flops_per_token, matmul_flops, synchronize

ROOT = Path(__file__).parents[2]
PEAK = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "B200": 2250e12, "L40S": 362e12}  # dense bf16, as published
PAPER = {"updates": 100_000, "tokens": 25_000}
LIMIT = 400  # seconds after which no part is begun or goes on
TESTS = 150  # of them, at the most, for the tests: several of them compile
PAIRS = 100_000  # that the speeds are measured on
OTHERS = (1_024, 16_384)  # target cells of a micro-batch before padding may end it, beside the usual number


class Report:
    """What is known so far, written out after every part."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.began = folder, time.perf_counter()
        self.facts: dict[str, Any] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> float:
        """Seconds."""
        return LIMIT - (time.perf_counter() - self.began)

    def add(self, name: str, measure: Callable[[], Any], needs: float = 0) -> None:
        """Measure a part, if the seconds it needs are left; a failure is a result too, and the other parts go on."""
        began = time.perf_counter()
        signal.signal(signal.SIGALRM, out_of_time)
        signal.setitimer(signal.ITIMER_REAL, max(1, self.left))
        try:
            self.facts[name] = measure() if self.left >= needs else {"skipped": f"{self.left:.0f} s left"}
        except Exception as error:
            self.facts[name] = {"failed": f"{type(error).__name__}: {error}"[:2_000]}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(f"{name}: {time.perf_counter() - began:.0f} s, {self.facts[name]}", file=sys.stderr, flush=True)
        self.facts["seconds"] = round(time.perf_counter() - self.began)
        (self.folder / "gpu.json").write_text(json.dumps(self.facts, indent=1) + "\n")
        (self.folder / "gpu.md").write_text(markdown(self.facts))


def out_of_time(_number: int, _frame: Any) -> None:
    raise TimeoutError("out of time")


def machine(device: torch.device) -> dict[str, Any]:
    facts: dict[str, Any] = {"device": devices.describe(device, "bf16"), "torch": torch.__version__}
    facts["python"] = platform.python_version()
    known = next((flops for name, flops in PEAK.items() if name in facts["device"]), None)
    size = 4_096 if device.type == "cuda" else 512
    facts["peak_is"] = "published" if known else "measured"
    return facts | {"peak": known or matmul_flops(torch.bfloat16, size, device)}


@contextlib.contextmanager
def child(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes into the log. With the block it ends, and all that it has started."""
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=output, env=os.environ | environment, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def outcome(command: list[str], log: Path, seconds: float) -> dict[str, Any]:
    """How a command ended, which has so many seconds; -9 is for want of time."""
    with child(command, log) as process, contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return {"exit": process.returncode, "summary": log.read_text().strip().splitlines()[-1:]}


def cuda_tests(log: Path, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "tests/test_cuda.py"]
    return outcome(command, log, seconds)


def made_up(count: int, size: int) -> PreparedPairs:
    """So many pairs over a vocabulary of this size, with Zipf's frequencies; as long as WMT14's sentences are in pieces."""
    random = np.random.default_rng(1)
    lengths = np.clip(random.gamma(2.6, 11.4, count), 1, 200).astype(int)
    sides = []
    for long in (lengths, np.clip(lengths * random.normal(1.0, 0.12, count), 1, 200).astype(int)):
        ids = FIRST_PIECE + np.exp(random.uniform(0, np.log(size - FIRST_PIECE), long.sum())).astype(np.uint16) - 1
        sides.append(Side(ids, np.cumsum([0, *long], dtype=np.int64)))
    return PreparedPairs(*sides)


def speed(
    model: ModelConfig, config: TrainingConfig, pairs: PreparedPairs, device: torch.device, compiled: bool, peak: float,
    seconds: float, fewest: int, cudnn: bool,
) -> dict[str, Any]:  # fmt: skip
    """Of `Trainer.update` over the plan's updates, batches made on the fly."""
    torch.manual_seed(1)
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    network = Transformer(model, config.vocab_size).to(device)
    plan = Plan(pairs, config.tokens_per_update, 1)
    trainer = Trainer(network, plan, config, device, "bf16", compiled=compiled)
    try:
        with mock.patch.object(training, "MIN_CELLS_ON_GPU", fewest):
            began = time.perf_counter()
            if device.type == "cuda":
                trainer.progress.micro_batch_tokens = find_micro_batch(trainer, round(1.25 * config.tokens_per_update))
            updates = trainer.plan.updates()
            for _, update in islice(updates, 4):
                trainer.update(update)
            synchronize(device)
            warm_up = time.perf_counter() - began
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            progress, before, began = trainer.progress, trainer.progress.target_tokens, time.perf_counter()
            tokens, cells, done = progress.tokens, progress.cells, progress.update
            batches, cuts = [], []
            with contextlib.closing(ahead(updates, trainer.cut)) as shares:
                for (_, update), share in shares:
                    trainer.update(update, share)
                    batches += [(batch.source, batch.target_in, batch.target_out) for batch in share.batches[:1]]
                    cuts.append(len(share.batches))
                    if time.perf_counter() - began > seconds:
                        break
            synchronize(device)
            elapsed = time.perf_counter() - began
        speed = (progress.target_tokens - before) / elapsed
        flops = flops_per_token({"sizes": model.model_dump(), "vocabulary_size": config.vocab_size, "updates": [(batches, 0)]})
        return {
            "parameters": network.count_parameters(),
            "tokens_per_second": round(speed),
            "utilisation": speed * flops / peak,
            "padding": 1 - (progress.tokens - tokens) / (progress.cells - cells),
            "micro_batch_tokens": progress.micro_batch_tokens,
            "micro_batches_per_update": round(sum(cuts) / len(cuts), 1),
            "updates": progress.update - done,
            "memory_gib": torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None,
            "warm_up_seconds": round(warm_up, 1),
            "paper_hours": PAPER["updates"] * PAPER["tokens"] / speed / 3600,
        }
    finally:
        torch.backends.cuda.enable_cudnn_sdp(False)
        del trainer, network
        gc.collect()
        torch._dynamo.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def train(data: str, model: Path, recipe: dict[str, Any], preset: str, seconds: float, most: float) -> dict[str, Any]:
    """`nmt train`, interrupted after so long, and `nmt score` of the model: both as their user would.

    The seconds count from the first line of the log; interrupted it is after `most` seconds in any case.
    """
    toml, log = model.parent / "recipe.toml", model.parent / "train.log"
    toml.write_text("[training]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in recipe.items()))
    nmt = [sys.executable, "-m", "nmt"]
    command = [*nmt, "train", "--data", data, "-m", str(model), "--preset", preset, "--config", str(toml)]
    began = time.perf_counter()
    with child(command, log, NMT_CACHE=str(model.parent / "cache")) as process:
        while process.poll() is None and time.perf_counter() - began < most and not logged(model):
            time.sleep(0.2)
        start = time.perf_counter()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0, min(seconds, began + most - start)))
        process.send_signal(signal.SIGINT)
        process.wait(30)
    trained = time.perf_counter() - start
    if not logged(model):
        raise RuntimeError(log.read_text()[-1_500:])
    events = EventLog(model / "metrics.jsonl").read()
    began_scoring = time.perf_counter()
    scored = outcome([*nmt, "score", "-q", "-m", str(model)], model.parent / "score.log", 60)
    return {
        "seconds": round(trained), "seconds_before": round(start - began), "updates": events[-1]["step"],
        "validations": [(event["step"], event.get("bleu")) for event in events if event["event"] == "validation"],
        "tokens_per_second": [event["tokens_per_second"] for event in events if event["event"] == "training"][-1:],
        "score": scored, "score_seconds": round(time.perf_counter() - began_scoring),
        "log": log.read_text()[-3_000:],
    }  # fmt: skip


def logged(model: Path) -> bool:
    return (model / "metrics.jsonl").exists()


def decode(model: Path, lines: int, device: str) -> dict[str, Any]:
    """Sentences a second of the model's own test set, by beam and precision."""
    saved = SavedModel.open(model)
    test = saved.heldout("test")
    assert test
    text, speeds = test[0][:lines], {}
    for precision in ("bf16", "fp32"):
        translator = load_translator(saved, device, precision)
        translator.translate(text[:8])
        for beam in (4, 1):
            began = time.perf_counter()
            translator.translate(text, beam=beam)
            speeds[f"{precision} beam {beam}"] = round(len(text) / (time.perf_counter() - began), 1)
    return speeds


def markdown(facts: dict[str, Any]) -> str:
    rows = [
        "| model | compiled | target tokens/s | utilisation | padding | micro-batches an update | memory | 100,000 updates |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in facts.items():
        if isinstance(row, dict) and "paper_hours" in row:
            model, compiled = name.rsplit(", ", 1)
            memory = f"{row['memory_gib']:.1f} GiB" if row["memory_gib"] else ""
            rows.append(
                f"| {model}, {row['parameters']:,} parameters | {compiled} | {row['tokens_per_second']:,} | "
                f"{row['utilisation']:.1%} | {row['padding']:.1%} | {row['micro_batches_per_update']} | {memory} | "
                f"{row['paper_hours']:.2f} h |"
            )
    rest = {name: fact for name, fact in facts.items() if not (isinstance(fact, dict) and "paper_hours" in fact)}
    return "\n".join(rows) + "\n\n" + "\n".join(f"- {name}: {fact}" for name, fact in rest.items()) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--miniature", action="store_true")
    given = parser.parse_args(arguments)
    if not given.miniature and not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA device here; --miniature does without")
    data = given.data if given.data == "demo" else str(Path(given.data).resolve())
    report = Report(given.out.resolve())
    with tempfile.TemporaryDirectory() as folder:
        measure(report, data, Path(folder), given.miniature)
        for name in ("train.log", "model/config.json", "model/metrics.jsonl", "model/report.html"):
            if (Path(folder) / name).exists():
                shutil.copy(Path(folder) / name, report.folder)
    print((report.folder / "gpu.md").read_text())


def measure(report: Report, data: str, folder: Path, small: bool) -> None:
    """What is wanted most first. In small it is on a CPU, and nothing is compiled: that would take longer than all the rest."""
    device = devices.find_device("cpu" if small else "cuda")
    report.add("machine", lambda: machine(device))
    usual = training.MIN_CELLS_ON_GPU
    vocab_size = 500 if small else PRESETS["base"].training.vocab_size
    pairs = made_up(300 if small else PAIRS, vocab_size)
    sizes = {"layers": 1, "d_model": 32, "heads": 2, "d_ff": 64} if small else {}
    limits = {"tokens_per_update": 200, "vocab_size": vocab_size} if small else {}

    def add_speed(name: str, compiled: bool, needs: float, fewest: int = usual, cudnn: bool = False) -> None:
        if compiled and small:
            return
        model, config = PRESETS[name].model.model_copy(update=sizes), PRESETS[name].training.model_copy(update=limits)
        report.add(
            f"{name} ({fewest:,}){' with cuDNN' if cudnn else ''}, {'yes' if compiled else 'no'}",
            lambda: speed(
                model,
                config,
                pairs,
                device,
                compiled,
                report.facts["machine"]["peak"],
                0.2 if small else 6,
                fewest,
                cudnn,
            ),
            needs,
        )

    add_speed("base", True, 60)
    add_speed("base", False, 15)
    add_speed("base", False, 30, cudnn=True)
    # The warm-up is shorter than the paper's, so that a minute and a half sees the rate come down again.
    recipe: dict[str, Any] = {"steps": 100_000, "warmup": 1_500, "validate_every": 1_500, "average": 2}
    if small:
        recipe = limits | {"steps": 4, "warmup": 2, "validate_every": 2, "average": 1, "device": "cpu"}
    model, preset, after = folder / "model", "demo" if small else "base", 25 + TESTS  # seconds, for what follows it
    report.add("training", lambda: train(data, model, recipe, preset, 90, max(60, report.left - after)), needs=60)
    report.add("sentences/s", lambda: decode(model, 4 if small else 1_000, device.type), needs=25)
    report.add("tests", lambda: cuda_tests(report.folder / "tests.log", min(TESTS, report.left - 5)), needs=30)
    add_speed("big", True, 60)
    add_speed("big", False, 20)
    for fewest in OTHERS:
        add_speed("base", True, 45, fewest)


if __name__ == "__main__":
    main()
