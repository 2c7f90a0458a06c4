"""The loop: one update is one update however it is cut, memory that runs out loses nothing, and a task is learned."""

from typing import Any

import numpy as np
import pytest
import torch

from nmt.config import ModelConfig, TrainingConfig
from nmt.data.batching import Batch, Plan
from nmt.data.preparation import PreparedPairs, Side
from nmt.ids import BOS, EOS, FIRST_PIECE
from nmt.model.attention import additive_mask
from nmt.model.build import build
from nmt.training.trainer import Trainer
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions

SMALL = ModelConfig(layers=1, d_model=32, heads=4, d_ff=64)
STEADY = SMALL.model_copy(update={"dropout": 0.0})
CPU = torch.device("cpu")


def pairs_of(sources: list[list[int]], targets: list[list[int]]) -> PreparedPairs:
    """Pairs of these ids."""

    def side(sentences: list[list[int]]) -> Side:
        ids = np.array([id for sentence in sentences for id in sentence], np.uint16)
        return Side(ids, np.cumsum([0, *map(len, sentences)], dtype=np.int64))

    return PreparedPairs(side(sources), side(targets))


def random_pairs(count: int, longest: int = 20, size: int = 40, seed: int = 0) -> PreparedPairs:
    """Pairs of random ids below `size`."""
    random = np.random.default_rng(seed)
    sides = [
        [random.integers(FIRST_PIECE, size, random.integers(1, longest + 1)).tolist() for _ in range(count)] for _ in range(2)
    ]
    return pairs_of(*sides)


