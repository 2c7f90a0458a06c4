"""Checkpoints: averages, what is kept, and files that are whole or passed over."""

from pathlib import Path

import pytest
import torch

from nmt.config import ModelConfig
from nmt.errors import UsageError
from nmt.model.transformer import Transformer
from nmt.model_directory import PROGRESS, WEIGHTS, path_of, saved
from nmt.training import checkpoint
from nmt.training.checkpoint import OPTIMIZER, Progress
from nmt.weights import save_weights

SMALL = ModelConfig(layers=1, d_model=16, heads=2, d_ff=16)


def trained(seed: int = 0) -> tuple[Transformer, torch.optim.Adam]:
    """A model and its optimiser after a step along a random gradient."""
    torch.manual_seed(seed)
    model = Transformer(SMALL, 30)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return model, optimizer


def test_average_is_the_mean(tmp_path: Path) -> None:
    """Of the checkpoints after the last that is damaged; the mean of equal ones is exact, which a sum in fp32 is not."""
    for update, value in enumerate((1.0, 2.0, 6.0, *[1 / 3] * 5)):
        path_of(tmp_path, update).mkdir()
        save_weights(path_of(tmp_path, update) / WEIGHTS, {"w": torch.full((3,), value)})
    found, mean = checkpoint.average(tmp_path, [0, 1, 2])
    assert (found, mean["w"].tolist()) == ([0, 1, 2], [3.0, 3.0, 3.0])
    assert torch.equal(checkpoint.average(tmp_path, [3, 4, 5, 6, 7])[1]["w"], torch.full((3,), 1 / 3))
    torn = path_of(tmp_path, 5) / WEIGHTS
    torn.write_bytes(torn.read_bytes()[:-1])
    assert checkpoint.average(tmp_path, [*range(8)])[0] == [6, 7]
    assert checkpoint.average(tmp_path, [4, 5]) == ([], {})


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
    assert checkpoint.averaged(progress, 2, progress.best) == [20, 30]
    assert checkpoint.averaged(Progress(), 9) == []


def test_where_all_are_torn_all_are_kept(tmp_path: Path) -> None:
    """C3: Nothing is put aside unless another checkpoint serves."""
    model, optimizer = trained()
    for update, file in enumerate((WEIGHTS, OPTIMIZER, PROGRESS)):
        torn = checkpoint.save(tmp_path, model, optimizer, Progress(update)) / file
        torn.write_bytes(torn.read_bytes()[:-10])
    with pytest.raises(UsageError, match=r"step-000002.*step-000001.*step-000000.*--restart"):
        checkpoint.resume(tmp_path, model, optimizer)
    assert saved(tmp_path) == [0, 1, 2]
