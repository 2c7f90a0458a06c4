"""A training run small enough to be made many times over, and what must come of it, for all tests of whole runs."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

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
# What a run leaves behind; a machine with TensorBoard has its logs besides.
OWN = {"config.json", "tokenizer.model", "heldout", "model.safetensors", "checkpoints", "metrics.jsonl", "report.html"}


class Death(BaseException):
    """A sudden end, as of kill -9 or the power."""


def recipe(folder: Path, **changes: object) -> Path:
    """The recipe as a file, with these settings (whatever their table) changed."""
    text = RECIPE
    for name, value in changes.items():
        line = f"{name} = {json.dumps(value)}"
        text, found = re.subn(rf"(?m)^{name} = .*", line, text)
        text += "" if found else line + "\n"
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def words(model: Path, corpus: Path, *options: str | Path, **changes: object) -> list[str | Path]:
    """The arguments of `nmt` that train on the corpus into the directory."""
    config = recipe(model.parent, **changes)
    return ["train", "--data", corpus, "--preset", "tiny", "--config", config, "-m", model, *options]


def train(model: Path, corpus: Path, *options: str | Path, **changes: object) -> Result:
    """`nmt train` inside this process."""
    return call(*words(model, corpus, *options, **changes))


@contextmanager
def after_update(number: int, act: Callable[[], object]) -> Iterator[None]:
    """Within, runs of this process do this after so many updates."""
    update = Trainer.update

    def updated(self: Trainer, *work: Any) -> None:
        update(self, *work)
        if self.progress.update == number:
            act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "update", updated)
        yield


def signalled(number: int) -> Callable[[], None]:
    """What sends this process a signal."""
    return lambda: os.kill(os.getpid(), number)


def events(model: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(model / "metrics.jsonl")]


def outcome(model: Path) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """What must not depend on interruptions: the weights, the newest checkpoint's, and the log but for its clocks."""
    clocks = ("tokens_per_second", "minutes")
    log = [{name: value for name, value in event.items() if name not in clocks} for event in events(model)]
    newest = max((model / "checkpoints").iterdir())
    return (model / "model.safetensors").read_bytes(), (newest / "model.safetensors").read_bytes(), log


def without_digests(checkpoint: Path) -> None:
    """Make a checkpoint one as an nmt of 2 December 2026 and before wrote it, and as a stranger may."""
    path = checkpoint / "progress.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in told.items() if name not in ("sha256", "moments")}))


def files(model: Path) -> dict[str, bytes]:
    return {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}


def refusal_after_notes(done: Result) -> str:
    """The sentence that ends a run which had already said what it read."""
    assert done.exit_code == 2, done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith("nmt: ")
    return last
