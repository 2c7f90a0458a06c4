"""Several processes at one model: what they send each other arrives, and their updates are those of one process.

Run as a module under torchrun, this file does the work of one rank and leaves what it found in the folder it is given; the
tests look at what all of them left, and do the same work alone.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.config import TrainingConfig
from nmt.data.batching import Batch
from nmt.data.vocabulary import learn
from nmt.errors import NmtError
from nmt.model.transformer import Transformer
from nmt.training.ranks import Ranks
from nmt.training.trainer import Interval, Trainer
from nmt.translation.translator import Translator
from nmt.validation import Validator
from tests.conftest import torchrun
from tests.training.test_trainer import CPU, SMALL, random_pairs, trainer_for

Found = dict[str, Any]

UPDATES = {
    "planned": [np.arange(start, start + 20) for start in (0, 20, 40)],
    "of odd row counts": [np.arange(7), np.arange(7, 16), np.arange(16, 31)],
    "of a single pair": [np.array([pair]) for pair in (3, 5, 8)],
}
MICRO_BATCHES = {"of many rows": 100, "of one row, which leaves nothing to the other ranks": 1}
FITTING = 50  # cells a side that rank 1 takes at once, where its memory is small


# What every rank does.


def trainer_of(ranks: Ranks, dropout: float = 0.0, **settings: Any) -> Trainer:
    """In float64 on the same 60 pairs."""
    model = SMALL.model_copy(update={"dropout": dropout})
    trainer = trainer_for(random_pairs(60), model, dtype=torch.float64, **settings)
    trainer.ranks = ranks
    return trainer


def state_of(trainer: Trainer) -> Found:
    return {
        "weights": trainer.model.state_dict(),
        "moments": trainer.optimizer.state_dict()["state"],
        "progress": asdict(trainer.progress),
    }


def updated(trainer: Trainer, updates: Iterable[np.ndarray]) -> Found:
    """The first update's gradients, and all that there is after the last one."""
    gradients: dict[str, Tensor] = {}
    for pairs in updates:
        trainer.update(pairs)
        for name, weights in trainer.model.named_parameters():
            assert weights.grad is not None
            gradients.setdefault(name, weights.grad.clone())
    return {"gradients": gradients} | state_of(trainer)


def run(trainer: Trainer, stop: Callable[[], bool] = lambda: False) -> Found:
    """The whole loop, with what it logs; each validation finds the same BLEU."""
    log: list[Interval] = []
    validations = trainer.progress.validations
    trainer.run(lambda: True, lambda: validations.append((trainer.progress.update, 1.0)), log.append, stop)
    return {"log": log} | state_of(trainer)


def short_of_memory(trainer: Trainer, fitting: int) -> Trainer:
    """On rank 1 alone; on the others memory never ends."""
    backward = trainer.backward

    def small(batch: Batch, *place: int) -> tuple[Tensor, list[Tensor]]:
        if trainer.ranks.rank == 1 and batch.source.numel() + batch.target_in.numel() > 2 * fitting:
            raise torch.OutOfMemoryError
        return backward(batch, *place)

    trainer.backward = small  # type: ignore[method-assign, assignment]
    return trainer


def error_of(work: Callable[[], object]) -> str:
    try:
        work()
    except NmtError as error:
        return str(error)
    return "no error"


