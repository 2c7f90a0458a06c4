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

from tests.conftest import call, refusal
from tests.runs import OWN, assert_mean, events, files, last_error, outcome, signalled, train, without_digests, words

LONGER = {"steps": 160, "validate_every": 20}

# Going on.


def test_more_steps_go_on(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """C1, C2: A finished run with a larger --steps ends as if it had been asked for them at once; minutes add up."""
    done = train(finished, corpus, "--steps", "60")
    assert re.search(r"resuming after update 24, rate \S+, last loss \d", done.stderr)
    assert " to the end, " in done.stderr
    assert train(tmp_path / "at-once", corpus, "--steps", "60").exit_code == 0
    assert outcome(finished)[:2] == outcome(tmp_path / "at-once")[:2]
    assert json.loads((finished / "config.json").read_text())["training"]["steps"] == 60
    minutes = [event["minutes"] for event in events(finished) if "minutes" in event]
    assert minutes == sorted(minutes)


def test_average_may_change(finished: Path, corpus: Path) -> None:
    """On a finished run too; a larger one takes the checkpoints that are still there."""
    assert train(finished, corpus, "--average", "1").exit_code == 0
    assert_mean(finished, 24)
    assert train(finished, corpus, "--average", "1", "--steps", "40").exit_code == 0
    assert not (finished / "checkpoints" / "step-000016").exists()
    assert train(finished, corpus, "--average", "4", "--steps", "48").exit_code == 0
    updates = [int(path.name.removeprefix("step-")) for path in sorted((finished / "checkpoints").iterdir())]
    assert_mean(finished, *(update for update in updates if update > 24))


def test_runtime_settings_may_change(finished: Path, corpus: Path) -> None:
    """A run goes on with another micro-batch size and precision, and says what changed."""
    done = train(finished, corpus, "--steps", "26", "--micro-batch-tokens", "64", "--precision", "bf16")
    assert done.exit_code == 0, done.stderr
    assert events(finished)[-1]["step"] == 26
    assert "micro_batch_tokens was None, now 64" in done.stderr
    assert "precision was fp32, now bf16" in done.stderr


def test_another_run_is_refused_with_all_that_differs(finished: Path, corpus: Path) -> None:
    """C5: Settings of another run exit with 2 and name each difference and nothing else; no file is touched."""
    before = files(finished)
    options = ["--steps", "99", "--seed", "2", "--dropout", "0.5", "--norm", "pre"]
    message = last_error(train(finished, corpus, *options, d_model=32, warmup=20))
    differences = ["seed was 1, now 2", "dropout was 0.2, now 0.5", "norm was post, now pre", "d_model was 16, now 32"]
    assert all(difference in message for difference in [*differences, "warmup was 22, now 20"]), message
    assert message.count(" was ") == 5
    swapped = last_error(train(finished, corpus, "--source", "de", "--target", "en"))
    assert "source was en, now de; target was de, now en" in swapped
    assert files(finished) == before


def test_other_data_is_another_run(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """C5: One changed line, or a split that is gone, exits with 2 and is named; another name for the folder is nothing."""
    data = shutil.copytree(corpus, tmp_path / "copy")
    assert train(finished, data, "--steps", "25").exit_code == 0
    (data / "train.en").write_text((corpus / "train.en").read_text().replace(".", "!", 1))
    for path in data.glob("test.*"):
        path.unlink()
    message = last_error(train(finished, data, "--steps", "26"))
    assert "the train text was " in message
    assert re.search("the test text was [0-9a-f]+, now unset", message)


def test_interrupted_anywhere_it_ends_the_same(straight: Path, corpus: Path, tmp_path: Path) -> None:
    """N45: SIGINT (130), SIGTERM (143), SIGHUP (129) and SIGUSR1 (138) stop a run, before, at and after a validation.

    Its model can be used each time, and the run ends as one that was not stopped.
    """
    model = tmp_path / "model"
    for stop, number in ((3, signal.SIGINT), (8, signal.SIGTERM), (13, signal.SIGUSR1), (21, signal.SIGHUP)):
        with signalled(stop, number):
            done = train(model, corpus)
        assert done.exit_code == 128 + number
        assert f"after update {stop}" in done.stderr.splitlines()[-1]
        assert "same command" in done.stderr.splitlines()[-1]
        assert (model / "checkpoints" / f"step-{stop:06d}").is_dir()
        assert call("translate", "-m", model, "--beam", "1", stdin=b"Hello.\n").stdout_bytes.count(b"\n") == 1
    done = train(model, corpus)
    assert done.exit_code == 0
    assert "resuming after update 21" in done.stderr
    assert outcome(model) == outcome(straight)


def test_what_is_drawn_anew_each_epoch_survives_a_stop(corpus: Path, tmp_path: Path) -> None:
    """Segmentation, case, typing errors, word dropout, R-Drop: all follow from the seed and the place in the run."""
    settings = {"bpe_dropout": 0.1, "upper_case": 0.1, "typos": 0.1, "word_dropout": 0.1, "r_drop": 1.0}
    assert train(tmp_path / "straight", corpus, **settings).exit_code == 0
    with signalled(13, signal.SIGINT):
        assert train(tmp_path / "model", corpus, **settings).exit_code == 130
    assert train(tmp_path / "model", corpus, **settings).exit_code == 0
    assert outcome(tmp_path / "model") == outcome(tmp_path / "straight")


# Sudden ends.


def test_death_in_any_write_costs_nothing(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3: From what a kill leaves behind while any file is being saved, the same command comes to the same end."""
    model, snapshots = tmp_path / "model", tmp_path / "snapshots"
    snapshots.mkdir()

    def fsync(_file: object) -> None:
        """Copy the directory: the file is written, but does not have its name yet."""
        if model.exists():
            shutil.copytree(model, snapshots / f"{len([*snapshots.iterdir()]):02}" / "model")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        assert train(model, corpus, steps=16).exit_code == 0
    assert len([*snapshots.iterdir()]) >= 20
    for snapshot in sorted(snapshots.iterdir()):
        done = train(snapshot / "model", corpus, steps=16)
        assert done.exit_code == 0, (snapshot, done.stderr)
        assert outcome(snapshot / "model") == outcome(model), snapshot
        assert {path.name for path in (snapshot / "model").iterdir()} - {".lock", "tensorboard"} == OWN, snapshot
        assert not [*snapshot.rglob("*.part")], snapshot


def test_a_training_state_never_runs_code(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """C6: A pickled object in place of the optimiser's state is reported and not run; the checkpoint before it serves."""

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    newest = finished / "checkpoints" / "step-000024"
    torch.save(Trap(), newest / "optimizer.pt")
    without_digests(newest)
    done = train(finished, corpus, "--steps", "26")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"warning: .*step-000024.*resuming from the checkpoint before it", done.stderr)
    assert "resuming after update 16" in done.stderr
    assert not (tmp_path / "sprung").exists()


# What is refused, and what is discarded.


def test_a_mistake_leaves_no_directory_behind(tmp_path: Path) -> None:
    """A run that could not begin leaves nothing where its model would have been; the user's empty folder stays."""
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        refusal(call("train", "--data", tmp_path / "missing", "-m", tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_held_directory_is_refused(finished: Path, corpus: Path) -> None:
    """While another process holds the run, a second one is refused and touches nothing."""
    before = files(finished)
    with (finished / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for options in ([], ["--restart"]):
            assert "another run" in refusal(train(finished, corpus, "--steps", "26", *options))
        assert files(finished) == before


@pytest.mark.parametrize("name", ["notes.txt", "config.json"])
def test_a_foreign_directory_is_refused(corpus: Path, tmp_path: Path, name: str) -> None:
    """A directory of other things, even another program's model, is refused, and --restart deletes none of it."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / name).write_text('{"model_type": "another program\'s"}')
    (tmp_path / "model" / "tokenizer.model").write_text("theirs")
    before = files(tmp_path / "model")
    for options in ([], ["--restart"]):
        last_error(train(tmp_path / "model", corpus, *options))
    assert files(tmp_path / "model") == before


def test_restart_discards_the_run_and_nothing_else(finished: Path, straight: Path, corpus: Path) -> None:
    """C5: --restart trains as in an empty directory; the user's file stays, and so does the run if data is missing."""
    (finished / "notes.txt").write_text("mine")
    before = files(finished)
    assert train(finished, corpus.with_name("typo"), "--restart").exit_code == 2
    assert train(finished, corpus, "--seed", "3").exit_code == 2
    assert files(finished) == before
    assert train(finished, corpus, "--restart").exit_code == 0
    assert outcome(finished) == outcome(straight)
    assert {path.name for path in finished.iterdir()} - {".lock", "tensorboard"} == OWN | {"notes.txt"}


@pytest.mark.slow
def test_signals_to_a_real_run(corpus: Path, tmp_path: Path) -> None:
    """A process stopped by Ctrl-C, then by a closed terminal, ends as one that was not; nohup's is not stopped."""
    model = tmp_path / "model"
    log, command = model / "metrics.jsonl", list(map(str, words(model, corpus, **LONGER)))

    def stopped(after: int, number: int, python: list[str]) -> int:
        """The exit code of a process on a terminal that gets the signal after this update, and loses the terminal before."""
        terminal, stderr = pty.openpty()
        with subprocess.Popen([*python, "-m", "nmt", *command], stderr=stderr) as process:
            os.close(stderr)
            while not (log.exists() and f'"step": {after},' in log.read_text()):
                assert process.poll() is None
                time.sleep(0.005)
            os.close(terminal)
            process.send_signal(number)
            return process.wait(60)

    default, nohup = (["env", f"--{what}-signal=INT,HUP", sys.executable] for what in ("default", "ignore"))
    assert stopped(40, signal.SIGINT, default) == 130
    assert stopped(80, signal.SIGHUP, default) == 129
    assert stopped(120, signal.SIGHUP, nohup) == 0
    assert train(tmp_path / "straight", corpus, **LONGER).exit_code == 0
    assert outcome(model) == outcome(tmp_path / "straight")
