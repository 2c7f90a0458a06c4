"""`nmt train` on a directory that holds a run: how it goes on after any end, and what is refused or discarded."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import call, refusal
from tests.runs import (
    OWN,
    Death,
    after_update,
    events,
    files,
    outcome,
    refusal_after_notes,
    signalled,
    train,
    without_digests,
    words,
)


@pytest.fixture(scope="module")
def uninterrupted(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("uninterrupted") / "model"
    done = train(model, corpus)
    assert done.exit_code == 0, done.stderr
    return model


@pytest.fixture
def finished(uninterrupted: Path, tmp_path: Path) -> Path:
    """A copy of a finished run to go on with."""
    copied: Path = shutil.copytree(uninterrupted, tmp_path / "model")
    return copied


# Going on.


def test_more_steps_go_on(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """A finished run with a larger --steps goes on, and ends as if it had been asked for them at once."""
    assert train(finished, corpus, "--steps", "40").exit_code == 0
    assert train(tmp_path / "at-once", corpus, "--steps", "40").exit_code == 0
    assert outcome(finished)[:2] == outcome(tmp_path / "at-once")[:2]
    assert json.loads((finished / "config.json").read_text())["training"]["steps"] == 40


def test_another_average_is_taken_of_a_finished_run(finished: Path, corpus: Path) -> None:
    """A finished run with another --average has the weights of that average afterwards."""
    assert train(finished, corpus, "--average", "1").exit_code == 0
    newest = finished / "checkpoints" / "step-000024" / "model.safetensors"
    weights, last = load_file(finished / "model.safetensors"), load_file(newest)
    assert all(torch.equal(weights[name], last[name]) for name in last)


def test_a_larger_average_takes_what_is_there(finished: Path, corpus: Path) -> None:
    """Going on with a larger --average than before works, though older checkpoints are gone: it means those left."""
    assert train(finished, corpus, "--average", "1", "--steps", "40").exit_code == 0
    assert not (finished / "checkpoints" / "step-000016").exists()
    done = train(finished, corpus, "--average", "4", "--steps", "48")
    assert done.exit_code == 0, done.stderr
    paths = [path for path in sorted((finished / "checkpoints").iterdir()) if path.name > "step-000016"]
    assert len(paths) < 4
    last = [load_file(path / "model.safetensors") for path in paths]
    for name, tensor in load_file(finished / "model.safetensors").items():
        torch.testing.assert_close(tensor, torch.stack([weights[name] for weights in last]).mean(0))


def test_runtime_settings_may_change(finished: Path, corpus: Path) -> None:
    """A run goes on with another micro-batch size, precision and device, and says what changed."""
    options = ["--steps", "26", "--micro-batch-tokens", "64", "--precision", "bf16", "--device", "cpu"]
    done = train(finished, corpus, *options)
    assert done.exit_code == 0, done.stderr
    assert [event["step"] for event in events(finished)][-1] == 26
    assert "micro_batch_tokens" in done.stderr
    assert "bf16" in done.stderr


@pytest.mark.parametrize(
    ("options", "changes", "names"),
    [
        (["--source", "de", "--target", "en"], {}, ["source was en, now de", "target was de, now en"]),
        (
            ["--seed", "2", "--dropout", "0.5", "--norm", "pre", "--tokens-per-update", "9"],
            {"d_model": 32, "warmup": 20},
            [
                "seed was 1, now 2",
                "dropout was 0.2, now 0.5",
                "norm was post, now pre",
                "tokens_per_update was 150, now 9",
                "d_model was 16, now 32",
                "warmup was 22, now 20",
            ],
        ),
    ],
)
def test_another_run_is_refused_with_all_that_differs(
    finished: Path, corpus: Path, options: list[str], changes: dict[str, object], names: list[str]
) -> None:
    """Settings that make another run exit with 2 and name each difference and nothing else; no file is touched."""
    before = files(finished)
    message = refusal_after_notes(train(finished, corpus, "--steps", "99", *options, **changes))
    assert all(name in message for name in names), message
    assert len(re.findall("(?<! text) was ", message)) == len(names)  # the text of a swapped direction differs too
    assert files(finished) == before


@pytest.mark.parametrize(
    ("change", "named"), [("train.en", "train"), ("test.de", "test"), ("no test", "test"), ("no valid", "valid")]
)
def test_other_data_is_another_run(finished: Path, corpus: Path, tmp_path: Path, change: str, named: str) -> None:
    """One changed line of any split, or a split that is gone, is other data: exit 2, and the split is named."""
    data = shutil.copytree(corpus, tmp_path / "corpus")
    if change.startswith("no "):
        for path in data.glob(f"{named}.*"):
            path.unlink()
    else:
        (data / change).write_text((data / change).read_text(encoding="utf-8").replace(".", "!", 1), encoding="utf-8")
    assert named in refusal_after_notes(train(finished, data, "--steps", "26"))


def test_a_renamed_corpus_is_the_same_data(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """Where the text lies does not matter: a run goes on with a copy of its corpus under another name."""
    data = shutil.copytree(corpus, tmp_path / "copy")
    assert train(finished, data, "--steps", "25").exit_code == 0


def kill_at_write(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Die in the number-th write that is made durable, before the file gets its name."""
    count = 0

    def fsync(_file: object) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise Death

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("number", [*range(1, 15), *range(21, 27)])  # 15 to 20 are a second validation's, as 9 to 14
def test_death_in_any_write_costs_nothing(
    uninterrupted: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Dying while any file is being saved, the same command ends in the same weights, checkpoints and log."""
    model = tmp_path / "model"
    with monkeypatch.context() as patch:
        kill_at_write(patch, number)
        with pytest.raises(Death):
            train(model, corpus)
    done = train(model, corpus)
    assert done.exit_code == 0, done.stderr
    assert outcome(model) == outcome(uninterrupted)
    assert {path.name for path in model.iterdir()} - {".lock", "tensorboard"} == OWN
    assert not [path for path in model.rglob("*.part")]


def test_interrupted_anywhere_it_ends_the_same(uninterrupted: Path, corpus: Path, tmp_path: Path) -> None:
    """N45: Stopped by SIGINT (130), SIGTERM (143), SIGHUP (129) and Slurm's SIGUSR1 (138), before, at and after a validation,
    a run ends as one that was not.
    """
    model = tmp_path / "model"
    for stop, number in ((3, signal.SIGINT), (8, signal.SIGTERM), (13, signal.SIGUSR1), (21, signal.SIGHUP)):
        with after_update(stop, signalled(number)):
            done = train(model, corpus)
        assert done.exit_code == 128 + number
        assert f"after update {stop}" in done.stderr.splitlines()[-1]
        assert "same command" in done.stderr.splitlines()[-1]
        assert (model / "checkpoints" / f"step-{stop:06d}").is_dir()
        assert call("translate", "-m", model, "--beam", "1", stdin=b"Hello.\n").stdout_bytes.count(b"\n") == 1
    done = train(model, corpus)
    assert done.exit_code == 0
    assert "going on after update 21" in done.stderr
    assert outcome(model) == outcome(uninterrupted)


def test_fewer_steps_than_were_made_finish_the_run(corpus: Path, tmp_path: Path) -> None:
    """A run stopped before its first validation, then asked for fewer updates than it made, keeps its weights."""
    model = tmp_path / "model"
    with after_update(5, signalled(signal.SIGINT)):
        assert train(model, corpus).exit_code == 130
    weights = (model / "model.safetensors").read_bytes()
    done = train(model, corpus, "--steps", "3")
    assert done.exit_code == 0, done.stderr
    assert "finished" in done.stderr
    assert (model / "model.safetensors").read_bytes() == weights


def test_a_resumed_run_tells_its_end_and_goes_on_with_its_clock(finished: Path, corpus: Path) -> None:
    """Going on from an update that is no multiple of the log's interval, the estimate comes; the minutes add up."""
    before = [event["minutes"] for event in events(finished) if "minutes" in event]
    done = train(finished, corpus, "--steps", "60")
    assert " to the end, " in done.stderr
    assert "last loss" in done.stderr
    minutes = [event["minutes"] for event in events(finished) if "minutes" in event]
    assert len(minutes) > len(before)
    assert minutes == sorted(minutes)


@pytest.mark.slow
def test_signals_to_a_real_run(corpus: Path, tmp_path: Path) -> None:
    """A process stopped by Ctrl-C, by a terminal that is closed and by kill -9 in turn ends as one that never was, log and
    all. What its caller has ignored, as nohup does, does not stop it.
    """
    model = tmp_path / "model"
    command = list(map(str, words(model, corpus, steps=240, validate_every=60)))
    log = model / "metrics.jsonl"
    heeding, nohup = (["env", f"--{what}-signal=INT,HUP", sys.executable] for what in ("default", "ignore"))
    last = 0
    for number, code in ((signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGKILL, -9)):
        python = nohup if number == signal.SIGKILL else heeding
        terminal, stderr = pty.openpty() if number == signal.SIGHUP else (-1, subprocess.PIPE)
        with subprocess.Popen([*python, "-m", "nmt", *command], stderr=stderr) as process:
            while not (log.exists() and f'"step": {last + 40},' in log.read_text()):
                assert process.poll() is None
                time.sleep(0.005)
            if number == signal.SIGHUP:  # nothing can be said any more
                os.close(stderr)
                os.close(terminal)
            if python is nohup:
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGHUP)
                time.sleep(0.1)
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        errors = errors or b""
        assert process.returncode == code, errors
        assert b"Traceback" not in errors
        last = 20 * (max(event["step"] for event in events(model)) // 20)
        assert last < 240
    assert call(*command).exit_code == 0
    assert train(tmp_path / "straight", corpus, steps=240, validate_every=60).exit_code == 0
    assert outcome(model) == outcome(tmp_path / "straight")


def test_a_training_state_never_runs_code(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """A pickled object in the place of the optimiser's state is told of and not run; the checkpoint before it serves."""

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    newest = finished / "checkpoints" / "step-000024"
    torch.save(Trap(), newest / "optimizer.pt")
    without_digests(newest)
    done = train(finished, corpus, "--steps", "26")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"warning: .*step-000024.*going on from the checkpoint before it", done.stderr)
    assert "going on after update 16" in done.stderr
    assert not (tmp_path / "sprung").exists()


# What is refused, and what is discarded.


def test_a_mistake_leaves_no_directory_behind(tmp_path: Path) -> None:
    """A run that could not begin leaves nothing where its model would have been; an empty folder of the user's stays."""
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        refusal(call("train", "--data", tmp_path / "missing", "-m", tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_held_directory_is_refused(finished: Path, corpus: Path) -> None:
    """While another process holds the run, a second one is refused and touches nothing; afterwards it may go on."""
    before = files(finished)
    with (finished / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for options in ([], ["--restart"]):
            assert "another run" in refusal(train(finished, corpus, "--steps", "26", *options))
        assert files(finished) == before
    assert train(finished, corpus).exit_code == 0


@pytest.mark.parametrize("options", [[], ["--restart"]])
@pytest.mark.parametrize("name", ["notes.txt", "config.json", "model.safetensors"])
def test_a_foreign_directory_is_refused(corpus: Path, tmp_path: Path, name: str, options: list[str]) -> None:
    """A directory of other things, even another program's model, is refused, and --restart deletes none of it."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / name).write_text('{"model_type": "another program\'s"}')
    (tmp_path / "model" / "tokenizer.model").write_text("theirs")
    before = files(tmp_path / "model")
    refusal_after_notes(train(tmp_path / "model", corpus, *options))
    after = files(tmp_path / "model")
    assert {key: value for key, value in after.items() if key != ".lock"} == before


def test_restart_discards_the_run_and_nothing_else(finished: Path, uninterrupted: Path, corpus: Path) -> None:
    """--restart trains anew from the first update, as in an empty directory; a file that is not the run's stays."""
    (finished / "notes.txt").write_text("mine")
    assert train(finished, corpus, "--steps", "26", "--seed", "3").exit_code == 2
    assert train(finished, corpus, "--restart").exit_code == 0
    assert outcome(finished) == outcome(uninterrupted)
    assert (finished / "notes.txt").read_text() == "mine"
    assert {path.name for path in finished.iterdir()} - {".lock", "tensorboard", "notes.txt"} == OWN


def test_a_mistake_beside_restart_discards_nothing(finished: Path, corpus: Path) -> None:
    """--restart with data that cannot be read leaves the old run as it was."""
    before = files(finished)
    assert train(finished, corpus.with_name("typo"), "--restart").exit_code == 2
    assert files(finished) == before