def messages(ranks: Ranks) -> Found:
    """What was sent to this rank."""
    number, large = ranks.rank, bytes(range(256)) * 20_000
    summed = [torch.tensor(number + 1.0), torch.full((2, 3), 10.0**number), torch.zeros(0), torch.ones(5)]
    ranks.sum(summed)
    pairs_of_ranks = replace(ranks, on_machine=number % 2, machine=number // 2, machines=(ranks.count + 1) // 2)
    return {
        "any": [ranks.any(flag) for flag in (number == 1, False, True, number != 1)],
        "shared": [ranks.share(lambda: ("first", number)), ranks.share(lambda: ("second", number))],
        "shared by the machine": pairs_of_ranks.share(lambda: ("machine", number), each_machine=True),
        "handed out": [ranks.hand_out(("from", number)), ranks.hand_out(large if number == 0 else b"") == large],
        "gathered": ranks.gather("x" * 1_000 * number),
        "summed": summed,
    }


def validations(ranks: Ranks) -> Found:
    """Of as many lines as there are ranks and more, of one line, and where it fails on the last rank alone."""
    lines = [
        ("one two three", "eins zwei drei"),
        ("two", "zwei"),
        ("", ""),
        ("three one", "drei eins"),
        ("one", "eins"),
    ]
    vocabulary = learn(lines, len(lines), 370, seed=1)
    torch.manual_seed(1)
    model = Transformer(SMALL, len(vocabulary))
    found: Found = {}
    for count in (len(lines), 1):
        source, reference = zip(*lines[:count], strict=True)
        validator = Validator(
            "valid", list(source), list(reference), ("en", "de"), vocabulary, TrainingConfig(), "fp32"
        )
        found[f"{count} lines"] = validator.validate(model, 100, ranks)

    def fail(*_: object) -> list[str]:
        raise MemoryError("no room")

    translate = Translator.translate
    if ranks.rank == ranks.count - 1:
        Translator.translate = fail  # type: ignore[assignment, method-assign]
    found["failed"] = error_of(lambda: validator.validate(model, 100, ranks))
    Translator.translate = translate  # type: ignore[method-assign]
    return found


def work(ranks: Ranks) -> Found:
    """Everything that needs several ranks, in one go: to start them takes longer than all of it."""
    found: Found = {"messages": messages(ranks)} if ranks.count > 1 else {}
    for kind, updates in UPDATES.items():
        for size, tokens in MICRO_BATCHES.items():
            found[f"updates {kind}, micro-batches {size}"] = updated(
                trainer_of(ranks, micro_batch_tokens=tokens), updates
            )
    found["with dropout"] = updated(trainer_of(ranks, 0.3), UPDATES["planned"])
    found["run"] = run(trainer_of(ranks, steps=40, validate_every=15))
    stopped = trainer_of(ranks, steps=40)
    found["stopped"] = run(stopped, lambda: ranks.rank == ranks.count - 1 and stopped.progress.update == 7)
    found["out of patience"] = run(trainer_of(ranks, steps=40, validate_every=3, patience=2))
    memory = short_of_memory(trainer_of(ranks, steps=6, micro_batch_tokens=400), FITTING)
    found["short of memory"] = run(memory)
    if ranks.count > 1:
        found["out of memory"] = error_of(lambda: run(short_of_memory(trainer_of(ranks, steps=6), 0)))
    return found | validations(ranks)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with Ranks.join(CPU) as joined:
        (Path(sys.argv[1]) / str(joined.rank)).write_bytes(pickle.dumps(work(joined)))


# What must have come of it.


COUNT = 3  # ranks: more than two, so that it matters in which order they are summed


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """What each rank found."""
    folder = tmp_path_factory.mktemp("ranks")
    command = torchrun(COUNT, "-m", "tests.training.test_ranks", folder)
    done = subprocess.run(command, capture_output=True, timeout=300, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(COUNT)]


@pytest.fixture(scope="module")
def alone() -> Found:
    return work(Ranks())


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], atol: float = 1e-12) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=atol)


def assert_weights_close(found: Found, expected: Found) -> None:
    """The bias of the keys has no effect, so its gradient is noise; Adam, which scales it up, makes it one of 1e-10."""
    assert_close(found["weights"], expected["weights"], atol=1e-9)


def assert_same_everywhere(found: list[Found], which: str) -> None:
    """Weights and moments to the last bit, and the place in the plan; only padding is each rank's own."""
    first = found[0][which]
    for other in (rank[which] for rank in found[1:]):
        for name, tensor in first["weights"].items():
            assert torch.equal(other["weights"][name], tensor), name
        for number, moments in first["moments"].items():
            assert all(torch.equal(other["moments"][number][name], tensor) for name, tensor in moments.items())
        own = {"seconds", "tokens", "cells"}
        assert {name: value for name, value in other["progress"].items() if name not in own} == {
            name: value for name, value in first["progress"].items() if name not in own
        }


