"""A model directory that is damaged, or mixed from two models, is refused in one sentence that names the file.

Each file is changed in a copy of a trained model, and the commands that read it are tried.
"""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt.errors import UsageError
from nmt.saved_model import SavedModel
from nmt.training import checkpoint
from tests.conftest import call, refusal
from tests.runs import flip_a_bit, train, without_digests
from tests.training.test_checkpoint import trained as adam

Change = Callable[[dict[str, Any]], object]


def rewrite(path: Path, change: Change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def refused(command: str, model: Path, corpus: Path) -> str:
    """What the command says as it refuses this model."""
    if command == "resume":
        return refusal(train(model, corpus, "--steps", "26"))
    if command == "fine-tune":
        tuned = ("-m", model.with_name("tuned"), "--steps", "1", "--quiet")
        return refusal(call("train", "--from", model, "--data", corpus, *tuned))
    return refusal(call(*command.split(), "-m", model, stdin=b"Hello there.\n"))


GARBAGE: dict[str, Change] = {
    "without a part": lambda it: it.pop("training"),
    "a path as language": lambda it: it.update(source="../../../etc/passwd"),
    "a line break in a language": lambda it: it.update(target="de\nnmt: all is well"),
}


@pytest.mark.parametrize("change", GARBAGE.values(), ids=GARBAGE)
def test_a_damaged_config_is_refused(change: Change, straight: Path, tmp_path: Path) -> None:
    """Whatever is missing or impossible is named, in one line of text."""
    shutil.copy(straight / "config.json", tmp_path)
    rewrite(tmp_path / "config.json", change)
    with pytest.raises(UsageError, match=r"config\.json: damaged") as error:
        SavedModel.open(tmp_path)
    assert str(error.value).isprintable()


def test_every_command_refuses_a_damaged_config(finished: Path, corpus: Path) -> None:
    rewrite(finished / "config.json", lambda it: it.pop("training"))
    for command in ("translate", "score", "describe", "attention", "export", "resume", "fine-tune"):
        assert "config.json: damaged" in refused(command, finished, corpus)


def test_damaged_weights_are_refused(finished: Path, corpus: Path) -> None:
    """Another bit, a NaN or another shape: nothing is translated. A missing digest alone is no damage."""
    file = finished / "model.safetensors"
    weights = load_file(file)
    name, tensor = next(iter(weights.items()))
    changes = {
        "not what was written": lambda: flip_a_bit(file),
        "not all of it is finite": lambda: save_file(weights | {name: torch.full_like(tensor, torch.nan)}, file),
        "does not fit": lambda: save_file(weights | {name: tensor[:-1].clone()}, file),
    }
    for reason, change in changes.items():
        change()
        assert re.search(f"{file}: .*{reason}", refused("translate", finished, corpus))
    save_file(weights, file)
    assert call("translate", "-m", finished, stdin=b"Hello.\n").exit_code == 0


def test_weights_of_another_run_are_refused(finished: Path, straight: Path, corpus: Path) -> None:
    """Those of the other direction have the same sizes and vocabulary, and would translate fluently into English."""
    other = finished.with_name("other")
    assert train(other, corpus, "--source", "de", "--target", "en", "--steps", "1").exit_code == 0
    assert (other / "tokenizer.model").read_bytes() == (straight / "tokenizer.model").read_bytes()
    shutil.copy(other / "model.safetensors", finished)
    for command in ("translate", "score", "fine-tune"):
        assert "other languages" in refused(command, finished, corpus)


def test_held_out_text_is_the_text_that_was_held_out(finished: Path, corpus: Path) -> None:
    """Swapped sides and additional lines have no score."""
    left, right = (finished / "heldout" / f"test.{language}.gz" for language in ("en", "de"))
    source, target = left.read_bytes(), right.read_bytes()
    left.write_bytes(target), right.write_bytes(source)
    assert "not the text" in refused("score", finished, corpus)
    left.write_bytes(gzip.compress(b"\n" * 1_000, 1)), right.write_bytes(target)
    assert "not the text" in refused("score", finished, corpus)
    left.write_bytes(source)
    assert call("score", "-m", finished).exit_code == 0


def test_moments_of_another_shape_never_reach_the_optimiser(tmp_path: Path) -> None:
    """PyTorch would write beyond their end."""
    saved = checkpoint.save(tmp_path, *adam(), checkpoint.Progress(24))
    without_digests(saved)
    content = torch.load(saved / checkpoint.OPTIMIZER, weights_only=True)
    content["state"][0]["exp_avg"] = torch.zeros(3)
    torch.save(content, saved / checkpoint.OPTIMIZER)
    with pytest.raises(UsageError, match=r"step-000024: .*moments"):
        checkpoint.restore(saved, *adam())


def test_a_run_that_lost_its_config_is_not_begun_anew(finished: Path, corpus: Path) -> None:
    """Its checkpoints may be all that is left of days of work: they stay until --restart."""
    config = finished / "config.json"
    rewrite(config, lambda it: it.update(data=3))
    for damage in (lambda: None, config.unlink):
        damage()
        before = sorted(finished.rglob("*"))
        assert "--restart" in refused("resume", finished, corpus)
        assert sorted(finished.rglob("*")) == before
    assert train(finished, corpus, "--restart").exit_code == 0
