"""`nmt train` as a whole: what a run leaves behind, how it goes on after any end, and what it refuses."""

import fcntl
import hashlib
import importlib.metadata
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
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import Result

from nmt import __version__, session
from nmt.lines import read_lines
from nmt.scoring import metrics
from nmt.training import trainer
from tests.conftest import Nmt, call, refusal, write_corpus

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
# A machine with TensorBoard has its logs besides.
OWN = {"config.json", "tokenizer.model", "heldout", "model.safetensors", "checkpoints", "metrics.jsonl", "report.html"}
Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, demo_pairs: Pairs) -> Path:
    """120 pairs to train on, three each for validation and test."""
    folder = tmp_path_factory.mktemp("training") / "corpus"
    return write_corpus(folder, train=demo_pairs[:120], valid=demo_pairs[120:123], test=demo_pairs[123:126])


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


def train(model: Path, corpus: Path, *options: str | Path, **changes: object) -> Result:
    """`nmt train` on the corpus into the directory, inside this process."""
    config = recipe(model.parent, **changes)
    return call("train", "--data", corpus, "--preset", "tiny", "--config", config, "-m", model, *options)


@pytest.fixture(scope="module")
def uninterrupted(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from its first update to its last."""
    model = tmp_path_factory.mktemp("uninterrupted") / "model"
    done = train(model, corpus)
    assert done.exit_code == 0, done.stderr
    assert done.stdout_bytes == b""
    return model


@pytest.fixture
def finished(uninterrupted: Path, tmp_path: Path) -> Path:
    """A copy of a finished run to go on with."""
    copied: Path = shutil.copytree(uninterrupted, tmp_path / "model")
    return copied


def events(model: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(model / "metrics.jsonl")]


def outcome(model: Path) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """What must not depend on interruptions: the weights, the newest checkpoint's, and the log but for its clocks."""
    clocks = ("tokens_per_second", "minutes")
    log = [{name: value for name, value in event.items() if name not in clocks} for event in events(model)]
    newest = max((model / "checkpoints").iterdir())
    return (model / "model.safetensors").read_bytes(), (newest / "model.safetensors").read_bytes(), log


def files(model: Path) -> dict[str, bytes]:
    return {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}


# What a run leaves behind.


def test_the_directory_holds_what_is_promised(uninterrupted: Path) -> None:
    """A run makes the promised files and no others, its checkpoints whole, its leftovers cleared away."""
    assert {path.name for path in uninterrupted.iterdir()} - {".lock", "tensorboard"} == OWN
    heldout = {path.name for path in (uninterrupted / "heldout").iterdir()}
    assert heldout == {"valid.en.gz", "valid.de.gz", "test.en.gz", "test.de.gz"}
    checkpoints = sorted((uninterrupted / "checkpoints").iterdir())
    assert {path.name for path in checkpoints} >= {"step-000016", "step-000024"}
    for path in checkpoints[-2:]:
        assert {file.name for file in path.iterdir()} == {"model.safetensors", "optimizer.pt", "progress.json"}


def test_heldout_text_is_the_corpus(uninterrupted: Path, corpus: Path) -> None:
    """The validation and test text in the directory is the corpus's, line for line."""
    for name in ("valid.en", "valid.de", "test.en", "test.de"):
        assert list(read_lines(uninterrupted / "heldout" / f"{name}.gz")) == list(read_lines(corpus / name))


def test_config_tells_all_that_made_the_model(uninterrupted: Path, corpus: Path) -> None:
    """config.json holds format, settings, seed, versions, languages, and each split's line count and SHA-256."""
    config = json.loads((uninterrupted / "config.json").read_text())
    assert (config["format"], config["nmt"]) == (1, __version__)
    assert (config["source"], config["target"], config["preset"]) == ("en", "de", "tiny")
    assert config["model"]["d_model"] == config["model"]["d_ff"] == 16
    assert config["model"]["norm"] == "post"
    assert config["training"]["seed"] == 1
    assert config["training"]["steps"] == 24
    assert config["data"]["name"] == "corpus"
    assert config["data"]["lines"] == {"train": 120, "valid": 3, "test": 3}
    for split, digest in config["data"]["sha256"].items():
        pairs = zip(read_lines(corpus / f"{split}.en"), read_lines(corpus / f"{split}.de"), strict=True)
        assert digest == hashlib.sha256("".join(f"{a}\n{b}\n" for a, b in pairs).encode()).hexdigest()
    tokenizer = (uninterrupted / "tokenizer.model").read_bytes()
    assert config["vocabulary"]["sha256"] == hashlib.sha256(tokenizer).hexdigest()
    for library in ("torch", "sentencepiece", "sacrebleu"):
        assert config["versions"][library] == importlib.metadata.version(library)


def test_no_place_and_no_code_in_the_directory(nmt: Nmt, corpus: Path, tmp_path: Path) -> None:
    """However paths are typed, no file names a place on the machine, and what is pickled is read by weights_only."""
    model = tmp_path / "model"
    words = [f"--data={corpus}", "--preset=tiny", f"--config={recipe(tmp_path)}", f"-m{model}", "--steps=2"]
    done = nmt("train", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name, content in files(model).items():
        assert str(tmp_path).encode() not in content, name
        assert str(corpus.parent).encode() not in content, name
        if name.endswith(".pt"):
            torch.load(model / name, weights_only=True)
        elif name.endswith(".safetensors"):
            load_file(model / name)
        elif name != ".lock" and not name.startswith("tensorboard/"):
            assert name.endswith((".json", ".jsonl", ".gz", ".html", "tokenizer.model"))
    command = json.loads((model / "config.json").read_text())["command"]
    assert command.startswith("nmt train ")
    assert "--steps=2" in command


def test_the_weights_are_the_mean_of_the_last_checkpoints(uninterrupted: Path) -> None:
    """model.safetensors is the mean of the last two checkpoints, and holds the shared matrix once."""
    weights = load_file(uninterrupted / "model.safetensors")
    parts = [load_file(uninterrupted / "checkpoints" / f"step-0000{n}" / "model.safetensors") for n in (16, 24)]
    assert len({tuple(tensor.shape) for tensor in weights.values() if 450 in tensor.shape}) == 1
    assert sum(450 in tensor.shape for tensor in weights.values()) == 1
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, (parts[0][name] + parts[1][name]) / 2)
        assert tensor.numel() < 3 or not torch.equal(parts[0][name], parts[1][name])


def test_the_log_tells_the_run(uninterrupted: Path) -> None:
    """Each line of metrics.jsonl has what was promised; the rate is the paper's formula at each update."""
    log = events(uninterrupted)
    trained, validated = [e for e in log if "loss" in e], [e for e in log if "bleu" in e]
    assert [event["step"] for event in trained] == [20, 24]
    assert [event["step"] for event in validated] == [8, 16, 24]
    for event in trained:
        step = event["step"]
        assert event["lr"] == pytest.approx(16**-0.5 * min(step**-0.5, step * 22**-1.5))
        assert 0 <= event["padding"] < 1
        assert event["tokens_per_second"] > 0
        assert event["epoch"] >= 0
    for event in validated:
        assert event["perplexity"] == pytest.approx(np.exp(event["nll"]))
        assert 0 <= event["bleu"] <= 100
        assert event["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
        assert event["lines"] == 3


def test_the_same_seed_gives_the_same_bytes(uninterrupted: Path, corpus: Path, tmp_path: Path) -> None:
    """Two runs of one command agree in every weight and every logged number; another seed does not."""
    assert train(tmp_path / "model", corpus).exit_code == 0
    assert outcome(tmp_path / "model") == outcome(uninterrupted)
    assert train(tmp_path / "other", corpus, "--seed", "2").exit_code == 0
    assert outcome(tmp_path / "other")[0] != outcome(uninterrupted)[0]


# Going on.


def test_a_finished_run_says_so(finished: Path, corpus: Path) -> None:
    """The same command on a finished run exits with 0, says that it is finished, and changes nothing."""
    before = files(finished)
    done = train(finished, corpus)
    assert (done.exit_code, done.stdout_bytes) == (0, b"")
    assert "finished" in done.stderr
    assert "--steps" in done.stderr
    assert files(finished) == before


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
        (["--seed", "2"], {}, ["seed was 1, now 2"]),
        (["--source", "de", "--target", "en"], {}, ["source was en, now de", "target was de, now en"]),
        ([], {"d_model": 32, "warmup": 20}, ["d_model was 16, now 32", "warmup was 22, now 20"]),
        (["--vocab-size", "440", "--dropout", "0.5"], {}, ["vocab_size was 450, now 440", "dropout was 0.2, now 0.5"]),
        (["--norm", "pre", "--tokens-per-update", "9"], {}, ["norm was post, now pre", "tokens_per_update was 150"]),
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


def refusal_after_notes(done: Result) -> str:
    """The sentence that ends a run which had already said what it read."""
    assert done.exit_code == 2, done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith("nmt: ")
    return last


class Death(BaseException):
    """A sudden end, as of kill -9 or the power."""


def kill_at_write(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Die in the number-th write that is made durable, before the file gets its name."""
    count = 0

    def fsync(_file: object) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise Death

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("number", range(1, 22))
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


def test_interrupted_anywhere_it_ends_the_same(
    uninterrupted: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by SIGINT (130) and SIGTERM (143), before, at and after a validation, a run ends as one that was not."""
    model = tmp_path / "model"
    update = trainer.Trainer.update
    for stop, number in ((3, signal.SIGINT), (8, signal.SIGTERM), (13, signal.SIGTERM), (21, signal.SIGINT)):

        def interrupted(self: trainer.Trainer, *work: Any, stop: int = stop, number: int = number) -> None:
            update(self, *work)
            if self.progress.update == stop:
                os.kill(os.getpid(), number)

        with monkeypatch.context() as patch:
            patch.setattr(trainer.Trainer, "update", interrupted)
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


def test_fewer_steps_than_were_made_finish_the_run(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run stopped before its first validation, then asked for fewer updates than it made, keeps its weights."""
    model = tmp_path / "model"
    update = trainer.Trainer.update

    def interrupted(self: trainer.Trainer, *work: Any) -> None:
        update(self, *work)
        if self.progress.update == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "update", interrupted)
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
    """A process stopped by Ctrl-C, by SIGTERM, by a terminal that is closed and by kill -9 in turn ends as one that never
    was, log and all. What its caller has ignored, as nohup does, does not stop it.
    """
    config = recipe(tmp_path, steps=400, validate_every=50)

    def command(model: str) -> list[str]:
        return [
            "train",
            "--data",
            str(corpus),
            "--preset",
            "tiny",
            "--config",
            str(config),
            "-m",
            str(tmp_path / model),
        ]

    log = tmp_path / "model" / "metrics.jsonl"
    last = 0
    nohup = ["env", "--ignore-signal=INT,HUP", sys.executable]
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)):
        python = nohup if number in (signal.SIGTERM, signal.SIGKILL) else [sys.executable]
        terminal, stderr = pty.openpty() if number == signal.SIGHUP else (-1, subprocess.PIPE)
        with subprocess.Popen([*python, "-m", "nmt", *command("model")], stderr=stderr) as process:
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
        last = 20 * (max(event["step"] for event in events(tmp_path / "model")) // 20)
        assert last < 400
    assert call(*command("model")).exit_code == 0
    assert call(*command("reference")).exit_code == 0
    assert outcome(tmp_path / "model") == outcome(tmp_path / "reference")


def test_a_training_state_never_runs_code(finished: Path, corpus: Path, tmp_path: Path) -> None:
    """A pickled object in the place of the optimiser's state is told of and not run; the checkpoint before it serves."""

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    torch.save(Trap(), finished / "checkpoints" / "step-000024" / "optimizer.pt")
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


def test_a_loss_that_is_no_number_ends_the_run(corpus: Path, tmp_path: Path) -> None:
    """Diverged training is a failure of work: exit 1, with the settings to change, and no weights of NaN to use."""
    done = train(tmp_path / "model", corpus, factor=1e30)
    assert done.exit_code == 1
    assert "warmup" in done.stderr.splitlines()[-1]
    weights = tmp_path / "model" / "model.safetensors"
    assert not weights.exists() or all(tensor.isfinite().all() for tensor in load_file(weights).values())


# Validation.


def test_odd_validation_text_is_validated(corpus: Path, tmp_path: Path, demo_pairs: Pairs) -> None:
    """An empty line and one of 600 words in the validation text cost nothing but time: every line is scored."""
    data = shutil.copytree(corpus, tmp_path / "corpus")
    write_corpus(data, valid=[demo_pairs[0], ("", ""), ("word " * 600, "Wort " * 600), ("x", "")])
    done = train(tmp_path / "model", data, steps=2)
    assert done.exit_code == 0, done.stderr
    [event] = [event for event in events(tmp_path / "model") if event["event"] == "validation"]
    assert "validation_error" not in event
    assert event["lines"] == 4


def test_a_failure_of_validation_ends_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: Path
) -> None:
    """Where validation fails each time, the run says so, logs it, goes on to its end and the same weights."""

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(metrics, "bleu", fail)
    done = train(tmp_path / "model", corpus)
    assert done.exit_code == 0
    assert done.stderr.count("no room") == 3
    logged = [event for event in events(tmp_path / "model") if "validation_error" in event]
    assert [event["step"] for event in logged] == [8, 16, 24]
    assert outcome(tmp_path / "model")[:2] == outcome(uninterrupted)[:2]


@pytest.mark.parametrize("empty", [False, True])
def test_a_corpus_without_validation_or_test_trains(corpus: Path, tmp_path: Path, empty: bool) -> None:
    """Without these splits, or with them empty, a run trains, says so, and its model translates; score has no test set."""
    data = write_corpus(tmp_path / "corpus", **({"valid": [], "test": []} if empty else {}))
    for language in ("en", "de"):
        shutil.copy(corpus / f"train.{language}", data)
    done = train(tmp_path / "model", data, steps=4)
    assert done.exit_code == 0, done.stderr
    assert "no validation text" in done.stderr
    assert not [event for event in events(tmp_path / "model") if "bleu" in event]
    assert call("translate", "-m", tmp_path / "model", "--beam", "1", stdin=b"Hello.\n").exit_code == 0
    assert call("score", "-m", tmp_path / "model").exit_code == 2


def test_collapse_is_said(corpus: Path, tmp_path: Path) -> None:
    """A model that gives one sentence for most of the validation text is warned of, once it is past its warm-up."""
    data = shutil.copytree(corpus, tmp_path / "corpus")
    same = [("The same.", f"Das {number}.") for number in range(8)] + [("Another one.", "Ein."), ("More.", "Mehr.")]
    write_corpus(data, valid=same)
    done = train(tmp_path / "model", data, "--quiet", steps=4, validate_every=2, warmup=3)
    warnings = [line for line in done.stderr.splitlines() if "collapsed" in line]
    assert [event["same"] > 0.5 for event in events(tmp_path / "model") if "bleu" in event] == [True, True]
    assert len(warnings) == 1
    assert warnings[0].startswith("warning: ")


# What is said.


def test_quiet_says_nothing(corpus: Path, tmp_path: Path) -> None:
    """--quiet leaves stderr and stdout empty where all is well."""
    done = train(tmp_path / "model", corpus, "--quiet", steps=2)
    assert (done.exit_code, done.stdout_bytes, done.stderr) == (0, b"", "")


def test_the_run_says_what_it_does(corpus: Path, tmp_path: Path) -> None:
    """Stderr tells pairs read and kept, preset, vocabulary, parameters, device, seed, disk, end, and what to type next."""
    done = train(tmp_path / "model", corpus)
    for said in (
        "read 120 pairs, kept", "preset tiny", "vocabulary: 450 pieces", "parameters on CPU", "seed 1", "MiB",
        "to the end", f"nmt score -m {tmp_path / 'model'}", f"nmt translate -m {tmp_path / 'model'}",
    ):  # fmt: skip
        assert said in done.stderr
    counted = sum(tensor.numel() for tensor in load_file(tmp_path / "model" / "model.safetensors").values())
    assert f"{counted:,} parameters" in done.stderr


@pytest.mark.parametrize(("most", "warned"), [(0.0, True), (86_400.0, False)])
def test_a_run_of_days_is_warned_of(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: float, warned: bool
) -> None:
    """After 20 updates a run that will take more than a day is warned of, with the way out, and no other is."""
    monkeypatch.setattr(session, "A_DAY", most)
    done = train(tmp_path / "model", corpus, "--quiet", warmup=1_000)
    assert done.exit_code == 0
    assert ("warning: this is more than a day" in done.stderr) == warned == ("--steps" in done.stderr)


def test_the_progress_bar_is_for_terminals(corpus: Path, tmp_path: Path, nmt: Nmt) -> None:
    """A terminal is shown a bar; a file or pipe gets plain lines, even where colour is forced, and no word on stdout."""
    words = ["train", "--data", str(corpus), "--preset", "tiny", "--config", str(recipe(tmp_path, steps=22))]
    piped = nmt(*words, "-m", tmp_path / "piped", FORCE_COLOR="1")
    assert (piped.returncode, piped.stdout) == (0, b"")
    assert b"\x1b" not in piped.stderr
    assert b"\r" not in piped.stderr
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "nmt", *words, "-m", str(tmp_path / "shown")]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env=environment) as process:
        os.close(terminal)
        shown = b""
        try:
            while chunk := os.read(master, 10_000):
                shown += chunk
        except OSError:  # the other side is closed
            pass
        assert process.wait(60) == 0
    os.close(master)
    assert b"\x1b[" in shown
    assert b"training" in shown


def test_no_network_is_needed_or_tried(corpus: Path, overfitted: Path, tmp_path: Path, nmt: Nmt) -> None:
    """Training on a folder, translating and scoring never open a connection or look up a name, nor need a home."""
    (tmp_path / "sitecustomize.py").write_text(
        "import socket\n"
        "def refuse(*arguments, **options):\n"
        f"    open({str(tmp_path / 'tried')!r}, 'a').write(f'{{arguments}}')\n"
        "    raise OSError('the network is off')\n"
        "socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse\n"
        f"open({str(tmp_path / 'loaded')!r}, 'a').write('.')\n"
    )
    config = recipe(tmp_path, steps=2)
    for words in (
        ["train", "--data", corpus, "--preset", "tiny", "--config", config, "-m", tmp_path / "model"],
        ["translate", "-m", overfitted, overfitted / "heldout" / "test.en.gz"],
        ["score", "-m", overfitted],
    ):
        path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        done = nmt(*words, HOME="/nonexistent", PYTHONPATH=path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "loaded").read_text() == "..."
    assert not (tmp_path / "tried").exists()
