"""Public faults of training runs, each as its user met it: other disks, torn checkpoints, readers that leave, the time left."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt import session
from nmt.model_directory import ModelDirectory
from nmt.training import checkpoint
from nmt.training.trainer import Trainer
from nmt.validation import Validator
from nmt.weights import load_weights
from tests.conftest import call
from tests.runs import after_update, events, files, outcome, train, without_digests, words


@pytest.fixture(scope="module")
def uninterrupted(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("uninterrupted") / "model"
    assert train(model, corpus).exit_code == 0
    return model


@pytest.fixture
def finished(uninterrupted: Path, tmp_path: Path) -> Path:
    """A copy of a finished run to go on with: 24 updates, checkpoints of 8, 16 and 24 or the last two of them."""
    return Path(shutil.copytree(uninterrupted, tmp_path / "model"))


def moved(path: Path, disk: Path) -> Path:
    """Move a file or folder to another disk, and leave a link in its place."""
    disk.mkdir(exist_ok=True)
    there = disk / f"moved-{path.name}"
    path.rename(there)
    path.symlink_to(there)
    return there


# Other disks.


def test_a_run_whose_files_are_links_is_restarted(finished: Path, uninterrupted: Path, corpus: Path) -> None:
    """N8: Each file and folder of a run may be a link, the directory too: links are removed and said, what they lead to
    stays, and the new run is one in an empty directory.
    """
    disk = finished.with_name("disk")
    names = [path.name for path in ModelDirectory(finished).files() if path.exists() and path.name != "config.json"]
    assert {"checkpoints", "heldout", "model.safetensors", "metrics.jsonl"} <= {*names}
    for name in names:
        moved(finished / name, disk)
    (finished / "checkpoints.part").symlink_to(disk)
    moved(finished, disk)
    kept = files(disk)
    done = train(finished, corpus, "--restart")
    assert done.exit_code == 0, done.stderr
    for name in names:
        assert f"{finished / name}: a link, which is removed; what it leads to, {disk / f'moved-{name}'}, stays" in (
            done.stderr
        )
    assert outcome(finished) == outcome(uninterrupted)
    assert finished.is_symlink()
    new = files(finished)
    assert {name: content for name, content in files(disk).items() if not name.startswith("moved-model/")} == {
        name: content for name, content in kept.items() if not name.startswith("moved-model/")
    }
    assert not any((finished / name).is_symlink() for name in new)


def test_checkpoints_on_another_disk_serve_as_those_here(
    finished: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N8: A run goes on into them, one of them is a model to use, and room is looked for on that disk, not here."""
    disk = tmp_path / "disk"
    there = moved(finished / "checkpoints", disk)
    moved(there / "step-000016", disk)
    room = namedtuple("room", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room(0 if path == finished / "checkpoints" else 10**9))
    done = train(finished, corpus, "--steps", "40")
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in there.iterdir())[-2:] == ["step-000032", "step-000040"]
    assert not (there / "step-000016").is_symlink(), "of no more use, and gone as any other"
    assert "old checkpoints stay" not in done.stderr
    assert f"warning: {finished / 'checkpoints'}: only 0 MiB are free there" in done.stderr
    newest = finished / "checkpoints" / "step-000040"
    told = json.loads(call("describe", "-m", newest, "--format", "json").stdout)
    assert told["run"]["updates"] == 40
    assert call("translate", "-m", newest, "--beam", "1", stdin=b"Hello.\n").exit_code == 0


# Torn checkpoints.


@pytest.mark.parametrize("byte", [0, 0xFF], ids=["zeros", "ones"])
@pytest.mark.parametrize("name", ["optimizer.pt", "model.safetensors", "progress.json"])
def test_a_checkpoint_overwritten_in_its_middle_gives_way_to_the_one_before(
    finished: Path, uninterrupted: Path, corpus: Path, name: str, byte: int
) -> None:
    """F1: 4,096 bytes of the newest checkpoint are others; the run goes on from the one before, to the same end."""
    file = finished / "checkpoints" / "step-000024" / name
    content = bytearray(file.read_bytes())
    size = min(4_096, len(content) // 2)
    start = (len(content) - size) // 2
    content[start : start + size] = bytes([byte]) * size
    file.write_bytes(content)
    done = train(finished, corpus)
    assert done.exit_code == 0, done.stderr
    assert re.search(r"warning: .*step-000024.*; going on from the checkpoint before it", done.stderr)
    assert "going on after update 16" in done.stderr
    assert outcome(finished) == outcome(uninterrupted)


def test_a_digit_of_the_progress_that_turned_over_is_noticed(finished: Path, corpus: Path) -> None:
    """F1: A position in the epoch that is another number would train on other text than planned, and be valid JSON."""
    file = finished / "checkpoints" / "step-000024" / "progress.json"
    told = file.read_text()
    other = re.sub(r'"position": \d+', '"position": 99', told)
    assert other != told
    file.write_text(other)
    done = train(finished, corpus)
    assert "progress.json is not what was written" in done.stderr
    assert "going on after update 16" in done.stderr


def test_a_directory_without_digests_goes_on(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """F1: As an earlier nmt left it: its checkpoints have no digest and are believed, its log has no average."""
    for path in (finished / "checkpoints").iterdir():
        without_digests(path)
    log = finished / "metrics.jsonl"
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines() if '"average"' not in line))
    done = train(finished, corpus, "--steps", "32")
    assert done.exit_code == 0, done.stderr
    assert "going on after update 24" in done.stderr
    assert "warning" not in done.stderr
    assert train(tmp_path / "at-once", corpus, "--steps", "32").exit_code == 0
    assert outcome(finished)[:2] == outcome(tmp_path / "at-once")[:2]


