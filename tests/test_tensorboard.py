"""TensorBoard's files: what is in them, what a resumed run hides, and silence without the package."""

import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.tensorboard import TensorBoard

NAN = float("nan")


def training(step: int, loss: float | None) -> dict[str, Any]:
    return {"event": "training", "step": step, "epoch": 2, "loss": loss, "lr": 0.25, "padding": 0.125}


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """(update, value) by name, as TensorBoard itself reads the folder."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return {name: [(each.step, each.value) for each in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_events_become_scalars(tmp_path: Path) -> None:
    """Each finite number of an event is there under its name at its update; what is no number, or missing, is not."""
    board = TensorBoard(tmp_path, update=0)
    board.add(training(20, 4.0))
    board.add(training(40, NAN))
    board.add(training(60, None))
    board.add({"event": "validation", "step": 60, "bleu": 12.5, "before": {"name": "news", "bleu": 20.5}})
    board.add({"event": "validation", "step": 80, "validation_error": "MemoryError: "})
    found = scalars(tmp_path)
    assert board.active
    assert found["loss/training"] == [(20, 4.0)]
    assert found["training/learning_rate"] == [(20, 0.25), (40, 0.25), (60, 0.25)]
    assert found["training/padding"] == [(20, 0.125), (40, 0.125), (60, 0.125)]
    assert found["validation/bleu"] == [(60, 12.5)]
    assert found["before/bleu"] == [(60, 20.5)]
    assert "validation/perplexity" not in found


def test_a_resumed_run_hides_what_it_does_again(tmp_path: Path) -> None:
    """Updates after the checkpoint that a run goes on from count once, as they were the second time."""
    first = TensorBoard(tmp_path, update=0)
    for step in (20, 40, 60):
        first.add(training(step, 1.0))
    second = TensorBoard(tmp_path, update=40)
    second.add(training(60, 2.0))
    assert scalars(tmp_path)["loss/training"] == [(20, 1.0), (40, 1.0), (60, 2.0)]


def test_silent_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the extra nothing is written, said or raised."""
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    board = TensorBoard(tmp_path / "tensorboard", update=0)
    board.add(training(20, 4.0))
    assert not board.active
    assert not (tmp_path / "tensorboard").exists()
    assert capfd.readouterr() == ("", "")


def test_a_full_disk_is_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event that cannot be written raises OSError; those after it are dropped in silence."""
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    board = TensorBoard(tmp_path, update=0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "add_scalar", full)
    with pytest.raises(OSError, match="No space"):
        board.add(training(20, 4.0))
    board.add(training(40, 4.0))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Where a file stands in the way of the folder, the error is one that a caller can tell of."""
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("")
    with pytest.raises(OSError, match="tensorboard"):
        TensorBoard(tmp_path / "tensorboard", update=0)
