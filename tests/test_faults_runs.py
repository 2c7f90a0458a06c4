"""Public faults of training runs, each as its user met it: other disks, torn checkpoints, readers that leave, the time left."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.training.trainer import Trainer
from nmt.validation import Validator
from tests.conftest import call
from tests.runs import after_updates, assert_mean, files, flip_a_bit, of, outcome, train, without_digests, words


def moved(path: Path, disk: Path) -> Path:
    """Move a file or folder to another disk, and leave a link in its place."""
    disk.mkdir(exist_ok=True)
    target = disk / f"moved-{path.name}"
    path.rename(target)
    path.symlink_to(target)
    return target


# Other disks.


def test_a_run_whose_files_are_links_is_restarted(finished: Path, straight: Path, corpus: Path, tmp_path: Path) -> None:
    """N8: --restart removes links and says so; what they lead to stays, and the directory itself may be a link."""
    disk = tmp_path / "disk"
    names = ("checkpoints", "heldout", "model.safetensors", "metrics.jsonl", "tokenizer.model")
    for name in names:
        moved(finished / name, disk)
    kept = files(disk)
    directory = moved(finished, tmp_path / "other disk")
    done = train(finished, corpus, "--restart")
    assert done.exit_code == 0, done.stderr
    for name in names:
        assert f"{finished / name}: this link is removed" in done.stderr
        assert not (directory / name).is_symlink()
    assert outcome(finished) == outcome(straight)
    assert finished.is_symlink()
    assert files(disk) == kept


# Torn checkpoints.


def zeroed(content: bytes) -> bytes:
    """Overwrite the middle half with zeros."""
    quarter = len(content) // 4
    return content[:quarter] + bytes(len(content) - 2 * quarter) + content[-quarter:]


def other_position(content: bytes) -> bytes:
    """Change a number, as a bit that turns over may: the JSON is valid, the text to train on another."""
    changed = re.sub(rb'"position": \d+', b'"position": 99', content)
    assert changed != content
    return changed


@pytest.mark.parametrize(
    ("name", "damage"),
    [("optimizer.pt", zeroed), ("model.safetensors", zeroed), ("progress.json", other_position)],
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    finished: Path, straight: Path, corpus: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    """F1: Overwritten in its middle, the newest checkpoint is named and passed over; the run comes to the same end."""
    file = finished / "checkpoints" / "step-000024" / name
    file.write_bytes(damage(file.read_bytes()))
    done = train(finished, corpus)
    assert done.exit_code == 0, done.stderr
    assert re.search(r"warning: .*step-000024.*; resuming from the checkpoint before it", done.stderr)
    assert "resuming after update 16" in done.stderr
    assert outcome(finished) == outcome(straight)


def test_a_directory_without_digests_goes_on(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """F1: Checkpoints of an earlier nmt have no digests and are believed; its log has no average."""
    for path in (finished / "checkpoints").iterdir():
        without_digests(path)
    forget_average(finished)
    done = train(finished, corpus, "--steps", "32")
    assert ("resuming after update 24" in done.stderr, "warning" in done.stderr) == (True, False)
    assert train(tmp_path / "at-once", corpus, "--steps", "32").exit_code == 0
    assert outcome(finished)[:2] == outcome(tmp_path / "at-once")[:2]


def test_infinite_moments_end_a_run_before_they_are_saved(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F1: A squared gradient may be infinite while loss and weights are numbers: the checkpoints before it stay whole."""
    model, update = tmp_path / "model", Trainer.update

    def overflow(self: Trainer, *arguments: Any) -> None:
        update(self, *arguments)
        if self.progress.update == 14:
            next(iter(self.optimizer.state.values()))["exp_avg_sq"].view(-1)[0] = torch.inf

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", overflow)
        done = train(model, corpus)
    assert done.exit_code == 1
    assert "no longer finite after update 16: lower the learning rate (factor)" in done.stderr.splitlines()[-1]
    assert [path.name for path in (model / "checkpoints").iterdir()] == ["step-000008"]
    assert "resuming after update 8" in train(model, corpus).stderr


