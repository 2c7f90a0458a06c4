"""The Transformer beside its settings, one stack and the recurrent network.

    .venv/bin/python -m tests.benchmarks.architectures pace --data demo FILE.toml FILE.toml ...
    .venv/bin/python -m tests.benchmarks.architectures encode
    .venv/bin/python -m tests.benchmarks.architectures warmup [--updates 5000]
    .venv/bin/python -m tests.benchmarks.architectures models MODEL MODEL ...

`pace` takes turns training by each settings file, and says how many updates 50 minutes make. `encode` times the encoding of a
sentence of n tokens. `warmup` trains deep thin Transformers; the rate rises for 0, 100 or 4,000 updates to the same height
and stays there. `models` scores trained models, and times and weighs them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from nmt.config import PRESETS, ModelConfig, read_toml, settle
from nmt.data import corpus as corpora
from nmt.data.batching import Plan
from nmt.data.cache import Cache
from nmt.data.preparation import PreparedPairs, learn_vocabulary, prepare_corpus
from nmt.devices import find_precision
from nmt.event_log import EventLog
from nmt.ids import EOS, FIRST_PIECE
from nmt.model.build import build
from nmt.saved_model import SavedModel
from nmt.sizes import steps
from nmt.training.trainer import Trainer
from nmt.translation.translator import load_translator

CPU = torch.device("cpu")
MINUTES = 50
HEIGHT = 1e-3  # of the learning rate after the warm-up


def table(head: list[str], rows: list[list[Any]]) -> None:
    lines: list[list[Any]] = [head, ["---"] * len(head), *rows]
    for cells in lines:
        print("|", " | ".join(map(str, cells)), "|")


def trainer_for(settings: Path | None, data: str, model: ModelConfig | None = None, **changes: Any) -> Trainer:
    """A trainer of the preset `tiny` (`demo` for the embedded corpus) under a file of settings."""
    preset = settle(PRESETS["demo" if data == "demo" else "tiny"], read_toml(settings) if settings else {}, changes)
    config, cache = preset.training, Cache.find(Path("unused"))
    text = corpora.load(data, "en", "de", cache)
    vocabulary = learn_vocabulary(text, config, cache)
    folder, _, _ = prepare_corpus(text, vocabulary, config, cache)
    torch.manual_seed(config.seed)
    plan = Plan(PreparedPairs.open(folder), config.tokens_per_update, config.seed)
    network = build(model or preset.model, len(vocabulary))
    trainer = Trainer(network, plan, config, CPU, find_precision(config.precision, CPU))
    trainer.progress.micro_batch_tokens = preset.micro_batch_tokens
    return trainer


def pace(options: argparse.Namespace) -> None:
    trainers = {path.stem: trainer_for(path, options.data) for path in options.names}
    plans = {name: trainer.plan.updates() for name, trainer in trainers.items()}
    speeds: dict[str, list[float]] = {name: [] for name in trainers}
    for number in range(options.rounds + 1):
        names = list(trainers)[:: -1 if number % 2 else 1]
        for name in names:
            began, tokens = time.perf_counter(), 0
            for _, pairs in islice(plans[name], options.updates):
                trainers[name].update(pairs)
                tokens += int(trainers[name].plan.pairs.targets[pairs].sum())
            speeds[name].append(tokens / (time.perf_counter() - began))
    rows: list[list[Any]] = []
    for name, trainer in trainers.items():
        speed = statistics.median(speeds[name][1:])  # the first round warms up
        per_update = trainer.plan.pairs.targets.sum() / sum(1 for _ in trainer.plan.epoch(0))
        updates = round(speed * 60 * MINUTES / per_update)
        rows.append([name, f"{trainer.model.count_parameters():,}", f"{speed:,.0f}", f"{updates:,}"])
    table(["settings", "parameters", "target tokens/s", f"updates in {MINUTES} minutes"], rows)


@torch.inference_mode()
def encode(_options: argparse.Namespace) -> None:
    kinds = {
        "Transformer, 3 layers": ModelConfig(layers=3, d_model=256, heads=4, d_ff=512),
        "RNN": ModelConfig(architecture="rnn", layers=1, d_model=338, heads=2),
    }
    networks = {name: build(config, 4_000).eval() for name, config in kinds.items()}
    rows: list[list[Any]] = []
    for length in (8, 16, 32, 64, 128, 256, 512):
        source = torch.randint(FIRST_PIECE, 4_000, (1, length))
        source[0, -1] = EOS
        times: dict[str, list[float]] = {name: [] for name in networks}
        for _round in range(30):
            for name, network in networks.items():
                began = time.perf_counter()
                network.encode(source)
                times[name].append(1_000 * (time.perf_counter() - began))
        row: list[Any] = [length]
        for name, config in kinds.items():
            row += [steps(config, length, length)["encode"], f"{statistics.median(times[name][5:]):.2f}"]
        rows.append(row)
    table(["tokens", *(title for name in kinds for title in (f"{name}: steps", "ms"))], rows)


class Rising(Trainer):
    """A trainer whose rate rises to HEIGHT and stays there, so that nothing but the warm-up differs."""

    rising = 0

    def learning_rate(self) -> float:
        return HEIGHT * min(1.0, self.progress.update / max(1, self.rising))


def warmup(options: argparse.Namespace) -> None:
    marks = [options.updates * part // 5 for part in range(1, 6)]
    rows: list[list[Any]] = []
    norms: tuple[Literal["post", "pre"], ...] = ("post", "pre")
    for norm in norms:
        for rising in (0, 100, 4_000):
            model = ModelConfig(layers=12, d_model=64, heads=4, d_ff=128, dropout=0.0, norm=norm)
            trainer = trainer_for(None, "demo", model, tokens_per_update=1_024)
            trainer.__class__, trainer.rising = Rising, rising  # type: ignore[attr-defined]
            losses: dict[int, float] = {}
            for _, pairs in islice(trainer.plan.updates(), options.updates):
                trainer.update(pairs)
                if trainer.progress.update % (marks[0] // 10) == 0:
                    losses[trainer.progress.update] = _mean_loss(trainer)
            rows.append([norm, rising, *(f"{losses[mark]:.2f}" for mark in marks)])
            print(norm, rising, {mark: round(loss, 2) for mark, loss in losses.items()}, file=sys.stderr, flush=True)
    table(["norm", "warm-up", *(f"loss at {mark:,}" for mark in marks)], rows)


def _mean_loss(trainer: Trainer) -> float:
    """The loss a token since the last call."""
    loss = trainer.progress.loss / trainer.progress.target_tokens
    trainer.progress.loss, trainer.progress.target_tokens = 0.0, 0
    trainer.summed_loss.zero_()
    return loss


def models(options: argparse.Namespace) -> None:
    rows: list[list[Any]] = []
    for path in options.names:
        saved = SavedModel.open(path)
        test = saved.heldout("test")
        assert test
        done = [event for event in EventLog(saved.directory.metrics_path).read() if event["event"] == "average"][-1]
        command = [sys.executable, "-m", "nmt", "score", "--model", str(path), "--metric", "all", "--format", "json"]
        printed = subprocess.run(command, check=True, capture_output=True).stdout
        scores = {one["metric"]: one["score"] for one in json.loads(printed)}
        chrf = next(score for metric, score in scores.items() if metric.startswith("chrF"))
        translator = load_translator(saved)
        speeds = []
        for beam in (1, 4):
            translator.translate(test[0][:50], beam=beam)
            began = time.perf_counter()
            translator.translate(test[0], beam=beam)
            speeds.append(f"{len(test[0]) / (time.perf_counter() - began):,.0f}")
        numbers = [f"{scores['BLEU']:.2f}", f"{chrf:.2f}", f"{done['perplexity']:.2f}"]
        rows.append([path.name, f"{done['step']:,}", *numbers, *speeds, f"{memory_of(path):,.0f}"])
    table(["model", "updates", "BLEU", "chrF", "perplexity", "greedy/s", "beam 4/s", "MiB to translate"], rows)


def memory_of(path: Path) -> float:
    """The largest resident set, in MiB, of an `nmt translate` of the test set."""
    source = SavedModel.open(path).heldout("test")
    assert source
    with TemporaryDirectory() as folder:
        text = Path(folder, "source")
        text.write_text("\n".join(source[0]) + "\n", encoding="utf-8")
        with open(os.devnull, "wb") as nowhere:
            words = [sys.executable, "-m", "nmt", "translate", "-q", "--model", str(path), str(text)]
            process = subprocess.Popen(words, stdout=nowhere, stderr=nowhere)
            _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_maxrss / 1_024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pace", "encode", "warmup", "models"])
    parser.add_argument("names", nargs="*", type=Path, help="files of settings, or model directories")
    parser.add_argument("--data", default="demo")
    parser.add_argument("--updates", type=int, default=20, help="per turn; of warmup in all")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_intermixed_args()
    commands: dict[str, Callable[[argparse.Namespace], None]] = {
        "pace": pace, "encode": encode, "warmup": warmup, "models": models,
    }  # fmt: skip
    commands[options.what](options)


if __name__ == "__main__":
    main()
