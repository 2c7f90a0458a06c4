"""`nmt export` and `nmt translate --engine ctranslate2`: what is written, what is refused, and what a failure leaves behind."""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt import export as exporting
from nmt.data.vocabulary import learn
from nmt.lock import locked
from nmt.model_directory import ModelDirectory
from nmt.saved_model import SavedModel
from nmt.storage import remove
from nmt.translation.engine import TorchEngine
from tests.conftest import call, refusal

pytest.importorskip("ctranslate2")

FAST = ("--engine", "ctranslate2")
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there")


@pytest.fixture(scope="module")
def exported(overfitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained model with its export."""
    model: Path = shutil.copytree(overfitted, tmp_path_factory.mktemp("exported") / "model")
    done = call("export", "-m", model)
    assert (done.exit_code, done.stdout_bytes) == (0, b"")
    assert " 100 of 100 sentences in fp32" in done.stderr
    return model


@pytest.fixture
def model(exported: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    copied: Path = shutil.copytree(exported, tmp_path / "model")
    return copied


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rewrite_config(model: Path, **changes: Any) -> None:
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def remove_heldout(model: Path) -> None:
    data = json.loads((model / "config.json").read_text())["data"]
    rewrite_config(model, data=data | {"lines": {"train": 200}})


def translate(model: Path, *options: str) -> Any:
    return call("translate", "-m", model, *FAST, *options, stdin=b"Hello.\n\n")


def test_torch_is_not_imported(exported: Path) -> None:
    """Neither the command nor Python's `nmt.load` imports torch to translate with CTranslate2."""
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


def test_an_export_needs_no_weights_beside_it(model: Path) -> None:
    """config.json, tokenizer.model and ctranslate2/ suffice to translate; the vocabulary is SentencePiece's, in order."""
    before = translate(model).stdout_bytes
    for path in model.iterdir():
        if path.name not in ("config.json", "tokenizer.model", "ctranslate2"):
            remove(path)
    assert translate(model).stdout_bytes == before
    pieces = json.loads((model / "ctranslate2" / "shared_vocabulary.json").read_text(encoding="utf-8"))
    own = SavedModel.open(model).vocabulary
    assert pieces == own.pieces(range(len(own)))


def test_int8_reports_its_cost(model: Path) -> None:
    """With --quantization int8 the weights take about a quarter, and BLEU is printed before and after, with signatures."""
    before = (model / "ctranslate2" / "model.bin").stat().st_size
    done = call("export", "-m", model, "--quantization", "int8")
    assert done.exit_code == 0
    pattern = r"^(before|after), .*: BLEU (\d+\.\d\d) \(100 lines\) nrefs:1\|case:mixed"
    [(first, ours), (second, theirs)] = re.findall(pattern, done.stderr, re.MULTILINE)
    assert (first, second) == ("before", "after")
    assert float(ours) > 90
    assert abs(float(theirs) - float(ours)) < 5
    assert (model / "ctranslate2" / "model.bin").stat().st_size < 0.5 * before
    assert translate(model).stdout_bytes.count(b"\n") == 2
    assert "int8" in refusal(translate(model, "--precision", "fp32"))


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_exporting_leaves_the_model_as_it_was(overfitted: Path, tmp_path: Path, quantization: str | None) -> None:
    """CTranslate2 scales the weights that it quantizes in place, so they must be copies."""
    saved = SavedModel.open(overfitted)
    network = saved.network()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    exporting.write(tmp_path, network, saved.vocabulary, quantization, {})
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_without_held_out_text_random_sentences_are_compared(model: Path) -> None:
    remove_heldout(model)
    done = call("export", "-m", model, "--quantization", "int8")
    assert done.exit_code == 0
    assert " 200 of 200 sentences in fp32" in done.stderr
    assert done.stderr.count("checked: ") == 2  # in fp32, then in int8


def test_an_export_of_other_weights_or_another_vocabulary_is_refused(model: Path, demo_pairs: list[tuple[str, str]]) -> None:
    """After more training the old export is refused until the next one; so it is if ids mean other pieces."""
    shutil.copy(model / "checkpoints" / "step-000200" / "model.safetensors", model / "model.safetensors")
    assert "nmt export" in refusal(translate(model))
    assert call("export", "-m", model).exit_code == 0
    assert translate(model).exit_code == 0
    other = learn(demo_pairs, len(demo_pairs), 500, seed=1)
    other.save(model / "tokenizer.model")
    rewrite_config(model, vocabulary={"size": len(other), "sha256": other.sha256})
    assert "nmt export" in refusal(translate(model))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--precision", "bf16"), "--precision bf16"),
        (("--device", "tpu"), "--device tpu"),
        pytest.param(("--device", "cuda"), "--device cuda", marks=NO_GPU),
    ],
)
def test_unavailable_precisions_and_devices_are_refused(arguments: tuple[str, str], named: str, exported: Path) -> None:
    assert named in refusal(translate(exported, *arguments))


