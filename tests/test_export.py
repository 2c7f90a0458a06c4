"""`nmt export` and `nmt translate --engine ctranslate2`: what is written, when it is refused, and the lines that come out."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt
from nmt import export as exporting
from nmt.data.vocabulary import learn
from nmt.errors import UsageError
from nmt.lines import remove
from nmt.model_directory import ModelDirectory
from nmt.translation.engine import TorchEngine
from tests.conftest import call, refusal

pytest.importorskip("ctranslate2")

FAST = ("--engine", "ctranslate2")


@pytest.fixture(scope="module")
def exported(overfitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained model, with its export beside it."""
    model: Path = shutil.copytree(overfitted, tmp_path_factory.mktemp("exported") / "model")
    done = call("export", "-m", model)
    assert (done.exit_code, done.stdout_bytes) == (0, b"")
    assert "checked: 100 of 100 have" in done.stderr
    return model


@pytest.fixture
def model(exported: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    copied: Path = shutil.copytree(exported, tmp_path / "model")
    return copied


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def later_weights(model: Path) -> None:
    """Give the directory other weights, as training on does."""
    shutil.copy(model / "checkpoints" / "step-000200" / "model.safetensors", model / "model.safetensors")


# What comes out.


def test_torch_is_not_imported(exported: Path) -> None:
    """A process that translates with CTranslate2, by command or from Python, never has torch in it."""
    script = (
        "import sys, nmt\nfrom nmt.__main__ import main\n"
        f"sys.argv = ['nmt', 'translate', '-m', {str(exported)!r}, *{FAST}]\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        f"nmt.load({str(exported)!r}, engine='ctranslate2').translate(['Hello.'])\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], input=b"Hello.\n\n", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 2


def test_an_export_needs_no_weights_beside_it(model: Path, tmp_path: Path) -> None:
    """config.json, tokenizer.model and ctranslate2/ are all that must be shipped to translate with it."""
    shipped = tmp_path / "shipped"
    shutil.copytree(model / "ctranslate2", shipped / "ctranslate2")
    for name in ("config.json", "tokenizer.model"):
        shutil.copy(model / name, shipped / name)
    done = call("translate", "-m", shipped, *FAST, stdin=b"Hello.\n")
    assert done.stdout_bytes == call("translate", "-m", model, *FAST, stdin=b"Hello.\n").stdout_bytes


def test_int8_tells_its_price(model: Path) -> None:
    """With --quantization int8 the weights take about a quarter, and BLEU before and after is printed, each signed."""
    before = (model / "ctranslate2" / "model.bin").stat().st_size
    done = call("export", "-m", model, "--quantization", "int8")
    assert done.exit_code == 0
    scores = re.findall(
        r"^(before|after), .*: BLEU (\d+\.\d\d) \(100 lines\) nrefs:1\|case:mixed", done.stderr, re.MULTILINE
    )
    assert [when for when, _ in scores] == ["before", "after"]
    assert float(scores[0][1]) > 90
    assert abs(float(scores[1][1]) - float(scores[0][1])) < 5
    assert (model / "ctranslate2" / "model.bin").stat().st_size < 0.5 * before
    assert call("translate", "-m", model, *FAST, stdin=b"Hello.\n\n").stdout_bytes.count(b"\n") == 2
    assert "int8" in refusal(call("translate", "-m", model, *FAST, "--precision", "fp32", stdin=b"Hello.\n"))


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_exporting_leaves_the_model_as_it_was(overfitted: Path, tmp_path: Path, quantization: str | None) -> None:
    """CTranslate2 scales what it quantises in place: that must be a copy of the weights."""
    directory = ModelDirectory(overfitted)
    found = directory.read_model(directory.weights_path)
    before = {name: tensor.clone() for name, tensor in found.state_dict().items()}
    exporting.write(tmp_path, found, directory.read_vocabulary(), quantization, {})
    assert all(torch.equal(tensor, before[name]) for name, tensor in found.state_dict().items())


def _without_heldout(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    config["data"]["lines"] = {"train": 200}
    (model / "config.json").write_text(json.dumps(config))


def test_without_held_out_text_random_sentences_are_compared(model: Path) -> None:
    """A model whose corpus was too small to hold text out is checked all the same; BLEU is said not to be known."""
    _without_heldout(model)
    done = call("export", "-m", model, "--quantization", "int8")
    assert done.exit_code == 0
    assert "translating 200 sentences" in done.stderr
    assert done.stderr.count("checked: 200 of 200 ") >= 1
    assert done.stderr.count("checked: ") == 2  # in fp32, then in int8
    assert "no held-out text" in done.stderr
    assert "BLEU " not in done.stderr.replace("in BLEU is", "")


def test_weights_are_hashed_only_where_they_may_be_others(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at every start; where size or time differ, as after a download, the hash tells that they are the same."""
    hashed = []
    sha256 = ModelDirectory.weights_sha256

    def counted(directory: ModelDirectory) -> str | None:
        hashed.append(directory)
        return sha256(directory)

    monkeypatch.setattr(ModelDirectory, "weights_sha256", counted)
    for count in (0, 1):
        assert call("translate", "-m", model, *FAST, stdin=b"Hello.\n").exit_code == 0
        assert len(hashed) == count
        os.utime(model / "model.safetensors", (0, 0))


# What is refused.


def test_an_export_of_other_weights_is_refused(model: Path) -> None:
    """A model that was trained on after its export is not silently translated with the old one; a new export helps."""
    later_weights(model)
    assert "nmt export" in refusal(call("translate", "-m", model, *FAST, stdin=b"Hello.\n"))
    assert call("export", "-m", model).exit_code == 0
    assert call("translate", "-m", model, *FAST, stdin=b"Hello.\n").exit_code == 0


def test_an_export_of_another_vocabulary_is_refused(model: Path, demo_pairs: list[tuple[str, str]]) -> None:
    """Nor is one whose ids now mean other pieces."""
    other = learn(demo_pairs, len(demo_pairs), 500, seed=1)
    other.save(model / "tokenizer.model")
    directory = ModelDirectory(model)
    directory.write_config(directory.read_config() | {"vocabulary": {"size": len(other), "sha256": other.sha256}})
    assert "nmt export" in refusal(call("translate", "-m", model, *FAST, stdin=b"Hello.\n"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--precision", "bf16"), "--precision bf16"),
        (("--device", "tpu"), "--device tpu"),
        pytest.param(
            ("--device", "cuda"),
            "--device cuda",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there"),
        ),
    ],
)
def test_what_the_export_cannot_do_is_refused(arguments: tuple[str, str], named: str, exported: Path) -> None:
    """A precision it is not stored in, or a device that is not there, is refused by name."""
    assert named in refusal(call("translate", "-m", exported, *FAST, *arguments, stdin=b"Hello.\n"))


def test_a_checkpoint_is_refused(exported: Path) -> None:
    """An export is of the weights to use: a checkpoint's folder has none and gets none."""
    checkpoint = exported / "checkpoints" / "step-000400"
    assert "checkpoint" in refusal(call("export", "-m", checkpoint))
    assert "checkpoint" in refusal(call("translate", "-m", checkpoint, *FAST, stdin=b"Hello.\n"))


def test_a_model_that_was_not_exported(overfitted: Path) -> None:
    """The one sentence names the command to run first."""
    assert "nmt export" in refusal(call("translate", "-m", overfitted, *FAST, stdin=b"Hello.\n"))
    with pytest.raises(UsageError, match="nmt export"):
        nmt.load(str(overfitted), engine="ctranslate2")


@pytest.mark.parametrize("name", ["config.json", "model.bin", "shared_vocabulary.json"])
@pytest.mark.parametrize("damage", ["missing", "half", "empty", "garbage"])
def test_a_damaged_export_is_refused(name: str, damage: str, model: Path) -> None:
    """A file of the export that is missing, cut in half, empty or something else ends in one sentence with its folder."""
    file = model / "ctranslate2" / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes({"half": content[: len(content) // 2], "empty": b"", "garbage": b"\x80garbage" * 9}[damage])
    assert "ctranslate2" in refusal(call("translate", "-m", model, *FAST, stdin=b"Hello.\n"))


def test_without_the_extra(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CTranslate2 is not installed, both commands say in one sentence how to get it."""
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert "pip install" in refusal(call("export", "-m", exported))
    assert "pip install" in refusal(call("translate", "-m", exported, *FAST, stdin=b"Hello.\n"))


# What is left when it goes wrong.


def test_an_export_that_says_something_else_is_not_put_in_place(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were embeddings not scaled, the export would load and translate, but otherwise: it is refused, and the old one stays."""
    specification = exporting.specification

    def wrong(*arguments: Any) -> Any:
        spec = specification(*arguments)
        spec.encoder.scale_embeddings = False
        return spec

    before = contents(model)
    monkeypatch.setattr(exporting, "specification", wrong)
    assert "otherwise" in refusal(call("export", "-m", model, "--quiet"), code=1)
    assert contents(model) == before


@pytest.mark.parametrize("has_heldout", [True, False])
def test_an_int8_that_says_something_else_is_not_put_in_place(
    model: Path, monkeypatch: pytest.MonkeyPatch, has_heldout: bool
) -> None:
    """What is put in place is what was checked: here quantization goes wrong. By the first piece it is seen too."""
    if not has_heldout:
        _without_heldout(model)
    write = exporting.write

    def wrong(folder: Path, found: Any, vocabulary: Any, quantization: str | None, made_from: Any) -> None:
        if quantization:
            with torch.no_grad():
                found.embedding.weight.copy_(found.embedding.weight.flip(0))
        write(folder, found, vocabulary, quantization, made_from)

    before = contents(model)
    monkeypatch.setattr(exporting, "write", wrong)
    monkeypatch.setattr(exporting, "TorchEngine", lambda found: TorchEngine(copy.deepcopy(found)))
    assert "int8" in refusal(call("export", "-m", model, "--quantization", "int8", "--quiet"), code=1)
    assert contents(model) == before


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_export_leaves_nothing(
    fault: BaseException, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or Ctrl-C in the middle of it leaves the export that was there, and no half one beside it."""
    before = contents(model)

    def fail(*_: object) -> None:
        assert (model / "ctranslate2.part" / "model.bin").exists()
        raise fault

    monkeypatch.setattr(exporting, "check", fail)
    assert call("export", "-m", model).exit_code in (1, 130)
    assert contents(model) == before
    assert not (model / "ctranslate2.part").exists()


def test_what_a_killed_export_left_is_cleared(model: Path) -> None:
    """A half-written folder of an export that was killed hinders neither the next export nor the next training run."""

    def leave() -> Path:
        part = model / "ctranslate2.part"
        part.mkdir()
        (part / "model.bin").write_bytes(b"half")
        return part

    part = leave()
    assert call("export", "-m", model).exit_code == 0
    assert not part.exists()
    part = leave()
    with ModelDirectory(model).locked():
        assert not part.exists()


def test_a_run_begun_anew_discards_the_export(model: Path) -> None:
    """The export is a file of the run, which --restart deletes with the others."""
    for path in ModelDirectory(model).files():  # as --restart does
        remove(path)
    assert {path.name for path in model.iterdir()} <= {".lock"}


def test_ids_are_the_pieces_in_order(exported: Path) -> None:
    """The export's own vocabulary is SentencePiece's pieces in order, for those who call CTranslate2 themselves."""
    pieces = json.loads((exported / "ctranslate2" / "shared_vocabulary.json").read_text(encoding="utf-8"))
    own = ModelDirectory(exported).read_vocabulary()
    assert pieces == own.pieces(range(len(own)))
