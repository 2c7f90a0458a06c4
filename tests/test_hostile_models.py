"""A model directory that is damaged, mixed from two models, or made to do harm: refused in one sentence, never believed.

Each file is changed in a copy of a trained model, and every command that reads it is tried.
"""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt.errors import UsageError
from nmt.lines import read_lines
from nmt.model_directory import ModelDirectory
from nmt.training import checkpoint
from nmt.weights import load_weights
from tests.conftest import call, refusal, run_nmt
from tests.runs import outcome, train, without_digests
from tests.training.test_checkpoint import trained as adam

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def trained(corpus: Path) -> Path:
    """24 updates; checkpoints of the last two validations, and an export."""
    model = corpus.parent / "model"
    assert train(model, corpus).exit_code == 0
    return model


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "model"))


def rewrite(path: Path, change: Change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def refusals(model: Path, corpus: Path, *commands: str) -> list[str]:
    """What each command says that refuses this model."""
    said = []
    for command in commands:
        if command == "resume":
            said.append(refusal(train(model, corpus, "--steps", "26")))
        elif command == "fine-tune":
            tuned = ("-m", model.with_name("tuned"), "--steps", "1", "--quiet")
            said.append(refusal(call("train", "--from", model, "--data", corpus, *tuned)))
        else:
            said.append(refusal(call(*command.split(), "-m", model, stdin=b"Hello there.\n")))
    return said


EVERY = ("translate", "score", "describe", "attention", "export", "resume", "fine-tune")
GARBAGE: list[tuple[str, Change]] = [
    *((f"without {key}", lambda it, key=key: it.pop(key)) for key in ("source", "target", "data", "model", "training")),
    ("data a list", lambda it: it.update(data=[1])),
    ("training a number", lambda it: it.update(training=3)),
    ("an origin without weights", lambda it: it.update({"from": {}})),
    ("versions a number", lambda it: it.update(versions=1)),
    ("preset a list", lambda it: it.update(preset=["tiny"])),
    ("lines as text", lambda it: it["data"]["lines"].update(test="3")),
    ("a count below 0", lambda it: it["data"]["lines"].update(test=-1)),
    ("a digest of another kind", lambda it: it["data"]["sha256"].update(train="../../etc")),
    ("a path as language", lambda it: it.update(source="../../../etc/passwd")),
    ("half a character", lambda it: it.update(source="\ud800")),
    ("a line break in a language", lambda it: it.update(target="de\nnmt: all is well")),
    ("an absurd width", lambda it: it["model"].update(d_model=2**62)),
    ("an absurd number of layers", lambda it: it["model"].update(layers=10**9)),
    ("an absurd number of steps", lambda it: it["training"].update(steps=10**400)),
    ("another vocabulary's digest", lambda it: it["vocabulary"].update(sha256="x" * 64)),
]


@pytest.mark.parametrize(("name", "change"), GARBAGE, ids=[name for name, _ in GARBAGE])
def test_a_config_that_is_none_is_refused(name: str, change: Change, trained: Path, tmp_path: Path) -> None:
    """Whatever is missing or cannot be, in one sentence without a control character."""
    shutil.copy(trained / "config.json", tmp_path)
    rewrite(tmp_path / "config.json", change)
    with pytest.raises(UsageError, match=r"config\.json: damaged, or of another nmt \(") as refused:
        ModelDirectory(tmp_path).read_config()
    assert str(refused.value).isprintable()


def test_no_command_goes_by_a_config_that_is_none(model: Path, corpus: Path) -> None:
    rewrite(model / "config.json", lambda it: it.update(target="de\nnmt: all is well"))
    for said in refusals(model, corpus, *EVERY):
        assert "config.json: damaged, or of another nmt (" in said
        assert said.rstrip("\n").isprintable()


ALMOST = ["[" * 100_000, '{"format": 1e400}', '{"format": true}', '{"format": "\x1b]0;x\x07"}', "9" * 5_000]


@pytest.mark.parametrize("content", ALMOST)
def test_a_config_that_is_no_json_of_ours_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    [said] = refusals(tmp_path, tmp_path, "translate")
    assert "config.json: " in said
    assert said.rstrip("\n").isprintable()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.model", "model.safetensors", "heldout/test.en.gz"])
@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "folder"])
def test_what_is_no_file_is_not_waited_for(name: str, kind: str, model: Path) -> None:
    """Nor is a device read that never ends."""
    file = model / name
    file.unlink()
    make: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(file),
        "device": lambda: file.symlink_to("/dev/zero"),
        "loop": lambda: file.symlink_to(file),
        "folder": file.mkdir,
    }
    make[kind]()
    assert file.name in refusal(call("score", "-m", model))


