"""TensorBoard's files: what is in them, what a resumed run hides, and silence without the package."""

import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.tensorboard import TensorBoard


def training(step: int, loss: float) -> dict[str, Any]:
    return {"event": "training", "step": step, "epoch": 2, "loss": loss, "lr": 0.25}


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """(update, value) by name, as TensorBoard itself reads the folder."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return {name: [(each.step, each.value) for each in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_events_become_scalars(tmp_path: Path) -> None:
    """Each number of an event is there under its name at its update, and nothing else."""
    board = TensorBoard(tmp_path, update=0)
    board.add(training(20, 4.0))
    board.add({"event": "validation", "step": 60, "bleu": 12.5, "before": {"name": "news", "bleu": 20.5}})
    board.add({"event": "validation", "step": 80, "validation_error": "MemoryError: "})
    assert scalars(tmp_path) == {
        "training/epoch": [(20, 2.0)],
        "training/loss": [(20, 4.0)],
        "training/lr": [(20, 0.25)],
        "validation/bleu": [(60, 12.5)],
        "validation/before_bleu": [(60, 20.5)],
    }


def test_a_resumed_run_hides_what_it_does_again(tmp_path: Path) -> None:
    """Updates after the checkpoint count once, as they were the second time."""
    first = TensorBoard(tmp_path, update=0)
    for step in (20, 40, 60):
        first.add(training(step, 1.0))
    TensorBoard(tmp_path, update=40).add(training(60, 2.0))
    assert scalars(tmp_path)["training/loss"] == [(20, 1.0), (40, 1.0), (60, 2.0)]


def test_silent_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra nothing is written or raised."""
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    board = TensorBoard(tmp_path / "tensorboard", update=0)
    board.add(training(20, 4.0))
    assert list(tmp_path.iterdir()) == []
