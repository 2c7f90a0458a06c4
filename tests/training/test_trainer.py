"""The loop: one update is one update however it is cut, a resumed run is the same run, and a task is learned."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.config import ModelConfig, TrainingConfig
from nmt.data.batching import Batch, Plan
from nmt.data.prepared import PreparedPairs, Side
from nmt.errors import NmtError
from nmt.ids import FIRST_PIECE
from nmt.model.transformer import Transformer
from nmt.model_directory import WEIGHTS, path_of, saved
from nmt.training import checkpoint
from nmt.training.trainer import Interval, Trainer
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from nmt.validation import evaluate

SMALL = ModelConfig(layers=1, d_model=32, heads=4, d_ff=64)
CPU = torch.device("cpu")


def pairs_of(sources: list[list[int]], targets: list[list[int]]) -> PreparedPairs:
    return PreparedPairs(
        *(
            Side(
                np.array([id for ids in side for id in ids], np.uint16), np.cumsum([0, *map(len, side)], dtype=np.int64)
            )
            for side in (sources, targets)
        )
    )


def random_pairs(count: int, longest: int = 20, size: int = 40, seed: int = 0) -> PreparedPairs:
    random = np.random.default_rng(seed)
    sides = [
        [random.integers(FIRST_PIECE, size, random.integers(1, longest + 1)).tolist() for _ in range(count)]
        for _ in range(2)
    ]
    return pairs_of(*sides)


def trainer_for(
    pairs: PreparedPairs,
    model: ModelConfig = SMALL,
    size: int = 40,
    dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> Trainer:
    config = TrainingConfig.model_validate({"warmup": 10, "tokens_per_update": 200} | settings)
    torch.manual_seed(config.seed)
    plan = Plan(pairs, config.tokens_per_update, config.seed)
    return Trainer(Transformer(model, size).to(dtype), plan, config, CPU, "fp32")


def gradients(trainer: Trainer, cuts: list[list[int]]) -> dict[str, torch.Tensor]:
    """Of an update in these micro-batches, by parameter, in float64."""
    trainer.model.double()
    tokens = trainer.plan.target_tokens(np.concatenate(cuts))
    parts = [trainer.backward(trainer.plan.batch(np.array(cut)), tokens)[1] for cut in cuts]
    summed = [sum(part, torch.zeros(())) for part in zip(*parts, strict=True)]
    return dict(zip(dict(trainer.model.named_parameters()), summed, strict=True))


def test_micro_batches_of_2_and_40_tokens_are_one_batch() -> None:
    """In float64 to 1e-9; a mean of means would be off by a factor of two."""
    pairs = pairs_of([[20], list(range(12, 32))], [[21], [12 + i % 20 for i in range(39)]])
    trainer = trainer_for(pairs, SMALL.model_copy(update={"dropout": 0.0}))
    assert trainer.plan.targets.tolist() == [2, 40]
    cut, whole = gradients(trainer, [[0], [1]]), gradients(trainer, [[0, 1]])
    for name, gradient in whole.items():
        torch.testing.assert_close(cut[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("micro_batch_tokens", [1, 50, 10_000])
def test_update_does_not_depend_on_the_micro_batch_size(micro_batch_tokens: int) -> None:
    """Weights after three updates in float64, dropout off, and the tokens counted."""
    results = []
    for tokens in (400, micro_batch_tokens):
        model = SMALL.model_copy(update={"dropout": 0.0})
        trainer = trainer_for(random_pairs(60), model, dtype=torch.float64, micro_batch_tokens=tokens)
        for update in trainer.plan.epoch(0)[:3]:
            trainer.update(update)
        results.append((trainer.model.state_dict(), trainer.progress.target_tokens))
    assert results[0][1] == results[1][1]
    for name, weights in results[0][0].items():
        torch.testing.assert_close(results[1][0][name], weights, rtol=1e-6, atol=1e-9)


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


def run(trainer: Trainer, folder: Path, stop_after: int = 10**9) -> list[Interval]:
    """`Trainer.run` with checkpoints in the folder and a validation that finds nothing."""
    log: list[Interval] = []

    def save() -> bool:
        checkpoint.save(folder, trainer.model, trainer.optimizer, trainer.progress)
        return True

    def validate() -> None:
        trainer.progress.validations.append((trainer.progress.update, None))
        checkpoint.record(path_of(folder, trainer.progress.update), trainer.progress)

    trainer.run(save, validate, log.append, lambda: trainer.progress.update >= stop_after)
    return log


@pytest.mark.parametrize("stop_after", [10, 13, 20])
def test_resumed_run_is_the_same_run_bit_for_bit(tmp_path: Path, stop_after: int) -> None:
    """40 updates over several epochs, dropout on: weights, moments, progress and log, wherever the run was stopped."""
    pairs = random_pairs(60)
    settings: dict[str, Any] = {"steps": 40, "validate_every": 10, "micro_batch_tokens": 100}
    straight = trainer_for(pairs, **settings)
    straight_log = run(straight, tmp_path / "straight")

    first = trainer_for(pairs, **settings)
    first_log = run(first, tmp_path / "resumed", stop_after)
    assert first.progress.update == stop_after
    second = trainer_for(pairs, **settings)
    progress, torn = checkpoint.resume(tmp_path / "resumed", second.model, second.optimizer)
    assert progress
    assert not torn
    second.begin(progress)
    second_log = run(second, tmp_path / "resumed")

    assert second.progress == straight.progress
    for name, weights in straight.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], weights)
    for one, other in zip(straight.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(straight.optimizer.state[one]["exp_avg"], second.optimizer.state[other]["exp_avg"])
    facts = [
        [(i.update, i.epoch, i.loss, i.learning_rate, i.padding) for i in log]
        for log in (straight_log, first_log + second_log)
    ]
    assert facts[0] == facts[1]
    assert [i.update for i in straight_log] == [20, 40]


def test_killed_between_saving_and_validating_it_validates_first(tmp_path: Path) -> None:
    trainer = trainer_for(random_pairs(60), steps=20, validate_every=10)
    for update in trainer.plan.epoch(0)[:1] * 10:
        trainer.update(update)
    trainer.progress.position, trainer.progress.epoch = 0, 3
    checkpoint.save(tmp_path, trainer.model, trainer.optimizer, trainer.progress)
    run(trainer, tmp_path)
    assert [update for update, _ in trainer.progress.validations] == [10, 20]


def test_last_smaller_update_of_an_epoch_is_made() -> None:
    """Every pair is trained on: the tokens of an epoch's updates are the corpus's."""
    trainer = trainer_for(random_pairs(60), tokens_per_update=300)
    updates = trainer.plan.epoch(0)
    for update in updates:
        trainer.update(update)
    assert trainer.plan.target_tokens(updates[-1]) < 270
    assert trainer.progress.target_tokens == trainer.plan.targets.sum()


def test_loss_that_is_no_number_stops_with_advice(tmp_path: Path) -> None:
    trainer = trainer_for(random_pairs(60), steps=40)
    with torch.no_grad():
        trainer.model.embedding.weight[20:] = math.nan
    with pytest.raises(NmtError, match="warm-up"):
        run(trainer, tmp_path)
    assert trainer.progress.update == 1, "not only when the next checkpoint is due"
    assert saved(tmp_path) == []


def mean_losses(trainer: Trainer, tokens: int) -> tuple[float, float]:
    """(smoothed, plain) in nats a target token, over all pairs of the plan."""
    plan = trainer.plan
    smoothed, nll = evaluate(trainer.model, plan, np.arange(len(plan.pairs)), tokens, 0.1, "fp32")
    return smoothed / plan.targets.sum(), nll / plan.targets.sum()


def test_out_of_memory_halves_the_micro_batches_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that takes 60 tokens at once: the same weights as with micro-batches of its size from the beginning."""
    pairs = random_pairs(60)
    settings: dict[str, Any] = {"steps": 12, "validate_every": 6}
    fitting = trainer_for(pairs, **settings, micro_batch_tokens=50)
    run(fitting, tmp_path / "fitting")

    halved = trainer_for(pairs, **settings, micro_batch_tokens=200)
    backward, failed = halved.backward, []

    def small(batch: Batch, *place: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        if batch.target_in.numel() > 60:
            failed.append(batch)
            raise torch.OutOfMemoryError
        return backward(batch, *place)

    monkeypatch.setattr(halved, "backward", small)
    run(halved, tmp_path / "halved")
    assert len(failed) == 2, "once with 200 tokens, once with 100, and never again"
    assert halved.progress == fitting.progress
    assert halved.progress.micro_batch_tokens == 50
    for name, weights in fitting.model.state_dict().items():
        assert torch.equal(halved.model.state_dict()[name], weights)
    state = json.loads((tmp_path / "halved" / "step-000012" / "progress.json").read_text())
    assert state["micro_batch_tokens"] == 50, "so that a resumed run need not find out again"


class FullAt(TorchDispatchMode):
    """A device whose memory runs out once: at the operation of this number, counted from 0."""

    def __init__(self, number: int | None, error: Exception) -> None:
        super().__init__()
        self.number, self.error = number, error
        self.operations: list[str] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operation.namespace == "aten":
            self.operations.append(operation.__name__)
            if len(self.operations) - 1 == self.number:
                raise self.error
        return operation(*args, **kwargs or {})


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_at_any_operation_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    """Cuda 18, 19: the weights of smaller micro-batches; or, where Adam may have moved some of them, how to go on."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # one lane
    pairs = random_pairs(12, longest=6)

    def updated(size: int, full_at: int | None = None) -> tuple[list[torch.Tensor], list[str]]:
        trainer = trainer_for(pairs, tokens_per_update=100, micro_batch_tokens=size)
        update = trainer.plan.epoch(0)[0]
        share = trainer.cut(update)
        with FullAt(full_at, error) as device:
            trainer.update(update, share)
        assert trainer.progress.micro_batch_tokens == (size if full_at is None else size // 2)
        return list(trainer.model.parameters()), device.operations

    halved, _ = updated(40)
    _, operations = updated(80)
    step = operations.index("_fused_adam_.default")
    for number in range(0, step - 1, 31):
        assert all(map(torch.equal, updated(80, number)[0], halved)), (number, operations[number])
    for number in (step, step + 1):
        with pytest.raises(NmtError, match=r"at the end of update 1; .* goes on .* --micro-batch-tokens 40"):
            updated(80, number)


def test_lanes_side_by_side_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads at once, dropout on, attention's too: the weights of one lane, to the last bit, and of any other try."""
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


def test_memory_that_is_never_enough_ends_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_for(random_pairs(60), steps=12, micro_batch_tokens=1_000)

    def none(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(trainer, "backward", none)
    with pytest.raises(NmtError, match="smaller model"):
        run(trainer, tmp_path)


def test_patience_ends_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes on, to the same end as a run that never stopped, where more of it is asked for."""
    scores = {10: 5.0, 20: 7.0, 30: 6.0, 40: 6.5, 50: 6.0, 60: 8.0}
    pairs = random_pairs(60)

    def run_with(patience: int | None, into: Path) -> Trainer:
        trainer = trainer_for(pairs, steps=60, validate_every=10, patience=patience)
        if found := checkpoint.resume(into, trainer.model, trainer.optimizer)[0]:
            trainer.begin(found)

        def save() -> bool:
            checkpoint.save(into, trainer.model, trainer.optimizer, trainer.progress)
            return True

        def validate() -> None:
            trainer.progress.validations.append((trainer.progress.update, scores[trainer.progress.update]))
            checkpoint.record(path_of(into, trainer.progress.update), trainer.progress)

        trainer.run(save, validate, lambda _: None, lambda: False)
        return trainer

    early = run_with(2, tmp_path / "early")
    assert early.progress.update == 40
    assert early.finished()
    assert run_with(2, tmp_path / "early").progress.update == 40, "it stays finished"
    later, straight = run_with(None, tmp_path / "early"), run_with(None, tmp_path / "straight")
    assert later.progress == straight.progress
    for name, weights in straight.model.state_dict().items():
        assert torch.equal(later.model.state_dict()[name], weights)


def test_validation_is_plain_likelihood_and_touches_nothing() -> None:
    """exp(nll) of an untrained model is near V; the mode stays, no gradient appears, and the cut does not matter."""
    trainer = trainer_for(random_pairs(60))
    trainer.model.train()
    smoothed, nll = mean_losses(trainer, 100)
    again = mean_losses(trainer, 10_000)
    assert smoothed == pytest.approx(again[0], rel=1e-5)
    assert nll == pytest.approx(again[1], rel=1e-5)
    assert math.log(40) < nll < math.log(40) + 1
    assert trainer.model.training
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


@pytest.mark.slow
def test_copy_task_is_learned(tmp_path: Path) -> None:
    """Strings of 1 to 8 symbols are copied exactly, unseen ones too: at least 98 of 100, greedily."""
    random = np.random.default_rng(1)
    strings = [random.integers(FIRST_PIECE, 22, random.integers(1, 9)).tolist() for _ in range(3_000)]
    train = strings[:-200]
    unseen = [s for s in strings[-200:] if s not in train][:100]
    settings: dict[str, Any] = {
        "steps": 500,
        "tokens_per_update": 1_024,
        "warmup": 100,
        "factor": 0.4,
        "validate_every": 500,
    }
    trainer = trainer_for(pairs_of(train, train), SMALL.model_copy(update={"dropout": 0.0}), 22, **settings)
    run(trainer, tmp_path)
    found = TorchEngine(trainer.model).search(unseen, SearchOptions(beam=1))
    exact = sum(best[0].ids == string for best, string in zip(found, unseen, strict=True))
    assert exact >= 0.98 * len(unseen)
    assert (tmp_path / "step-000500" / WEIGHTS).exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_post_norm_trains_from_any_seed(seed: int) -> None:
    """64 pairs are memorised: the loss comes near the smoothed optimum instead of a plateau at the unigram loss."""
    pairs = random_pairs(64, longest=10)
    config = ModelConfig(layers=2, d_model=64, heads=4, d_ff=128, dropout=0.0)
    trainer = trainer_for(pairs, config, warmup=100, factor=0.5, label_smoothing=0.0, seed=seed)
    for _ in range(150):
        trainer.update(np.arange(64))
    _, nll = mean_losses(trainer, 1_000)
    assert nll < 0.05
