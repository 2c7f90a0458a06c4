"""The model directory: opened whole or refused with the name of the file at fault, and safe to open."""

import json
import pickle
import shutil
from pathlib import Path

import pytest

import nmt
from nmt.data.vocabulary import Vocabulary, learn
from nmt.errors import UsageError
from nmt.lines import read_lines
from nmt.model_directory import ModelDirectory
from nmt.weights import load_weights, save_weights
from tests.conftest import call, refusal

NEEDED = ["config.json", "tokenizer.model", "model.safetensors"]
HELD_OUT = ["heldout/test.en.gz", "heldout/test.de.gz"]


@pytest.fixture
def model(overfitted: Path, tmp_path: Path) -> Path:
    """A copy to damage, without checkpoints."""
    copied: Path = shutil.copytree(overfitted, tmp_path / "model", ignore=shutil.ignore_patterns("checkpoints"))
    return copied


def run(command: str, model: Path) -> str:
    """The refusal of `translate` or `score` with this model."""
    return refusal(call(command, "-m", model, "--quiet", stdin=b"Hello.\n" if command == "translate" else b""))


@pytest.mark.parametrize("damage", ["missing", "half", "empty", "garbage"])
@pytest.mark.parametrize(
    ("command", "name"),
    [*(("translate", name) for name in NEEDED), *(("score", name) for name in [*NEEDED, *HELD_OUT])],
)
def test_a_missing_or_damaged_file_is_named(command: str, name: str, damage: str, model: Path) -> None:
    """Each file that is missing, cut in half, empty or something else ends in exit 2 and one sentence with its name."""
    file = model / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes({"half": content[: len(content) // 2], "empty": b"", "garbage": b"\x93\x00{" * 99}[damage])
    assert name in run(command, model)


@pytest.mark.parametrize("number", [0, 2, "1", None])
def test_another_format_is_named(number: object, model: Path) -> None:
    """A directory of another format number is not guessed at: the sentence names config.json and both numbers."""
    config = json.loads((model / "config.json").read_text()) | {"format": number}
    (model / "config.json").write_text(json.dumps(config))
    message = run("translate", model)
    assert "config.json" in message
    assert f"format {number!r}," in message
    assert "format 1" in message


def test_parts_of_two_models_are_refused(model: Path, demo_pairs: list[tuple[str, str]]) -> None:
    """Another vocabulary is refused, of whatever size; so are weights that do not fit, which are not sliced or padded."""
    learn(demo_pairs, len(demo_pairs), 500, seed=1).save(model / "tokenizer.model")
    assert "tokenizer.model: damaged, or not the vocabulary of this model" in run("translate", model)
    directory = ModelDirectory(model)
    vocabulary = {"size": 500, "sha256": Vocabulary((model / "tokenizer.model").read_bytes()).sha256}
    directory.write_config(directory.read_config() | {"vocabulary": vocabulary})
    save_weights(model / "model.safetensors", load_weights(model / "model.safetensors"))
    assert "model.safetensors: does not fit" in run("translate", model)


@pytest.mark.parametrize("name", NEEDED)
def test_opening_never_runs_code(name: str, model: Path, tmp_path: Path) -> None:
    """A pickle under any file's name is refused, and what it would have run is not run."""

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    (model / name).write_bytes(pickle.dumps(Trap()))
    assert name in run("translate", model)
    assert not (tmp_path / "sprung").exists()


def test_moves_as_a_whole(model: Path, overfitted: Path) -> None:
    """Moved to another place, the directory translates as it did, and scores its own test set."""
    text = "".join(line + "\n" for line in read_lines(overfitted / "heldout" / "test.en.gz")).encode()
    moved = model.rename(model.with_name("elsewhere"))
    there = call("translate", "-m", moved, stdin=text)
    assert there.exit_code == 0
    assert there.stdout_bytes == call("translate", "-m", overfitted, stdin=text).stdout_bytes
    assert call("score", "-m", moved).stdout == call("score", "-m", overfitted).stdout


def test_python_is_told_the_same(model: Path) -> None:
    """`nmt.load` of what is no whole model raises the error that the command line prints."""
    (model / "tokenizer.model").unlink()
    with pytest.raises(UsageError, match=r"tokenizer\.model"):
        nmt.load(str(model))


def test_can_be_read_by_others(overfitted: Path) -> None:
    """No file of a model is for its owner's eyes alone where the umask does not say so."""
    modes = {path.relative_to(overfitted): path.stat().st_mode & 0o777 for path in overfitted.rglob("*")}
    usual = modes[Path("config.json")]
    assert {path: oct(mode) for path, mode in modes.items() if mode != usual and mode != usual | 0o111} == {}


def test_the_log_is_cut_back(tmp_path: Path) -> None:
    """Events after the update, a line torn by a sudden end, and how the run had ended go; all before stays as written."""
    directory = ModelDirectory(tmp_path)
    for step in (20, 30, 30, 40):
        directory.log({"event": "training", "step": step, "loss": 1 / 3})
    written = directory.metrics_path.read_text()
    directory.metrics_path.write_text(written + '{"event": "average", "step": 30}\n{"step": 60, "lo')
    directory.cut_log(30, [], over=True)
    assert directory.events()[-1] == {"event": "average", "step": 30}
    directory.cut_log(30, [])
    assert directory.metrics_path.read_text() == "".join(line + "\n" for line in written.splitlines()[:3])


def test_only_one_run_at_a_time(tmp_path: Path) -> None:
    """A directory that one run holds is refused to the next, and free again afterwards."""
    first, second = ModelDirectory(tmp_path / "model"), ModelDirectory(tmp_path / "model")
    with first.locked(), pytest.raises(UsageError, match="another run"), second.locked():
        pass
    with second.locked():
        pass


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """A place below a file is refused by its name."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/model"), ModelDirectory(tmp_path / "file" / "model").locked():
        pass
