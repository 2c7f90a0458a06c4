"""Several processes at one model: their updates and validations are those of one process.

Under torchrun, this module does the work of one rank and writes what it found to the folder it is given. The tests compare what
all ranks found with the same work done by one process.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
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
from nmt.training.trainer import Trainer
from nmt.translation.translator import Translator
from nmt.validation import Validator
from tests.conftest import torchrun
from tests.training.test_trainer import CPU, SMALL, random_pairs, trainer_for

Found = dict[str, Any]

COUNT = 3  # ranks; with two, the order of a sum would not matter
UPDATES = {
    "planned": [np.arange(start, start + 20) for start in (0, 20, 40)],
    "of odd row counts": [np.arange(7), np.arange(7, 16), np.arange(16, 31)],
    "of a single pair": [np.array([pair]) for pair in (3, 5, 8)],
}
MICRO_BATCHES = {"of many rows": 100, "of one row, which leaves nothing to the other ranks": 1}
FITTING = 50  # cells per side that fit into the memory of rank 1

# What every rank does.


def trainer_of(ranks: Ranks, dropout: float = 0.0, **settings: Any) -> Trainer:
    """A trainer in float64, always on the same 60 pairs."""
    model = SMALL.model_copy(update={"dropout": dropout})
    trainer = trainer_for(random_pairs(60), model, dtype=torch.float64, **settings)
    trainer.ranks = ranks
    return trainer


def updated(trainer: Trainer, updates: Iterable[np.ndarray]) -> Found:
    """The gradients of the first update, and the state after the last one."""
    gradients: dict[str, Tensor] = {}
    for pairs in updates:
        trainer.update(pairs)
        for name, weights in trainer.model.named_parameters():
            assert weights.grad is not None
            gradients.setdefault(name, weights.grad.clone())
    state = {"weights": trainer.model.state_dict(), "moments": trainer.optimizer.state_dict()["state"]}
    return state | {"gradients": gradients, "progress": asdict(trainer.progress)}


def short_of_memory(trainer: Trainer, fitting: int) -> Trainer:
    """Let rank 1 alone run out of memory, with more than `fitting` cells per side."""
    backward = trainer.backward

    def small(batch: Batch, *place: int) -> list[Tensor]:
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


def validations(ranks: Ranks) -> Found:
    """Of more lines than ranks, of a single line, and one that fails on the last rank alone."""
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
        source, target = map(list, zip(*lines[:count], strict=True))
        validator = Validator("valid", source, target, ("en", "de"), vocabulary, TrainingConfig())
        found[f"{count} lines"] = validator.validate(model, 100, ranks)

    def fail(*_: object) -> list[str]:
        raise MemoryError("no room")

    with pytest.MonkeyPatch.context() as patch:
        if ranks.rank == ranks.count - 1:
            patch.setattr(Translator, "translate", fail)
        return found | {"failed": error_of(lambda: validator.validate(model, 100, ranks))}


def work(ranks: Ranks) -> Found:
    """Everything that needs several ranks, at once: starting them takes longer than all of it."""
    found: Found = {}
    for kind, updates in UPDATES.items():
        for size, tokens in MICRO_BATCHES.items():
            found[f"{kind}, {size}"] = updated(trainer_of(ranks, micro_batch_tokens=tokens), updates)
    found["with dropout"] = updated(trainer_of(ranks, 0.3), UPDATES["planned"])
    memory = short_of_memory(trainer_of(ranks, micro_batch_tokens=400), FITTING)
    found["short of memory"] = updated(memory, UPDATES["planned"])
    no_memory = short_of_memory(trainer_of(ranks), 0)
    found["no memory"] = error_of(lambda: no_memory.update(UPDATES["planned"][0]))
    return found | validations(ranks)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with Ranks.joined(CPU) as joined:
        (Path(sys.argv[1]) / str(joined.rank)).write_bytes(pickle.dumps(work(joined)))

# What the tests expect.


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


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], atol: float) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=atol)


def assert_weights_close(found: Found, expected: Found) -> None:
    """The keys' bias has no effect: its gradient is noise, which Adam scales up to 1e-10."""
    assert_close(found["weights"], expected["weights"], atol=1e-9)


def assert_same_everywhere(found: list[Found], which: str) -> None:
    """Weights, moments and progress are equal to the last bit; only clocks and padding are each rank's own."""
    first, *others = (rank[which] for rank in found)
    own = {"seconds", "tokens", "cells"}
    for other in others:
        assert all(torch.equal(other["weights"][name], tensor) for name, tensor in first["weights"].items())
        for number, moments in first["moments"].items():
            assert all(torch.equal(other["moments"][number][name], tensor) for name, tensor in moments.items())
        assert {name for name, value in other["progress"].items() if value != first["progress"][name]} <= own


@pytest.mark.parametrize("size", MICRO_BATCHES)
@pytest.mark.parametrize("kind", UPDATES)
def test_an_update_of_several_ranks_is_that_of_one(found: list[Found], alone: Found, kind: str, size: str) -> None:
    """G2: Gradients of the first update, weights after three, tokens and loss, without dropout."""
    which = f"{kind}, {size}"
    assert_same_everywhere(found, which)
    mine, one = found[0][which], alone[which]
    assert_close(mine["gradients"], one["gradients"], atol=1e-12)
    assert_weights_close(mine, one)
    assert mine["progress"]["target_tokens"] == one["progress"]["target_tokens"]
    assert mine["progress"]["loss"] == pytest.approx(one["progress"]["loss"], rel=1e-6)
    assert sum(rank[which]["progress"]["tokens"] for rank in found) == one["progress"]["tokens"]


def test_ranks_agree_to_the_last_bit_with_dropout(found: list[Found], alone: Found) -> None:
    """Each draws its own, so that their updates are not those of one process."""
    assert_same_everywhere(found, "with dropout")
    mine, one = (which["with dropout"]["weights"] for which in (found[0], alone))
    assert not all(torch.equal(mine[name], tensor) for name, tensor in one.items())


def test_one_rank_out_of_memory_halves_the_micro_batches_of_all(found: list[Found], alone: Found) -> None:
    """G1: The updates stay what they were; where memory is never enough, all ranks end with advice."""
    assert_same_everywhere(found, "short of memory")
    assert found[0]["short of memory"]["progress"]["micro_batch_tokens"] == FITTING
    assert alone["short of memory"]["progress"]["micro_batch_tokens"] == 400
    assert_weights_close(found[0]["short of memory"], alone["short of memory"])
    assert all("smaller model" in rank["no memory"] for rank in found)


@pytest.mark.parametrize("lines", ["5 lines", "1 lines"])
def test_a_validation_of_several_ranks_is_that_of_one(found: list[Found], alone: Found, lines: str) -> None:
    """The same on every rank, even where there are fewer lines than ranks; where it fails on one, it fails on all."""
    for rank in found:
        assert rank["failed"] == "MemoryError: no room"
        for measure, value in alone[lines].items():
            rounded = measure in ("valid_loss", "nll", "perplexity")
            assert rank[lines][measure] == (pytest.approx(value, rel=1e-5) if rounded else value), measure