# A reader that leaves.


def test_a_run_goes_on_without_a_reader(corpus: Path, straight: Path, tmp_path: Path) -> None:
    """F2: The reader of `nmt train 2>&1 | reader` leaves after three lines: the run ends as one that was heard."""
    command = [sys.executable, "-m", "nmt", *map(str, words(tmp_path / "model", corpus))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout
        assert all(process.stdout.readline() for _ in range(3))
        process.stdout.close()
        assert process.wait(120) == 0
    assert outcome(tmp_path / "model") == outcome(straight)


# Averages.


def forget_average(model: Path) -> None:
    """Drop the log's last event: a kill may prevent it, and an earlier nmt never wrote one."""
    log = model / "metrics.jsonl"
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines() if '"average"' not in line))


def test_a_run_says_what_its_weights_are_the_mean_of_and_what_they_are_worth(overfitted: Path) -> None:
    """F6: The log has the updates that went in, and the BLEU that `nmt score` gives the mean."""
    [event] = of("average", overfitted)
    assert (event["step"], event["updates"]) == (400, [400])
    text = overfitted / "heldout" / "valid"
    translated = call("translate", f"{text}.en.gz", "-m", overfitted).stdout_bytes
    scored = call("score", "-", "-r", f"{text}.de.gz", "--format", "json", stdin=translated)
    assert event["bleu"] == json.loads(scored.stdout)[0]["score"] > 90
    described = json.loads(call("describe", "-m", overfitted, "--format", "json").stdout)
    assert described["run"]["average"]["bleu"] == event["bleu"]


def test_a_mean_of_fewer_is_said_and_logged(finished: Path, corpus: Path) -> None:
    """F6: A checkpoint to average is damaged while the run goes on: one warning, and the log has those that went in."""
    flip_a_bit(finished / "checkpoints" / "step-000016" / "model.safetensors")
    done = train(finished, corpus, "--steps", "30", "--average", "9", validate_every=2)
    assert done.exit_code == 0, done.stderr
    [warning] = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert "the checkpoint of update 16 is damaged or gone" in warning
    assert "the average of updates 24, 26, 28, 30" in done.stderr
    assert [event["updates"] for event in of("average", finished)] == [[24, 26, 28, 30]]
    assert_mean(finished, 24, 26, 28, 30)


def test_good_weights_of_a_finished_run_stay(finished: Path, corpus: Path) -> None:
    """F6: One of a finished run's checkpoints rots, and the log lacks the average: the same command changes nothing."""
    flip_a_bit(finished / "checkpoints" / "step-000016" / "model.safetensors")
    forget_average(finished)
    before = files(finished)
    done = train(finished, corpus)
    assert (done.exit_code, "; the weights to use stay as they are" in done.stderr) == (0, True), done.stderr
    assert files(finished) == before


# The time left.


def test_validations_count_in_the_time_left(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N34: Before the first validation its time is said to be unknown; after it all that are ahead count.

    By this clock an update takes one second and a validation 100.
    """
    now, validate = 0.0, Validator.validate

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    def validated(self: Validator, *arguments: Any) -> Any:
        pass_time(100.0)
        return validate(self, *arguments)

    monkeypatch.setattr(Validator, "validate", validated)
    with monkeypatch.context() as patch, after_updates(lambda _: pass_time(1.0)):
        patch.setattr(time, "perf_counter", lambda: now)
        done = train(tmp_path / "model", corpus, steps=60, validate_every=30)
    assert done.exit_code == 0, done.stderr
    first, second = [line for line in done.stderr.splitlines() if "to the end" in line]
    assert first.startswith("about 40 s to the end, 40 updates and 3 validations from here; how long these take")
    assert second == "about 4 min to the end, 20 updates and 2 validations from here"