def test_infinite_moments_end_a_run_before_they_are_saved(corpus: Path, tmp_path: Path) -> None:
    """F1: The square of a gradient may be infinite while loss and weights are numbers: the run ends in the sentence of a
    loss that is none, and the checkpoints before it stay whole.
    """
    model = tmp_path / "model"
    trainers: list[Trainer] = []
    begin = Trainer.begin

    def noted(self: Trainer, *progress: Any) -> None:
        trainers.append(self)
        begin(self, *progress)

    def overflow() -> None:
        state = next(iter(trainers[-1].optimizer.state.values()))
        state["exp_avg_sq"].view(-1)[0] = torch.inf

    with pytest.MonkeyPatch.context() as patch, after_update(14, overflow):
        patch.setattr(Trainer, "begin", noted)
        done = train(model, corpus)
    assert done.exit_code == 1
    assert "no longer numbers after update 16: lower the learning rate (factor)" in done.stderr.splitlines()[-1]
    assert [path.name for path in (model / "checkpoints").iterdir()] == ["step-000008"]
    assert "going on after update 8" in train(model, corpus).stderr


# A reader that leaves.


def test_a_run_goes_on_without_a_reader(corpus: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """F2: Of `nmt train 2>&1 | reader` the reader leaves after three lines: the run ends as one that was heard."""
    command = [sys.executable, "-m", "nmt", *map(str, words(tmp_path / "model", corpus))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout
        assert all(process.stdout.readline() for _ in range(3))
        process.stdout.close()
        assert process.wait(120) == 0
    assert outcome(tmp_path / "model") == outcome(uninterrupted)


def test_work_for_a_file_goes_on_without_a_reader_too(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """F2: `nmt translate -o` has something to say of a line, and nobody reads it: the translation is whole all the same."""
    text = tmp_path / "text"
    text.write_text("".join(f"{source}\n" for source in [*sources[:3], "old " * 600]))
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "nmt", "translate", str(text), "--beam", "1", "-m", str(overfitted), "-o"]
    heard = subprocess.run([*command, str(tmp_path / "heard")], stderr=subprocess.PIPE, check=False)
    unheard = subprocess.run([*command, str(tmp_path / "unheard")], stderr=writing, check=False)
    os.close(writing)
    assert (heard.returncode, unheard.returncode) == (0, 0)
    assert b"warning: " in heard.stderr
    assert (tmp_path / "unheard").read_bytes() == (tmp_path / "heard").read_bytes()


# Averages.


def flip(checkpoint: Path) -> None:
    """Let the last bit of its weights turn over."""
    file = checkpoint / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_a_run_says_what_its_weights_are_the_mean_of_and_what_they_are_worth(
    uninterrupted: Path, overfitted: Path
) -> None:
    """F6: At the end of any run: the updates in the log, and BLEU of the mean on the validation text as score has it."""
    [event] = [event for event in events(uninterrupted) if event["event"] == "average"]
    assert (event["step"], event["updates"]) == (24, [16, 24])
    [event] = [event for event in events(overfitted) if event["event"] == "average"]
    mean, _ = checkpoint.average(overfitted / "checkpoints" / f"step-{update:06d}" for update in event["updates"])
    found = load_weights(overfitted / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in mean.items())
    text = overfitted / "heldout" / "valid"
    translated = call("translate", f"{text}.en.gz", "-m", overfitted).stdout_bytes
    scored = call("score", "-", "-r", f"{text}.de.gz", "--format", "json", stdin=translated)
    assert event["bleu"] == json.loads(scored.stdout)[0]["score"] > 90
    told = json.loads(call("describe", "-m", overfitted, "--format", "json").stdout)
    assert told["run"]["average"]["bleu"] == event["bleu"]


def test_a_mean_of_fewer_is_said_and_logged(finished: Path, corpus: Path) -> None:
    """F6: One of those to average is damaged while the run goes on: one warning, and the log has those that went in."""
    flip(finished / "checkpoints" / "step-000016")
    done = train(finished, corpus, "--steps", "28", "--average", "3", validate_every=2)
    assert done.exit_code == 0, done.stderr
    assert "the weights to use: the average of 3 checkpoints, updates 24 to 28" in done.stderr
    done = train(finished, corpus, "--steps", "30", "--average", "9", validate_every=2)
    assert done.exit_code == 0, done.stderr
    [warning] = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert re.fullmatch(
        r"warning: the checkpoint of update 16 is damaged or gone; the weights to use: the average of 4 checkpoints, "
        r"updates 24 to 30", warning
    )  # fmt: skip
    assert [event["updates"] for event in events(finished) if event["event"] == "average"] == [[24, 26, 28, 30]]


@pytest.mark.parametrize("options", [(), ("--average", "2", "--device", "cpu")])
def test_good_weights_of_a_finished_run_stay(finished: Path, corpus: Path, options: tuple[str, ...]) -> None:
    """F6: One of its checkpoints rots, and the command is given again: nothing is changed, not even by an nmt that
    cannot know from the log what the weights are the mean of.
    """
    flip(finished / "checkpoints" / "step-000016")
    before = files(finished)
    done = train(finished, corpus, *options)
    assert (done.exit_code, "this run is finished" in done.stderr) == (0, True)
    assert files(finished) == before
    log = finished / "metrics.jsonl"
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines() if '"average"' not in line))
    before = files(finished)
    done = train(finished, corpus, *options)
    assert done.exit_code == 0, done.stderr
    assert "warning: the weights to use stay as they are: for an average of 2 checkpoints, that of update 16 is" in (
        done.stderr
    )
    assert files(finished) == before
    assert train(finished, corpus, "--average", "1").exit_code == 0
    newest = load_weights(finished / "checkpoints" / "step-000024" / "model.safetensors")
    found = load_weights(finished / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in newest.items())


