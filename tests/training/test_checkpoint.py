"""Checkpoints: averages, what is kept, and files that are whole or refused."""

from pathlib import Path

import pytest
import torch

from nmt.config import ModelConfig
from nmt.errors import UsageError
from nmt.model.transformer import Transformer
from nmt.model_directory import PROGRESS, WEIGHTS, path_of, saved
from nmt.training import checkpoint
from nmt.training.checkpoint import OPTIMIZER, Progress
from nmt.weights import load_weights, save_weights
from tests.runs import without_digests

SMALL = ModelConfig(layers=1, d_model=16, heads=2, d_ff=16)


def trained(seed: int = 0) -> tuple[Transformer, torch.optim.Adam]:
    torch.manual_seed(seed)
    model = Transformer(SMALL, 30)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return model, optimizer


def test_saved_and_restored_is_the_same(tmp_path: Path) -> None:
    model, optimizer = trained()
    progress = Progress(7, 1, 3, [(5, 12.5), (6, None)], 3.5, 640, "CPU", 1.25, 4, 100, 250, 260)
    path = checkpoint.save(tmp_path, model, optimizer, progress)
    other, other_optimizer = trained(seed=1)
    assert checkpoint.restore(path, other, other_optimizer) == progress
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(optimizer.state[ours]["exp_avg_sq"], other_optimizer.state[theirs]["exp_avg_sq"])
    assert sorted(file.name for file in path.iterdir()) == sorted([WEIGHTS, OPTIMIZER, PROGRESS])


def test_shared_matrix_is_stored_once_and_shared_after_loading(tmp_path: Path) -> None:
    model, optimizer = trained()
    weights = load_weights(checkpoint.save(tmp_path, model, optimizer, Progress(1)) / WEIGHTS)
    assert sum(tensor.numel() for tensor in weights.values()) == model.count_parameters()
    model.load_state_dict(weights)
    assert len({id(parameter) for parameter in model.parameters() if 30 in parameter.shape}) == 1


def test_average_of_equal_checkpoints_is_that_checkpoint(tmp_path: Path) -> None:
    """To the last bit, which a sum in fp32 would miss."""
    model, optimizer = trained()
    paths = [checkpoint.save(tmp_path, model, optimizer, Progress(update)) for update in range(7)]
    for name, tensor in checkpoint.average(paths)[0].items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_average_is_the_mean(tmp_path: Path) -> None:
    paths = []
    for number, value in enumerate((1.0, 2.0, 6.0)):
        path = tmp_path / str(number)
        path.mkdir()
        save_weights(path / WEIGHTS, {"w": torch.full((3,), value)})
        paths.append(path)
    mean, count = checkpoint.average(paths)
    assert (mean["w"].tolist(), count) == ([3.0, 3.0, 3.0], 3)
    content = bytearray((paths[2] / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (paths[2] / WEIGHTS).write_bytes(content)
    assert checkpoint.average(paths)[1] == 2
    assert checkpoint.average(paths[::-1]) == ({}, 0)


def test_newest_two_and_best_keep_their_state_and_averaged_ones_their_weights(tmp_path: Path) -> None:
    model, optimizer = trained()
    progress = Progress()
    for update, bleu in ((10, 1.0), (20, 2.0), (30, 9.0), (40, 3.0), (50, 4.0), (60, 5.0), (70, 6.0)):
        progress.update = update
        progress.validations.append((update, bleu))
        checkpoint.save(tmp_path, model, optimizer, progress)
        checkpoint.tidy(tmp_path, progress, 2)
    states = {update for update in saved(tmp_path) if (path_of(tmp_path, update) / OPTIMIZER).exists()}
    assert saved(tmp_path) == [20, 30, 60, 70]
    assert states == {30, 60, 70}
    assert checkpoint.averaged(progress, 2) == [60, 70]
    assert checkpoint.averaged(progress, 9) == [40, 50, 60, 70], "of the later half alone"
    assert checkpoint.averaged(progress, 9, ending=20) == [20]
    assert checkpoint.averaged(Progress(), 9) == []
    assert checkpoint.averaged(progress, 2, progress.best) == [20, 30]


@pytest.mark.parametrize("file", [WEIGHTS, OPTIMIZER, PROGRESS])
@pytest.mark.parametrize("left", [0, 10, -10])
def test_torn_file_is_refused_in_one_sentence(tmp_path: Path, file: str, left: int) -> None:
    model, optimizer = trained()
    path = checkpoint.save(tmp_path, model, optimizer, Progress(1))
    content = (path / file).read_bytes()
    (path / file).write_bytes(content[:left])
    with pytest.raises(UsageError, match="damaged"):
        checkpoint.restore(path, model, optimizer)


def test_pickled_code_is_refused(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = checkpoint.save(tmp_path, model, optimizer, Progress(1))
    torch.save({"path": Path("/")}, path / OPTIMIZER)
    without_digests(path)
    with pytest.raises(UsageError, match=r"damaged \(Weights only load failed"):
        checkpoint.restore(path, model, optimizer)


def test_failed_save_leaves_the_checkpoint_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = trained()
    checkpoint.save(tmp_path, model, optimizer, Progress(1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path, model, optimizer, Progress(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"], "what was half written needs no room"
    assert checkpoint.resume(tmp_path, model, optimizer) == (Progress(1), [])


@pytest.mark.parametrize("file", [WEIGHTS, OPTIMIZER, PROGRESS])
def test_torn_newest_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path: Path, file: str) -> None:
    model, optimizer = trained()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    checkpoint.save(tmp_path, model, optimizer, Progress(1))
    with torch.no_grad():
        next(model.parameters()).add_(1)
    torn = checkpoint.save(tmp_path, model, optimizer, Progress(2))
    (torn / file).write_bytes((torn / file).read_bytes()[:-10])
    progress, faults = checkpoint.resume(tmp_path, model, optimizer)
    assert progress == Progress(1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert len(faults) == 1
    assert str(torn) in faults[0]
    assert saved(tmp_path) == [1], "the damaged one is out of the way"
    checkpoint.tidy(tmp_path, Progress(2, validations=[(1, None)]), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_checkpoints_that_are_all_torn_are_told_of_and_kept(tmp_path: Path) -> None:
    model, optimizer = trained()
    for update in (1, 2):
        (checkpoint.save(tmp_path, model, optimizer, Progress(update)) / OPTIMIZER).write_bytes(b"")
    with pytest.raises(UsageError, match=r"step-000002.*step-000001.*--restart"):
        checkpoint.resume(tmp_path, model, optimizer)
    assert saved(tmp_path) == [1, 2]


def test_patience_counts_the_validations_since_the_best() -> None:
    def stale(*scores: float | None, patience: int | None = 2) -> bool:
        return Progress(validations=list(enumerate(scores))).stale(patience)

    assert not stale()
    assert not stale(1.0, 2.0, 1.5)
    assert stale(1.0, 2.0, 1.5, 1.9)
    assert stale(2.0, 2.0, 2.0), "no better is not better"
    assert not stale(1.0, 2.0, 1.5, 2.1)
    assert not stale(2.0, None, 1.0, None), "a validation that failed says nothing"
    assert not stale(None, None, None)
    assert not stale(9.0, *[1.0] * 100, patience=None)