def trainer_for(
    pairs: PreparedPairs,
    model: ModelConfig = SMALL,
    size: int = 40,
    dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> Trainer:
    """A trainer of a fresh model on the CPU."""
    config = TrainingConfig.model_validate({"warmup": 10, "tokens_per_update": 200} | settings)
    torch.manual_seed(config.seed)
    plan = Plan(pairs, config.tokens_per_update, config.seed)
    return Trainer(build(model, size).to(dtype), plan, config, CPU, "fp32")


def gradients(trainer: Trainer, cuts: list[list[int]]) -> dict[str, torch.Tensor]:
    """The gradient of an update in these micro-batches, by parameter, in float64."""
    trainer.model.double()
    tokens = int(trainer.plan.pairs.targets[np.concatenate(cuts)].sum())
    parts = [trainer.backward(Batch.of(trainer.plan.pairs.take(np.array(cut))), tokens)[1:] for cut in cuts]
    summed = [sum(part, torch.zeros(())) for part in zip(*parts, strict=True)]
    return dict(zip(dict(trainer.model.named_parameters()), summed, strict=True))


def test_micro_batches_of_2_and_40_tokens_are_one_batch() -> None:
    """R4: In float64 to 1e-9; a mean of means would be off by a factor of two."""
    trainer = trainer_for(pairs_of([[20], list(range(12, 32))], [[21], [12 + i % 20 for i in range(39)]]), STEADY)
    assert trainer.plan.pairs.targets.tolist() == [2, 40]
    cut, whole = gradients(trainer, [[0], [1]]), gradients(trainer, [[0, 1]])
    for name, gradient in whole.items():
        torch.testing.assert_close(cut[name], gradient, rtol=1e-9, atol=1e-12)


def test_updates_are_those_of_the_papers_adam() -> None:
    """Written out, from each update's gradient: beta 0.9 and 0.98, epsilon 1e-9, no decay; in float64 to 1e-9."""
    trainer = trainer_for(random_pairs(60), dtype=torch.float64)
    named = dict(trainer.model.named_parameters())
    weights = {name: parameter.detach().clone() for name, parameter in named.items()}
    first, second = ({name: torch.zeros_like(tensor) for name, tensor in weights.items()} for _ in range(2))
    for u, pairs in enumerate(trainer.plan.epoch(0)[:3], 1):
        trainer.update(pairs)
        rate = 32**-0.5 * min(u**-0.5, u * 10**-1.5)
        for name, parameter in named.items():
            assert parameter.grad is not None
            first[name] = 0.9 * first[name] + 0.1 * parameter.grad
            second[name] = 0.98 * second[name] + 0.02 * parameter.grad**2
            root = (second[name] / (1 - 0.98**u)).sqrt()
            weights[name] = weights[name] - rate * first[name] / (1 - 0.9**u) / (root + 1e-9)
            torch.testing.assert_close(parameter.detach(), weights[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_loses_nothing(monkeypatch: pytest.MonkeyPatch, error: RuntimeError) -> None:
    """The update is made with smaller micro-batches."""
    expected, trainer = (trainer_for(random_pairs(60), micro_batch_tokens=size) for size in (40, 80))
    backward, first = trainer.backward, trainer.plan.epoch(0)[0]

    def small(batch: Batch, *place: int) -> list[torch.Tensor]:
        if place[1] and trainer.progress.micro_batch_tokens > 40:  # not the first micro-batch
            raise error
        return backward(batch, *place)

    monkeypatch.setattr(trainer, "backward", small)
    trainer.update(first)
    expected.update(first)
    assert all(map(torch.equal, trainer.model.parameters(), expected.model.parameters()))
    assert trainer.progress == expected.progress


def test_lanes_side_by_side_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads make the weights of one, to the last bit and every time, with all kinds of dropout."""
    pairs = random_pairs(120)
    model = SMALL.model_copy(update={"attention_dropout": 0.1, "relu_dropout": 0.1})

    def weights(threads: int) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        trainer = trainer_for(pairs, model, tokens_per_update=400, micro_batch_tokens=60)
        assert trainer.lanes.count == threads
        for update in trainer.plan.epoch(0) * 3:
            trainer.update(update)
        return trainer.model.state_dict()

    one, two, again = weights(1), weights(2), weights(2)
    for name, tensor in one.items():
        assert torch.equal(two[name], tensor), name
        assert torch.equal(again[name], tensor), name


@pytest.mark.slow
def test_copy_task_is_learned() -> None:
    """R1: Strings of 1 to 8 symbols are copied exactly, unseen ones too: at least 98 of 100, greedily."""
    random = np.random.default_rng(1)
    strings = [random.integers(FIRST_PIECE, 22, random.integers(1, 9)).tolist() for _ in range(3_000)]
    train = strings[:-200]
    unseen = [s for s in strings[-200:] if s not in train][:100]
    trainer = trainer_for(pairs_of(train, train), STEADY, 22, tokens_per_update=1_024, warmup=100, factor=0.4)
    for _, (_, pairs) in zip(range(500), trainer.plan.updates(0, 0), strict=False):
        trainer.update(pairs)
    found = TorchEngine(trainer.model).search(unseen, SearchOptions(beam=1))
    assert sum(best[0].ids == string for best, string in zip(found, unseen, strict=True)) >= 0.98 * len(unseen)


@pytest.mark.parametrize("source_loss", [False, True])
def test_loss_of_a_causal_stack(source_loss: bool) -> None:
    """That of the next tokens of one sequence, of the target alone or of both sides, per target token; in float64."""
    stack = STEADY.model_copy(update={"architecture": "decoder-only", "mask": "causal"})
    pairs = random_pairs(3)
    trainer = trainer_for(pairs, stack, dtype=torch.float64, source_loss=source_loss)
    batch, tokens = Batch.of(pairs), int(pairs.targets.sum())
    found, *_ = trainer.backward(batch, tokens)
    summed = torch.zeros((), dtype=torch.float64)
    model: Any = trainer.model
    sides = [np.split(side.ids, side.starts[1:-1]) for side in (pairs.source, pairs.target)]
    for source, target in zip(*([ids.tolist() for ids in side] for side in sides), strict=True):
        x = model.embedding(torch.tensor([[*source, BOS, *target]]))
        for block in model.stack:
            x = block(x, additive_mask(torch.ones(x.size(1), x.size(1)).tril().bool(), x), lambda new: new)
        log_p = (model.norm(x)[0] @ model.output.T).log_softmax(-1)
        next_tokens = [*source[1:], EOS, *target, EOS]  # EOS ends the source too
        smoothed = [0.9 * log_p[place, token] + 0.1 * log_p[place].mean() for place, token in enumerate(next_tokens)]
        summed -= sum(smoothed if source_loss else smoothed[len(source) :])
    assert float(found) == pytest.approx(float(summed.detach()) / tokens, rel=1e-9)