def test_an_end_that_came_between_the_last_validation_and_the_mean_is_made_up_for(
    finished: Path, uninterrupted: Path, corpus: Path
) -> None:
    """F6: Killed while the mean is validated, the run given again logs what one that was not killed has."""
    log = finished / "metrics.jsonl"
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines() if '"average"' not in line))
    assert train(finished, corpus).exit_code == 0
    assert outcome(finished) == outcome(uninterrupted)


# The time left.


@pytest.mark.parametrize("validation", [100.0, 0.5])
def test_validations_count_in_the_time_left(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validation: float
) -> None:
    """N34: An update takes a second by this clock. Before the first validation its time is said to be unknown, after it
    all that are ahead count, the one of the mean too; where they hardly do, nothing is said again.
    """
    now = 0.0
    update, validate = Trainer.update, Validator.validate
    ended: list[float] = []

    def passed(seconds: float) -> None:
        nonlocal now
        now += seconds

    def validated(self: Validator, *given: Any) -> Any:
        passed(validation)
        ended.append(now)
        return validate(self, *given)

    def updated(self: Trainer, *given: Any) -> None:
        passed(1.0)
        update(self, *given)

    monkeypatch.setattr(Trainer, "update", updated)
    monkeypatch.setattr(Validator, "validate", validated)
    monkeypatch.setattr(session, "LINE_EVERY", 20)
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: now)
        done = train(tmp_path / "model", corpus, steps=60, validate_every=30)
    assert done.exit_code == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "to the end" in line]
    assert told[0] == (
        "about 40 s to the end, 40 updates and 3 validations from here; how long these take, the first will tell"
    )
    assert len(ended) == 3
    left = ended[-1] - (40 + validation)  # at update 40, after the first of them
    shown = {100.0: "4 min", 0.5: "21 s"}[validation]
    assert left == 20 + 2 * validation
    assert told[1:] == ([f"about {shown} to the end, 20 updates and 2 validations from here"] * (validation > 1))
    lines = re.findall(r"update \d+ of 60: loss .*, (.* left), lr ", done.stderr)
    last = {100.0: "3 min", 0.5: "1 s"}[validation]  # of the last update and of the mean
    assert [line.split(", ")[-1] for line in lines] == ["over 40 s left", f"{shown} left", f"{last} left"]
