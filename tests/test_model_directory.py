"""The model directory: safe to open, and opened whole or refused with the name of the file at fault; its event log."""

import pickle
import shutil
from pathlib import Path

import pytest

from nmt.data.vocabulary import Vocabulary, learn
from nmt.event_log import EventLog
from nmt.lines import read_lines
from nmt.saved_model import SavedModel
from nmt.weights import load_weights, save_weights
from tests.conftest import call, refusal


@pytest.fixture
def model(overfitted: Path, tmp_path: Path) -> Path:
    """A copy to damage, without checkpoints."""
    return Path(shutil.copytree(overfitted, tmp_path / "model", ignore=shutil.ignore_patterns("checkpoints")))


def run(command: str, model: Path) -> str:
    """The refusal of `translate` or `score` with this model."""
    return refusal(call(command, "-m", model, "--quiet", stdin=b"Hello.\n" if command == "translate" else b""))


@pytest.mark.parametrize("damage", ["missing", "half", "garbage"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.model", "model.safetensors", "heldout/test.en.gz"])
def test_a_missing_or_damaged_file_is_named(name: str, damage: str, model: Path) -> None:
    """A file that is missing, cut in half or something else ends in exit 2 and one sentence with its name."""
    file = model / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[: len(content) // 2] if damage == "half" else b"\x93\x00{" * 99)
    for command in ("translate", "score") if "heldout" not in name else ("score",):
        assert name in run(command, model)


def test_parts_of_two_models_are_refused(model: Path, demo_pairs: list[tuple[str, str]]) -> None:
    """Another vocabulary is refused, and so are weights of another size."""
    learn(demo_pairs, len(demo_pairs), 500, seed=1).save(model / "tokenizer.model")
    assert "tokenizer.model: damaged, or not the vocabulary of this model" in run("translate", model)
    saved = SavedModel.open(model)
    vocabulary = {"size": 500, "sha256": Vocabulary((model / "tokenizer.model").read_bytes()).sha256}
    saved.directory.write_config(saved.config | {"vocabulary": vocabulary})
    save_weights(model / "model.safetensors", load_weights(model / "model.safetensors"))
    assert "model.safetensors: does not fit" in run("translate", model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.model", "model.safetensors"])
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


def test_the_log_survives_torn_lines_and_is_cut_back(tmp_path: Path) -> None:
    """A torn line, or one that is no event, spoils no other; what a resumed run logs again is dropped, the rest kept."""
    log = EventLog(tmp_path / "metrics.jsonl")
    assert log.read() == []
    log.path.write_text('[1]\n{"event": "training", "step": 10, "lo')
    events = [{"event": "training", "step": step, "loss": 1 / 3} for step in (20, 30, 40)]
    events += [{"event": "validation", "step": 20}, {"event": "average", "step": 30}]
    for event in events:
        log.append(event)
    assert log.read() == events
    log.truncate(30, [20], finished=True)
    assert log.read() == [*events[:2], *events[3:]]
    log.truncate(30, [])
    assert log.read() == events[:2]
