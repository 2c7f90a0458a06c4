"""A training run of under a second, and what tests compare of it."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import Result

from nmt.config import ModelConfig
from nmt.lines import read_lines
from nmt.training.trainer import Trainer
from tests.conftest import call

Pairs = list[tuple[str, str]]

RECIPE = """
[model]
layers = 1
d_model = 16
heads = 2
d_ff = 16

[training]
steps = 24
tokens_per_update = 150
warmup = 22
vocab_size = 450
validate_every = 8
average = 2
precision = "fp32"
"""
OWN = {"config.json", "tokenizer.model", "heldout", "model.safetensors", "checkpoints", "metrics.jsonl", "report.html"}
CLOCKS = {"tokens_per_second", "minutes"}  # what two equal runs log differently


def recipe(folder: Path, **changes: object) -> Path:
    """Write the recipe to a file, with these settings of either table changed or added."""
    text = RECIPE
    for name, value in changes.items():
        line = f"{name} = {json.dumps(value)}"
        text, found = re.subn(rf"(?m)^{name} = .*", line, text)
        if not found and name in ModelConfig.model_fields:
            text = text.replace("[model]\n", f"[model]\n{line}\n")
        elif not found:
            text += line + "\n"
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def words(model: Path, corpus: Path, *options: str | Path, **changes: object) -> list[str | Path]:
    """The arguments of an `nmt train` by the recipe."""
    config = recipe(model.parent, **changes)
    return ["train", "--data", corpus, "--preset", "tiny", "--config", config, "-m", model, *options]


def train(model: Path, corpus: Path, *options: str | Path, **changes: object) -> Result:
    """Run `nmt train` inside this process."""
    return call(*words(model, corpus, *options, **changes))


@contextmanager
def after_updates(act: Callable[[int], object]) -> Iterator[None]:
    """Within, training in this process calls `act` with the number of each update it has made."""
    update = Trainer.update

    def updated(self: Trainer, *arguments: Any) -> None:
        update(self, *arguments)
        act(self.progress.update)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "update", updated)
        yield


def signalled(after: int, number: int) -> AbstractContextManager[None]:
    """Within, training sends this process a signal after this update."""
    return after_updates(lambda update: os.kill(os.getpid(), number) if update == after else None)


def events(model: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in read_lines(model / "metrics.jsonl")]


def of(kind: str, model: Path) -> list[dict[str, Any]]:
    """The events of one kind: training, validation or average."""
    return [event for event in events(model) if event["event"] == kind]


def outcome(model: Path) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """What interruptions must not change: the weights to use, the newest checkpoint's state, and the log without clocks."""
    log = [{name: value for name, value in event.items() if name not in CLOCKS} for event in events(model)]
    newest = max((model / "checkpoints").iterdir())
    state = (newest / "model.safetensors").read_bytes() + (newest / "optimizer.pt").read_bytes()
    return (model / "model.safetensors").read_bytes(), state, log


def assert_mean(model: Path, *updates: int) -> None:
    """The weights to use are the mean of these checkpoints' weights."""
    parts = [load_file(model / "checkpoints" / f"step-{update:06d}" / "model.safetensors") for update in updates]
    for name, tensor in load_file(model / "model.safetensors").items():
        mean = torch.stack([part[name].double() for part in parts]).mean(0).float()
        torch.testing.assert_close(tensor, mean, rtol=0, atol=1e-7)


def without_digests(checkpoint: Path) -> None:
    """Turn a checkpoint into one as nmt wrote it until 2 December 2026."""
    path = checkpoint / "progress.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in written.items() if name not in ("sha256", "moments")}))


def files(model: Path) -> dict[str, bytes]:
    """The content of every file in a folder, by its path."""
    return {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}


def last_error(done: Result) -> str:
    """The error that ended a run with exit code 2, after the lines about what it read."""
    assert done.exit_code == 2, done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith("nmt: ")
    return last


def flip_a_bit(path: Path) -> None:
    """Turn over the last bit of a file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