def test_a_checkpoint_is_refused(exported: Path) -> None:
    """A checkpoint's folder has no export and gets none: only the weights to use are exported."""
    checkpoint = exported / "checkpoints" / "step-000400"
    assert "checkpoint" in refusal(call("export", "-m", checkpoint))
    assert "checkpoint" in refusal(translate(checkpoint))


def test_a_model_that_was_not_exported(overfitted: Path) -> None:
    assert "nmt export" in refusal(translate(overfitted))


@pytest.mark.parametrize("name", ["config.json", "model.bin", "shared_vocabulary.json"])
@pytest.mark.parametrize("damage", ["missing", "half", "empty", "garbage"])
def test_a_damaged_export_is_refused(name: str, damage: str, model: Path) -> None:
    file = model / "ctranslate2" / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes({"half": content[: len(content) // 2], "empty": b"", "garbage": b"\x80garbage" * 9}[damage])
    assert "ctranslate2" in refusal(translate(model))


def test_without_the_extra(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CTranslate2 is not installed, both commands say how to install it."""
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert "pip install" in refusal(call("export", "-m", exported))
    assert "pip install" in refusal(translate(exported))


def test_an_export_that_translates_differently_is_not_put_in_place(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X1: without scaled embeddings the export would load and translate, but differently. The old export stays."""
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
def test_an_int8_export_that_translates_differently_is_not_put_in_place(
    model: Path, monkeypatch: pytest.MonkeyPatch, has_heldout: bool
) -> None:
    """What is put in place is what was compared, here when only quantization goes wrong."""
    if not has_heldout:
        remove_heldout(model)
    write = exporting.write

    def wrong(folder: Path, network: Any, vocabulary: Any, quantization: str | None, record: Any) -> None:
        if quantization:
            with torch.no_grad():
                network.embedding.weight.copy_(network.embedding.weight.flip(0))
        write(folder, network, vocabulary, quantization, record)

    before = contents(model)
    monkeypatch.setattr(exporting, "write", wrong)
    monkeypatch.setattr(exporting, "TorchEngine", lambda network: TorchEngine(copy.deepcopy(network)))
    assert "int8" in refusal(call("export", "-m", model, "--quantization", "int8", "--quiet"), code=1)
    assert contents(model) == before


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_export_leaves_the_old_one(fault: BaseException, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        assert (model / "ctranslate2.part" / "model.bin").exists()
        raise fault

    before = contents(model)
    monkeypatch.setattr(exporting, "compare", fail)
    assert call("export", "-m", model).exit_code in (1, 130)
    assert contents(model) == before
    assert not (model / "ctranslate2.part").exists()


def test_leftovers_of_a_killed_export_are_removed(model: Path) -> None:
    """By the next export and by the next training run."""
    part = model / "ctranslate2.part"
    part.mkdir()
    (part / "model.bin").write_bytes(b"half")
    assert call("export", "-m", model).exit_code == 0
    assert not part.exists()
    part.mkdir()
    with locked(ModelDirectory(model)):
        assert not part.exists()
    assert model / "ctranslate2" in ModelDirectory(model).files()  # which --restart removes