def test_messages_arrive(found: list[Found]) -> None:
    """What `any`, `share`, `hand_out`, `gather` and `sum` give is the same on every rank, and comes from the right one."""
    count = len(found)
    for rank, messages in enumerate(rank["messages"] for rank in found):
        assert messages["any"] == [True, False, True, True]
        assert messages["shared"] == [("first", 0), ("second", 0)]
        assert messages["shared by the machine"] == ("machine", 2 * (rank // 2))
        assert messages["handed out"] == [("from", 0), True]
        assert messages["gathered"] == ["x" * 1_000 * number for number in range(count)]
        scalar, matrix, nothing, ones = messages["summed"]
        assert scalar == count * (count + 1) / 2
        assert torch.equal(matrix, torch.full((2, 3), sum(10.0**number for number in range(count))))
        assert nothing.shape == (0,)
        assert torch.equal(ones, torch.full((5,), float(count)))


def test_alone_nothing_is_sent() -> None:
    """A process by itself gets back what it gives."""
    ranks, tensor = Ranks(), torch.ones(2)
    ranks.sum([tensor])
    assert torch.equal(tensor, torch.ones(2))
    assert ranks.first
    assert ((ranks.any(True), ranks.any(False)), ranks.share(lambda: 3), ranks.hand_out(4), ranks.gather(5)) == (
        (True, False),
        3,
        4,
        [5],
    )
    with ranks as entered:
        assert entered is ranks


@pytest.mark.parametrize("size", MICRO_BATCHES)
@pytest.mark.parametrize("kind", UPDATES)
def test_an_update_of_several_ranks_is_that_of_one(found: list[Found], alone: Found, kind: str, size: str) -> None:
    """Gradients of the first update, weights after three, the tokens and the loss counted, without dropout."""
    which = f"updates {kind}, micro-batches {size}"
    assert_same_everywhere(found, which)
    mine, one = found[0][which], alone[which]
    assert_close(mine["gradients"], one["gradients"])
    assert_weights_close(mine, one)
    assert mine["progress"]["target_tokens"] == one["progress"]["target_tokens"]
    assert mine["progress"]["loss"] == pytest.approx(one["progress"]["loss"], rel=1e-6)
    assert sum(rank[which]["progress"]["tokens"] for rank in found) == one["progress"]["tokens"]


def test_ranks_agree_to_the_last_bit_with_dropout(found: list[Found], alone: Found) -> None:
    assert_same_everywhere(found, "with dropout")
    one = alone["with dropout"]["weights"]
    assert any(not torch.equal(found[0]["with dropout"]["weights"][name], tensor) for name, tensor in one.items())


def test_a_run_of_several_ranks_logs_what_one_logs(found: list[Found], alone: Found) -> None:
    assert_same_everywhere(found, "run")
    for log in (rank["run"]["log"] for rank in found):
        assert [line.update for line in log] == [20, 40]
        for line, expected in zip(log, alone["run"]["log"], strict=True):
            assert line.loss == pytest.approx(expected.loss, rel=1e-6)
            assert line.tokens_per_update == expected.tokens_per_update
            assert (line.epoch, line.learning_rate) == (expected.epoch, expected.learning_rate)


def test_all_ranks_stop_after_the_same_update_where_one_is_asked_to(found: list[Found]) -> None:
    assert_same_everywhere(found, "stopped")
    assert found[0]["stopped"]["progress"]["update"] == 7


def test_patience_ends_on_all_ranks_after_the_same_update(found: list[Found]) -> None:
    assert_same_everywhere(found, "out of patience")
    assert found[0]["out of patience"]["progress"]["update"] == 9


def test_one_rank_out_of_memory_halves_the_micro_batches_of_all(found: list[Found], alone: Found) -> None:
    """And the updates stay what they were."""
    assert_same_everywhere(found, "short of memory")
    assert found[0]["short of memory"]["progress"]["micro_batch_tokens"] == FITTING
    assert alone["short of memory"]["progress"]["micro_batch_tokens"] == 400
    assert_weights_close(found[0]["short of memory"], alone["short of memory"])


def test_memory_that_is_never_enough_on_one_rank_ends_all_with_advice(found: list[Found]) -> None:
    assert all("a smaller model needs less" in rank["out of memory"] for rank in found)


@pytest.mark.parametrize("count", [5, 1])
def test_a_validation_of_several_ranks_is_that_of_one(found: list[Found], alone: Found, count: int) -> None:
    """The same on every rank, even where there are fewer lines than ranks."""
    expected = asdict(alone[f"{count} lines"])
    for rank in found:
        validation = asdict(rank[f"{count} lines"])
        for measure in ("valid_loss", "nll", "perplexity"):
            assert validation.pop(measure) == pytest.approx(expected[measure], rel=1e-5)
        assert validation == {name: expected[name] for name in validation}


def test_a_validation_that_fails_on_one_rank_fails_on_all(found: list[Found]) -> None:
    assert [rank["failed"] for rank in found] == ["MemoryError: no room"] * len(found)
