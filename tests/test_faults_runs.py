"""Faults that users of such tools met in long runs: what is right, for each. N45 is in test_resumed_runs.py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nmt.config import TrainingConfig
from nmt.session import Session
from nmt.training.trainer import Trainer
from tests.conftest import call
from tests.runs import after_update, events, files, outcome, signalled, train, words


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("faults") / "model"
    done = train(model, corpus)
    assert done.exit_code == 0, done.stderr
    return model


@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
def test_a_checkpoint_torn_in_its_middle_is_noticed(
    filling: bytes, corpus: Path, finished: Path, tmp_path: Path
) -> None:
    """F1: 4,096 bytes of the newest moments are others; the checkpoint before serves, and the run ends as it would have."""
    model = tmp_path / "model"
    with after_update(18, signalled(15)):
        assert train(model, corpus).exit_code == 143
    path = model / "checkpoints" / "step-000018" / "optimizer.pt"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4_096] = filling * 4_096
    path.write_bytes(content)
    done = train(model, corpus)
    assert done.exit_code == 0, done.stderr
    assert "step-000018" in done.stderr
    assert "going on from the checkpoint before it" in done.stderr
    assert "going on after update 16" in done.stderr
    assert outcome(model) == outcome(finished)


def test_infinite_moments_replace_no_good_checkpoint(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F9 of F1: they end the run before they are saved."""
    update = Trainer.update

    def spoiled(self: Trainer, *work: Any) -> None:
        update(self, *work)
        if self.progress.update == 12:
            next(iter(self.optimizer.state.values()))["exp_avg_sq"][0] = float("inf")

    monkeypatch.setattr(Trainer, "update", spoiled)
    model = tmp_path / "model"
    done = train(model, corpus)
    assert done.exit_code == 1
    assert "moments are no longer numbers" in done.stderr
    assert sorted(path.name for path in (model / "checkpoints").iterdir()) == ["step-000008"]


def test_restart_takes_links_away_and_leaves_what_they_lead_to(corpus: Path, finished: Path, tmp_path: Path) -> None:
    """N8: checkpoints/ may lie on another disk, the whole directory too."""
    (disk := tmp_path / "disk").mkdir()
    shutil.copytree(finished, disk / "model")
    shutil.move(disk / "model" / "checkpoints", disk / "checkpoints")
    (disk / "model" / "checkpoints").symlink_to(disk / "checkpoints")
    (tmp_path / "model").symlink_to(disk / "model")
    before = files(disk / "checkpoints")
    done = train(tmp_path / "model", corpus, "--restart")
    assert done.exit_code == 0, done.stderr
    assert "a link, which is removed" in done.stderr
    assert files(disk / "checkpoints") == before
    assert outcome(tmp_path / "model") == outcome(finished)


def test_a_run_goes_on_into_a_linked_folder(corpus: Path, finished: Path, tmp_path: Path) -> None:
    """N8: without --restart the link stays, and checkpoints are written where it leads."""
    model, disk = tmp_path / "model", tmp_path / "disk"
    with after_update(9, signalled(15)):
        assert train(model, corpus).exit_code == 143
    shutil.move(model / "checkpoints", disk)
    (model / "checkpoints").symlink_to(disk)
    assert train(model, corpus).exit_code == 0
    assert (model / "checkpoints").is_symlink()
    assert outcome(model) == outcome(finished)


def test_a_reader_that_leaves_ends_no_training(corpus: Path, finished: Path, tmp_path: Path) -> None:
    """F2: of `nmt train 2>&1 | reader` only the reader is gone."""
    model = tmp_path / "model"
    command = [sys.executable, "-m", "nmt", *map(str, words(model, corpus))]
    reading, writing = os.pipe()
    with subprocess.Popen(command, stdout=writing, stderr=writing) as process:
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        assert process.wait(200) == 0
    assert outcome(model) == outcome(finished)


def test_an_average_says_what_is_in_it(corpus: Path, finished: Path) -> None:
    """F6: in the log with its BLEU, and to a person."""
    last = events(finished)[-1]
    assert (last["event"], last["updates"]) == ("average", [16, 24])
    scored = call("score", "-m", finished, "--device", "cpu").stdout
    assert last["signature"] in scored
    assert 0 <= last["bleu"] <= 100


@pytest.mark.parametrize("asked", [1, 2])
def test_good_weights_are_not_replaced_by_a_mean_of_fewer(asked: int, corpus: Path, tmp_path: Path) -> None:
    """F6: the command of a finished run is given again, or with a larger --average, when a checkpoint has rotted."""
    model = tmp_path / "model"
    assert train(model, corpus, average=asked).exit_code == 0
    good = (model / "model.safetensors").read_bytes()
    (model / "checkpoints" / "step-000016" / "model.safetensors").write_bytes(b"rotten")
    done = train(model, corpus, average=2)
    assert done.exit_code == 0
    assert ("the weights to use stay as they are" in done.stderr) is (asked == 1)
    assert (model / "model.safetensors").read_bytes() == good


def test_the_estimate_counts_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    """N34: 100 updates of a second each and a validation of 30 s after every 50, then one of the average."""
    said: list[str] = []
    session = cast(Any, Session.__new__(Session))
    session.config = TrainingConfig(steps=100, validate_every=50)
    session.reporter = SimpleNamespace(say=said.append, warn=said.append)
    session.validator, session.before, session.resumed_at, session.since = object(), None, 0, 0.0
    session.scored, session.estimated, session.unsure, session.warned = [], False, False, set()
    clock = [20.0]
    monkeypatch.setattr("nmt.session.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    assert session._time_left(20) == "over 80 s"
    assert said.pop() == (
        "about 80 s to the end, 80 updates and 3 validations from here; how long these take, the first will tell"
    )
    session.scored, clock[0] = [30.0], 90.0  # 60 updates and one validation
    assert session._time_left(60) == "2 min"
    assert said.pop() == "about 2 min to the end, 40 updates and 2 validations from here"
    clock[0] = 100.0
    session._time_left(70)
    assert not said
