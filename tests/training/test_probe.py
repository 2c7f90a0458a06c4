"""The probe finds by doubling how much fits in a GPU's memory: here a fake GPU with a fixed number of bytes a token."""

from collections.abc import Callable

import pytest
import torch

from nmt.data.batching import Batch
from nmt.training.probe import MIN_TOKENS, TARGET_LENGTH, USABLE_MEMORY, find_micro_batch
from nmt.training.trainer import Trainer
from tests.training.test_trainer import random_pairs, trainer_for

Fits = Callable[[float], None]


@pytest.fixture
def trainer() -> Trainer:
    return trainer_for(random_pairs(10))


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> list[Batch]:
    """The micro-batches tried on the GPU, each of 1,000 bytes a token."""
    tried: list[Batch] = []
    backward = trainer.backward

    def noted(batch: Batch, *place: int) -> list[torch.Tensor]:
        tried.append(batch)
        return backward(batch, *place)

    monkeypatch.setattr(trainer, "backward", noted)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 1_000 * tried[-1].target_in.numel())
    return tried


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch, trainer: Trainer, batches: list[Batch]) -> Fits:
    """Sets how many tokens just fit on the GPU, besides the sum of gradients."""

    def set_memory(tokens: float) -> None:
        room = (1_000 * tokens + 4 * trainer.model.count_parameters()) / USABLE_MEMORY
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0.75 * room, 2 * room))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0.25 * room)  # by PyTorch, which can reuse it

    return set_memory


@pytest.mark.parametrize(("fitting", "found"), [(0.5, 1), (2.5, 2), (5, 4), (9.9, 8)])
def test_the_largest_doubling_that_fits_is_found(
    trainer: Trainer, batches: list[Batch], fits: Fits, fitting: float, found: int
) -> None:
    """Nothing is tried beyond the first size that does not fit. If even the minimum does not, training halves it."""
    fits(fitting * MIN_TOKENS)
    assert find_micro_batch(trainer, 1_000_000) == found * MIN_TOKENS
    sizes = [1, *(2**power * MIN_TOKENS // TARGET_LENGTH for power in range(1, len(batches)))]
    assert [len(batch.source) for batch in batches] == sizes
    assert len(batches) == 1 + found.bit_length()


@pytest.mark.parametrize("limit", [100, MIN_TOKENS, 3 * MIN_TOKENS, 4 * MIN_TOKENS])
def test_the_probe_stops_at_the_limit_and_leaves_no_trace(
    trainer: Trainer, batches: list[Batch], fits: Fits, limit: int
) -> None:
    """Weights, moments and progress are unchanged. Micro-batches have no padding and no two equal sizes (Cuda 16)."""
    fits(1_000 * MIN_TOKENS)
    weights = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    progress = repr(trainer.progress)
    assert find_micro_batch(trainer, limit) == limit
    assert all(len({*batch.source.shape, *batch.target_in.shape}) == 3 for batch in batches[:2])
    assert all(batch.cells == batch.tokens for batch in batches)
    assert all(torch.equal(weights[name], tensor) for name, tensor in trainer.model.state_dict().items())
    assert repr(trainer.progress) == progress
    assert all(not state[name].any() for state in trainer.optimizer.state.values() for name in state)
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
