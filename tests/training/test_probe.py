"""How much a GPU takes at once, found by doubling: here a GPU that is made up, of so many bytes a token."""

from collections.abc import Callable

import pytest
import torch

from nmt.data.batching import Batch
from nmt.training import probe
from nmt.training.probe import FULL, LEAST, TARGET, find_micro_batch
from nmt.training.trainer import Trainer
from tests.training.test_trainer import random_pairs, trainer_for

Gpu = Callable[[float], list[int]]


@pytest.fixture
def trainer() -> Trainer:
    return trainer_for(random_pairs(10))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> Gpu:
    """A GPU on which a micro-batch of so many tokens just fits, beside the sum of gradients; returns the sizes tried on it."""

    def of(fitting: float) -> list[int]:
        tried: list[int] = []

        def peak(_: Trainer, tokens: int) -> float:
            tried.append(tokens)
            return 1_000.0 * tokens

        room = (1_000 * fitting + 4 * trainer.model.count_parameters()) / FULL
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0.75 * room, 2 * room))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0.25 * room)  # by PyTorch, and free to use
        monkeypatch.setattr(probe, "_peak", peak)
        return tried

    return of


@pytest.mark.parametrize("fitting", [2.5, 5, 9.9])
def test_the_largest_doubling_that_fits_is_found(trainer: Trainer, gpu: Gpu, fitting: float) -> None:
    """The size found fits, and twice as much does not."""
    tried = gpu(fitting * LEAST)
    found = find_micro_batch(trainer, 1_000_000)
    assert found <= fitting * LEAST < 2 * found
    assert tried == [1, *(LEAST * 2**i for i in range(1, len(tried)))]
    assert tried[-1] == 2 * found, "nothing is tried beyond the first size that does not fit"


@pytest.mark.parametrize("most", [100, LEAST, 3 * LEAST, 4 * LEAST])
def test_no_more_is_taken_than_is_of_use(trainer: Trainer, gpu: Gpu, most: int) -> None:
    gpu(1_000 * LEAST)
    assert find_micro_batch(trainer, most) == most


def test_a_gpu_for_which_the_least_is_too_much_is_left_to_halving(trainer: Trainer, gpu: Gpu) -> None:
    gpu(LEAST / 2)
    assert find_micro_batch(trainer, 100_000) == LEAST


def test_trying_leaves_everything_as_it_was(trainer: Trainer, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, moments, progress, and no gradient; each trial was a micro-batch of its size with no padding in it.

    A single row comes first, and no two sizes of a trial are equal: what is compiled for them serves all shapes.
    """
    peak, backward, batches = probe._peak, trainer.backward, list[Batch]()
    gpu(1_000 * LEAST)
    monkeypatch.setattr(probe, "_peak", peak)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 1_000 * batches[-1].target_in.numel())

    def noted(batch: Batch, *place: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        batches.append(batch)
        return backward(batch, *place)

    monkeypatch.setattr(trainer, "backward", noted)
    weights = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    progress = repr(trainer.progress)
    assert find_micro_batch(trainer, 4 * LEAST) == 4 * LEAST
    assert [len(batch.source) for batch in batches] == [1, 2 * LEAST // TARGET, 4 * LEAST // TARGET]
    assert all(len({*batch.source.shape, *batch.target_in.shape}) == 3 for batch in batches[:2])
    assert all(batch.cells == batch.tokens for batch in batches)
    assert all(torch.equal(weights[name], tensor) for name, tensor in trainer.model.state_dict().items())
    assert repr(trainer.progress) == progress
    assert all(not state[name].any() for state in trainer.optimizer.state.values() for name in state)
    assert len(trainer.optimizer.state) == len(list(trainer.model.parameters()))
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")]
)
def test_memory_that_runs_out_is_a_size_that_does_not_fit(
    trainer: Trainer, gpu: Gpu, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    peak = probe._peak
    gpu(1_000 * LEAST)
    monkeypatch.setattr(probe, "_peak", peak)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 0)

    def small(batch: Batch, *place: int) -> None:
        if batch.target_in.numel() > 4 * LEAST:
            raise error

    monkeypatch.setattr(trainer, "backward", small)
    assert find_micro_batch(trainer, 1_000_000) == 4 * LEAST
