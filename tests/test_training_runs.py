"""`nmt train` from the first update to the last: what a run leaves behind, what it validates, what it says."""

import hashlib
import importlib.metadata
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import Result

from nmt import __version__
from nmt.lines import read_lines
from nmt.scoring import metrics
from tests.conftest import call, shown_on, write_corpus
from tests.runs import OWN, Pairs, assert_mean, events, files, of, outcome, recipe, signalled, train, words

# What a run leaves behind.


def test_the_directory_holds_what_is_promised(straight: Path, corpus: Path) -> None:
    """A run makes the promised files and no others: whole checkpoints, their mean, the held-out text line for line."""
    assert {path.name for path in straight.iterdir()} - {".lock", "tensorboard"} == OWN
    heldout = ("valid.en", "valid.de", "test.en", "test.de")
    assert {path.name for path in (straight / "heldout").iterdir()} == {f"{name}.gz" for name in heldout}
    for name in heldout:
        assert list(read_lines(straight / "heldout" / f"{name}.gz")) == list(read_lines(corpus / name))
    for update in (16, 24):
        checkpoint = {path.name for path in (straight / "checkpoints" / f"step-{update:06}").iterdir()}
        assert checkpoint == {"model.safetensors", "optimizer.pt", "progress.json"}
    assert_mean(straight, 16, 24)


def test_config_tells_all_that_made_the_model(straight: Path, corpus: Path) -> None:
    """config.json holds format, settings, seed, versions, languages, and each split's line count and SHA-256."""
    config = json.loads((straight / "config.json").read_text())
    expected = {"format": 1, "nmt": __version__, "source": "en", "target": "de", "preset": "tiny"}
    assert {name: config[name] for name in expected} == expected
    assert (config["model"]["d_model"], config["training"]["seed"], config["training"]["steps"]) == (16, 1, 24)
    assert (config["data"]["name"], config["data"]["lines"]) == ("corpus", {"train": 120, "valid": 3, "test": 3})
    for split, digest in config["data"]["sha256"].items():
        pairs = zip(read_lines(corpus / f"{split}.en"), read_lines(corpus / f"{split}.de"), strict=True)
        assert digest == hashlib.sha256("".join(f"{a}\n{b}\n" for a, b in pairs).encode()).hexdigest()
    tokenizer = (straight / "tokenizer.model").read_bytes()
    assert config["vocabulary"]["sha256"] == hashlib.sha256(tokenizer).hexdigest()
    for library in ("torch", "sentencepiece", "sacrebleu"):
        assert config["versions"][library] == importlib.metadata.version(library)


def test_no_place_and_no_code_in_the_directory(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C6: No file names a place on this machine, however the paths are typed, and all pickles load with weights_only."""
    model = tmp_path / "model"
    typed = ["train", f"--data={corpus}", "--preset=tiny", f"--config={recipe(tmp_path)}", f"-m{model}", "--steps=2"]
    monkeypatch.setattr(sys, "argv", ["nmt", *typed])
    assert call(*typed).exit_code == 0
    for name, content in files(model).items():
        assert not {place for place in (tmp_path, corpus.parent) if str(place).encode() in content}, name
        if name.endswith(".pt"):
            torch.load(model / name, weights_only=True)
    command = json.loads((model / "config.json").read_text())["command"]
    assert re.fullmatch("nmt train .*--steps=2", command)


def test_the_log_tells_the_run(straight: Path) -> None:
    """metrics.jsonl has every promised field, and the paper's rate at each update."""
    trained, validated = of("training", straight), [event for event in events(straight) if "bleu" in event]
    assert [event["step"] for event in trained] == [20, 24]
    assert [event["step"] for event in validated] == [8, 16, 24, 24]
    for event in trained:
        step = event["step"]
        assert event["lr"] == pytest.approx(16**-0.5 * min(step**-0.5, step * 22**-1.5))
        assert 0 <= event["padding"] < 1
        assert event.keys() >= {"epoch", "tokens_per_second"}
    for event in validated:
        assert event["perplexity"] == pytest.approx(np.exp(event["nll"]))
        assert 0 <= event["bleu"] <= 100
        assert event["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
        assert event["lines"] == 3


def test_the_same_seed_gives_the_same_bytes(straight: Path, corpus: Path, tmp_path: Path) -> None:
    """R6: Two runs of one command agree in every weight and every logged number; another seed does not."""
    assert train(tmp_path / "model", corpus).exit_code == 0
    assert outcome(tmp_path / "model") == outcome(straight)
    assert train(tmp_path / "other", corpus, "--seed", "2").exit_code == 0
    assert outcome(tmp_path / "other")[0] != outcome(straight)[0]


# Failures that a run survives, and one that it does not.


def test_a_failure_of_validation_ends_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, straight: Path
) -> None:
    """R7: A run whose every validation fails logs that and ends with the same weights."""

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(metrics, "bleu", fail)
    done = train(tmp_path / "model", corpus)
    assert (done.exit_code, done.stderr.count("no room")) == (0, 4)
    logged = [event["step"] for event in events(tmp_path / "model") if "validation_error" in event]
    assert logged == [8, 16, 24, 24]
    assert outcome(tmp_path / "model")[:2] == outcome(straight)[:2]


def test_a_corpus_without_validation_or_test_trains(demo_pairs: Pairs, tmp_path: Path) -> None:
    """A run trains and says so; there is nothing to score."""
    data = write_corpus(tmp_path / "corpus", train=demo_pairs[:120])
    done = train(tmp_path / "model", data, steps=4)
    assert done.exit_code == 0, done.stderr
    assert "saved, not validated" in done.stderr
    assert not [event for event in events(tmp_path / "model") if "bleu" in event]
    assert call("translate", "-m", tmp_path / "model", "--beam", "1", stdin=b"Hello.\n").exit_code == 0
    assert call("score", "-m", tmp_path / "model").exit_code == 2


def test_a_loss_that_is_no_number_ends_the_run(corpus: Path, tmp_path: Path) -> None:
    """R1: A run that diverges ends at once with exit code 1 and the settings to change, and saves nothing."""
    done = train(tmp_path / "model", corpus, factor=1e30)
    assert done.exit_code == 1
    assert "after update 2: lower the learning rate (factor) or lengthen the warm-up" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "model" / "model.safetensors").exists()