def test_weights_are_those_that_were_written(model: Path, corpus: Path) -> None:
    """One bit that turned over, a number that is none or of another type, an absurd header: told, and nothing translated."""
    file = model / "model.safetensors"
    sound, weights = file.read_bytes(), load_file(file)

    def saved(name: str = "", tensor: torch.Tensor | None = None, told: str = "") -> bytes:
        changed = weights if tensor is None else weights | {name: tensor}
        save_file(changed, file, {"nmt": told} if told else None)  # as another program does, without a digest
        return file.read_bytes()

    name, tensor = next(iter(weights.items()))
    nan = tensor.clone()
    nan.view(-1)[0] = float("nan")
    flipped = bytearray(sound)
    flipped[-1] ^= 0x40
    for content, reason in (
        (bytes(flipped), "it is not what was written"),
        (saved(name, nan), "no fp32 number"),
        (saved(name, tensor.int()), "no fp32 number"),
        (saved(name, tensor[:-1].clone()), "does not fit"),
        (saved(told="[]"), "not a weights file"),
        ((10 * 2**30).to_bytes(8, "little") + sound[8:], "not a weights file"),
        ((2**64 - 1).to_bytes(8, "little") + sound[8:], "not a weights file"),
    ):
        file.write_bytes(content)
        assert all(f"{file}: " in said and reason in said for said in refusals(model, corpus, "translate", "export"))
    file.write_bytes(saved())  # nothing but the digest is missing
    assert call("translate", "-m", model, stdin=b"Hello.\n").exit_code == 0


def test_weights_of_another_run_are_refused(model: Path, trained: Path, corpus: Path) -> None:
    """Those of the other direction have the same sizes and the same vocabulary, and would translate fluently into English."""
    other = model.with_name("other")
    config = json.loads((trained / "config.json").read_text())
    assert train(other, corpus, "--source", "de", "--target", "en", "--steps", "1").exit_code == 0
    assert json.loads((other / "config.json").read_text())["model"] == config["model"]
    assert (other / "tokenizer.model").read_bytes() == (trained / "tokenizer.model").read_bytes()
    shutil.copy(other / "model.safetensors", model)
    for said in refusals(model, corpus, "translate", "score", "fine-tune"):
        assert "made for a model of other languages" in said


