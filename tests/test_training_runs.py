"""`nmt train` from its first update to its last: what a run leaves behind, what it validates, what it says."""

import hashlib
import importlib.metadata
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import Result

from nmt import __version__, session
from nmt.lines import read_lines
from nmt.scoring import metrics
from tests.conftest import call, shown_on, write_corpus
from tests.runs import OWN, events, files, outcome, recipe, train, words


@pytest.fixture(scope="module")
def told(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A run from its first update to its last, and what it said."""
    model = tmp_path_factory.mktemp("uninterrupted") / "model"
    done = train(model, corpus)
    assert (done.exit_code, done.stdout_bytes) == (0, b""), done.stderr
    return model, done


@pytest.fixture(scope="module")
def uninterrupted(told: tuple[Path, Result]) -> Path:
    return told[0]


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


def test_no_place_and_no_code_in_the_directory(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However paths are typed, no file names a place on the machine, and what is pickled is read by weights_only."""
    model = tmp_path / "model"
    typed = ["train", f"--data={corpus}", "--preset=tiny", f"--config={recipe(tmp_path)}", f"-m{model}", "--steps=2"]
    monkeypatch.setattr(sys, "argv", ["nmt", *typed])
    done = call(*typed)
    assert done.exit_code == 0, done.stderr
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
    assert [(event["event"], event["step"]) for event in validated] == [
        *(("validation", step) for step in (8, 16, 24)), ("average", 24),
    ]  # fmt: skip
    assert validated[-1]["updates"] == [16, 24]
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


# Validation.


def test_a_failure_of_validation_ends_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: Path
) -> None:
    """Where validation fails each time, that of the average too, the run says so, logs it, and ends with the same weights."""

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(metrics, "bleu", fail)
    done = train(tmp_path / "model", corpus)
    assert done.exit_code == 0
    assert done.stderr.count("no room") == 4
    logged = [event for event in events(tmp_path / "model") if "validation_error" in event]
    assert [event["step"] for event in logged] == [8, 16, 24, 24]
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


def test_collapse_is_said_once_the_warm_up_is_over(corpus: Path, tmp_path: Path) -> None:
    """Of a model that gives one sentence for most of the validation text, not before, and to the quiet too."""
    data = shutil.copytree(corpus, tmp_path / "corpus")
    same = [("The same.", f"Das {number}.") for number in range(8)] + [("Another one.", "Ein."), ("More.", "Mehr.")]
    write_corpus(data, valid=same)
    done = train(tmp_path / "model", data, "--quiet", steps=4, validate_every=2, warmup=3)
    assert [event["same"] > 0.5 for event in events(tmp_path / "model") if event["event"] == "validation"] == [True] * 2
    [warning] = [line for line in done.stderr.splitlines() if "collapsed" in line]
    assert warning.startswith("warning: ")


def test_a_loss_that_is_no_number_ends_the_run(corpus: Path, tmp_path: Path) -> None:
    """Diverged training is a failure of work: exit 1, with the settings to change, and no weights of NaN to use."""
    done = train(tmp_path / "model", corpus, factor=1e30)
    assert done.exit_code == 1
    assert "warmup" in done.stderr.splitlines()[-1]
    weights = tmp_path / "model" / "model.safetensors"
    assert not weights.exists() or all(tensor.isfinite().all() for tensor in load_file(weights).values())


# What is said.


def test_quiet_says_nothing(corpus: Path, tmp_path: Path) -> None:
    """--quiet leaves stderr and stdout empty where all is well."""
    done = train(tmp_path / "model", corpus, "--quiet", steps=2)
    assert (done.exit_code, done.stdout_bytes, done.stderr) == (0, b"", "")


def test_the_run_says_what_it_does(told: tuple[Path, Result]) -> None:
    """Stderr tells pairs read and kept, preset, vocabulary, parameters, device, seed, disk, end, and what to type next."""
    model, done = told
    counted = sum(tensor.numel() for tensor in load_file(model / "model.safetensors").values())
    for said in (
        "read 120 pairs, kept", "preset tiny", "vocabulary: 450 pieces", f"{counted:,} parameters on CPU", "seed 1", "MiB",
        "to the end", f"nmt score -m {model}", f"nmt translate -m {model}",
    ):  # fmt: skip
        assert said in done.stderr


@pytest.mark.parametrize(("most", "warned"), [(0.0, True), (86_400.0, False)])
def test_a_run_of_days_is_warned_of(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: float, warned: bool
) -> None:
    """After 20 updates a run that will take more than a day is warned of, with the way out, and no other is."""
    monkeypatch.setattr(session, "A_DAY", most)
    done = train(tmp_path / "model", corpus, "--quiet", warmup=1_000)
    assert done.exit_code == 0
    assert ("warning: this is more than a day" in done.stderr) == warned == ("--steps" in done.stderr)


def test_the_progress_bar_is_for_terminals(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal is shown a bar; a file or pipe gets plain lines, even where colour is forced, and no word on stdout."""
    with monkeypatch.context() as forced:
        forced.setenv("FORCE_COLOR", "1")
        piped = train(tmp_path / "piped", corpus, steps=22)
    assert (piped.exit_code, piped.stdout_bytes) == (0, b"")
    assert "\x1b" not in piped.stderr
    assert "\r" not in piped.stderr
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "nmt", *map(str, words(tmp_path / "shown", corpus, steps=22))]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env=environment) as process:
        os.close(terminal)
        shown = shown_on(master)
        assert process.communicate(timeout=60)[0] == b""
        assert process.returncode == 0
    os.close(master)
    assert b"\x1b[" in shown
    assert b"training" in shown


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


def test_no_network_is_needed_or_tried(corpus: Path, overfitted: Path, tmp_path: Path) -> None:
    """Training on a folder, translating and scoring never open a connection or look up a name, nor need a home."""
    commands = (
        words(tmp_path / "model", corpus, steps=2),
        ["translate", "-m", overfitted, overfitted / "heldout" / "test.en.gz"],
        ["score", "-m", overfitted],
    )
    script = OFFLINE.format(tried=str(tmp_path / "tried"), commands=[list(map(str, command)) for command in commands])
    environment = os.environ | {"HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"BLEU" in done.stdout, "it came to the last of them"
    assert not (tmp_path / "tried").exists()