# What is said.


def test_the_run_says_what_comes_next(straight_run: tuple[Path, Result], corpus: Path, tmp_path: Path) -> None:
    """Parameters, disk, time left and the next commands, with no warning; --quiet says nothing at all."""
    model, done = straight_run
    count = sum(tensor.numel() for tensor in load_file(model / "model.safetensors").values())
    for said in (f"{count:,} parameters", "MiB", "to the end", f"nmt score -m {model}", f"nmt translate -m {model}"):
        assert said in done.stderr
    assert "warning" not in done.stderr
    quiet = train(tmp_path / "model", corpus, "--quiet", steps=2)
    assert (quiet.exit_code, quiet.stdout_bytes, quiet.stderr) == (0, b"", "")


def test_a_run_of_days_is_warned_of(corpus: Path, tmp_path: Path) -> None:
    """After 20 updates, with the way out, even where the run is to be quiet."""
    with signalled(20, signal.SIGINT):
        done = train(tmp_path / "model", corpus, "--quiet", steps=10**9, validate_every=10**9)
    assert done.exit_code == 130
    assert re.search("^warning: .*more than a day.*--steps", done.stderr, re.MULTILINE)


def test_the_progress_bar_is_for_terminals(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U3: A terminal shows a bar; a pipe gets plain lines, even where colour is forced; stdout gets nothing."""
    with monkeypatch.context() as forced:
        forced.setenv("FORCE_COLOR", "1")
        piped = train(tmp_path / "piped", corpus, steps=2)
    assert (piped.exit_code, piped.stdout_bytes) == (0, b"")
    assert not {"\x1b", "\r"} & {*piped.stderr}
    master, terminal = pty.openpty()
    command = ["env", "TERM=xterm", sys.executable, "-m", "nmt", *map(str, words(tmp_path / "shown", corpus, steps=2))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        shown = shown_on(master)
        assert process.communicate(timeout=60)[0] == b""
    os.close(master)
    assert process.returncode == 0
    assert {b"\x1b[" in shown, b"training" in shown} == {True}


OFFLINE = """
import socket, sys
from pathlib import Path
from nmt.cli import app

def refuse(*arguments, **options):
    with Path({tried!r}).open("a") as file:
        file.write(f"{{arguments}}")
    raise OSError("the network is off")

socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
for words in {commands!r}:
    app(words, standalone_mode=False)
"""


def test_no_network_is_needed_or_tried(corpus: Path, straight: Path, tmp_path: Path) -> None:
    """I3: Training on a folder, translating and scoring open no connection, look up no name and need no home."""
    commands = (
        words(tmp_path / "model", corpus, steps=2),
        ["translate", "-m", straight, straight / "heldout" / "test.en.gz"],
        ["score", "-m", straight],
    )
    script = OFFLINE.format(tried=str(tmp_path / "tried"), commands=[list(map(str, command)) for command in commands])
    environment = os.environ | {"HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"BLEU" in done.stdout, "the last command has run"
    assert not (tmp_path / "tried").exists()