def test_held_out_text_is_the_text_that_was_held_out(model: Path, corpus: Path) -> None:
    """Sides that changed places, or other lines, have no score; nor is a file without end unpacked to its end."""
    left, right = (model / "heldout" / f"test.{language}.gz" for language in ("en", "de"))
    source, target = left.read_bytes(), right.read_bytes()
    left.write_bytes(target), right.write_bytes(source)
    assert "not the text" in refusals(model, corpus, "score")[0]
    left.write_bytes(gzip.compress(b"\n" * 1_000_000, 1)), right.write_bytes(target)
    assert "holds more lines instead of 3" in refusals(model, corpus, "score")[0]
    left.write_bytes(source)
    assert call("score", "-m", model).exit_code == 0


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint in which a change is no damage by itself."""
    path = checkpoint.save(tmp_path, *adam(), checkpoint.Progress(24))
    without_digests(path)
    return path


@pytest.mark.parametrize("state", ["shape", "type", "names", "missing", "infinite"])
def test_moments_of_another_shape_never_reach_the_optimiser(state: str, saved: Path) -> None:
    """PyTorch would write beyond their end; infinite ones would never change their weights again."""
    content = torch.load(saved / checkpoint.OPTIMIZER, weights_only=True)
    moments = content["state"][0]
    if state == "shape":
        moments["exp_avg"] = torch.zeros(3)
    elif state == "type":
        moments["exp_avg_sq"] = moments["exp_avg_sq"].double()
    elif state == "names":
        moments["max_exp_avg_sq"] = moments["exp_avg"]
    elif state == "infinite":
        moments["exp_avg_sq"][0, 0] = torch.inf
    else:
        del content["state"][0]
    torch.save(content, saved / checkpoint.OPTIMIZER)
    with pytest.raises(UsageError, match=r"step-000024: .*the moments are "):
        checkpoint.restore(saved, *adam())


def test_settings_beside_the_moments_change_nothing(saved: Path) -> None:
    content = torch.load(saved / checkpoint.OPTIMIZER, weights_only=True)
    content["param_groups"][0] |= {"betas": (0.5, 0.5), "maximize": True}
    torch.save(content, saved / checkpoint.OPTIMIZER)
    model, optimizer = adam()
    before = optimizer.state_dict()["param_groups"]
    checkpoint.restore(saved, model, optimizer)
    assert optimizer.state_dict()["param_groups"] == before


ODD: list[dict[str, Any]] = [
    {"update": -3}, {"update": 5_000}, {"epoch": "x"}, {"position": -5}, {"minutes": "x"}, {"updates": None},
    {"validations": [["../x", 50]]},
]  # fmt: skip


@pytest.mark.parametrize("progress", ODD, ids=str)
def test_odd_progress_is_a_damaged_checkpoint(progress: dict[str, Any], saved: Path) -> None:
    rewrite(saved / "progress.json", lambda it: it.update(progress))
    with pytest.raises(UsageError, match="step-000024: not a training state of this version, or damaged"):
        checkpoint.restore(saved, *adam())


def test_odd_names_beside_checkpoints_are_passed_over(model: Path, corpus: Path) -> None:
    """Also those of which Python makes a number."""
    for name in ("step-²", "step-１２", "step-1001", "step--5", "step-abc", "step-000099.tmp", "step-" + "9" * 21):
        (model / "checkpoints" / name).mkdir()
    done = train(model, corpus, "--steps", "26")
    assert done.exit_code == 0, done.stderr
    assert "going on after update 24" in done.stderr
    assert "26" in call("describe", "-m", model).stdout


LINES = ['{"event": "training"}', '{"step": 5}', '{"event": "training", "step": "5"}', '{"event": [], "step": 1}']


@pytest.mark.parametrize("line", [*LINES, "[" * 100_000])
def test_odd_lines_of_the_log_end_no_run(line: str, model: Path, corpus: Path, trained: Path) -> None:
    with (model / "metrics.jsonl").open("a") as log:
        log.write(line + "\n")
    for command in (("describe", "-m", model), ("train",)):
        done = train(model, corpus) if command == ("train",) else call(*command)
        assert done.exit_code == 0, done.stderr
    assert outcome(model) == outcome(trained)


def test_a_run_that_lost_its_config_is_not_begun_anew(model: Path, corpus: Path) -> None:
    """Its checkpoints are all that is left of days of work: they stay until they are discarded in so many words."""
    config = model / "config.json"
    rewrite(config, lambda it: it.update(data=3))
    for damage in (lambda: None, config.unlink):
        damage()
        before = sorted(model.rglob("*"))
        assert "--restart" in refusals(model, corpus, "resume")[0]
        assert sorted(model.rglob("*")) == before
    assert train(model, corpus, "--restart").exit_code == 0


def test_a_checkpoint_that_rots_ends_no_run(model: Path, corpus: Path) -> None:
    """One of those that are averaged: the weights to use are then the mean of fewer, and training goes on."""
    file = model / "checkpoints" / "step-000016" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    done = train(model, corpus, "--steps", "26", "--average", "3")
    assert done.exit_code == 0, done.stderr
    newest = [model / "checkpoints" / f"step-0000{update}" for update in (26, 24)]
    expected, count = checkpoint.average(newest)
    assert count == 2
    found = load_weights(model / "model.safetensors")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_nothing_outside_is_written(model: Path, corpus: Path, tmp_path: Path) -> None:
    """A link in the place of the lock leads nowhere, nor does one in the place of the log."""
    outside = tmp_path / "outside"
    outside.write_text("mine\n")
    for name, code in ((".lock", 2), ("metrics.jsonl", 0)):
        (model / name).unlink(missing_ok=True)
        (model / name).symlink_to(outside)
        assert train(model, corpus, "--steps", "26").exit_code == code
        assert outside.read_text() == "mine\n"
        (model / name).unlink()


def test_an_export_is_what_was_exported(model: Path, corpus: Path) -> None:
    """A bit that turned over, or a vocabulary in another order, would translate into blanks or into other words."""
    pytest.importorskip("ctranslate2")
    assert call("export", "-m", model).exit_code == 0
    fast = "translate --engine ctranslate2"
    folder = model / "ctranslate2"
    pieces = json.loads((folder / "shared_vocabulary.json").read_text())
    other = json.loads((folder / "config.json").read_text()) | {"add_source_eos": False}
    flipped = bytearray((folder / "model.bin").read_bytes())
    flipped[len(flipped) // 2] ^= 1
    for name, content in (
        ("model.bin", bytes(flipped)),
        ("shared_vocabulary.json", json.dumps([*pieces[:9], *reversed(pieces[9:])]).encode()),
        ("config.json", json.dumps(other).encode()),
        ("config.json", b"[" * 100_000),
    ):
        sound = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        assert "run `nmt export" in refusals(model, corpus, fast)[0]
        (folder / name).write_bytes(sound)
    assert call(*fast.split(), "-m", model, stdin=b"Hello.\n").exit_code == 0


def test_as_a_process_too(model: Path) -> None:
    """What a stranger's directory is called reaches no terminal raw, and ends no process otherwise than with 2."""
    model = model.rename(model.with_name("\x1b]0;mine\x07"))
    (model / "config.json").write_text("[]")
    done = run_nmt("translate", "-m", model, stdin=b"Hello.\n")
    assert (done.returncode, done.stdout, b"\x1b" in done.stderr, b"Traceback" in done.stderr) == (2, b"", False, False)


def test_held_out_lines_come_back_as_they_were(tmp_path: Path) -> None:
    """Also where a line ends in what reading strips, twice: else the digest of sound text would not be its own."""
    directory = ModelDirectory(tmp_path)
    pairs = [("\ufeff\ufeffa\r", "b\r\r"), ("\r", ""), ("\ufeff", "c")]
    directory.write_heldout("test", ("en", "de"), pairs)
    read = [list(read_lines(tmp_path / "heldout" / f"test.{language}.gz")) for language in ("en", "de")]
    assert list(zip(*read, strict=True)) == pairs


def test_a_checkpoint_is_bound_to_its_model(trained: Path) -> None:
    """All weights that a run writes carry the model's kind."""
    kind = ModelDirectory(trained).describe().kind
    for file in trained.rglob("*.safetensors"):
        assert load_weights(file, kind)
        with pytest.raises(Exception, match="made for a model of other languages"):
            load_weights(file, "0" * 64)
