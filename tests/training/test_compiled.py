"""Compiled layers train like the others, are compiled before the first update, and are not used in validation.

Here PyTorch captures the graphs, forward and backward, and runs them as they are. tests/test_cuda.py tests the code that it
generates for a GPU, the only device for which nmt compiles.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from nmt.config import ModelConfig, TrainingConfig
from nmt.data.batching import Batch, Plan
from nmt.data.vocabulary import Vocabulary
from nmt.model.transformer import Transformer
from nmt.training.probe import MIN_TOKENS, find_micro_batch
from nmt.training.ranks import Ranks
from nmt.training.trainer import Trainer
from nmt.validation import Validator
from tests.training.test_trainer import CPU, random_pairs

pytestmark = pytest.mark.slow

MODEL = ModelConfig(layers=3, d_model=32, heads=4, d_ff=64, dropout=0.0)
COMPILED_KINDS = 3  # encoder layer, decoder layer, loss
# Few rows and many, short and long sides, sides as long as each other or as the number of rows, and finally a single row.
UPDATES = [np.arange(start, end) for start, end in ((0, 9), (9, 11), (11, 40), (40, 43), (43, 60), (0, 60), (7, 8), (9, 10))]


@dataclass
class Trained:
    trainer: Trainer
    losses: list[float]  # cumulative, after each update
    graphs: int  # compiled before the first update


def train(vocabulary: Vocabulary, compiled: bool) -> Trained:
    """Train on micro-batches of many shapes, after the probe that finds their size on a GPU."""
    config = TrainingConfig(warmup=10, tokens_per_update=200, micro_batch_tokens=100)
    torch.manual_seed(1)
    model, plan = Transformer(MODEL, len(vocabulary)), Plan(random_pairs(60), 200, 1)
    trainer = Trainer(model, plan, config, CPU, "fp32", compiled=compiled)
    find_micro_batch(trainer, 2 * MIN_TOKENS)
    trained = Trained(trainer, [], counters["stats"]["unique_graphs"])
    for pairs in UPDATES:
        trained.trainer.update(pairs)
        trained.losses.append(trained.trainer.progress.loss)
    return trained


@pytest.fixture(scope="module")
def gpu() -> Iterator[pytest.MonkeyPatch]:
    """Unlimited GPU memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda _: (2**40, 2**40))
        for name in ("memory_reserved", "max_memory_allocated", "reset_peak_memory_stats"):
            patch.setattr(torch.cuda, name, lambda _: 0)
        yield patch


@pytest.fixture(scope="module")
def runs(gpu: pytest.MonkeyPatch, vocabulary: Vocabulary) -> tuple[Trained, Trained]:
    """The same training, eager and compiled."""
    eager = train(vocabulary, compiled=False)
    torch._dynamo.reset()
    counters.clear()
    gpu.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    return eager, train(vocabulary, compiled=True)


def test_compiled_training_is_the_same_training(runs: tuple[Trained, Trained]) -> None:
    eager, compiled = runs
    assert compiled.losses == pytest.approx(eager.losses, rel=1e-5)
    assert compiled.trainer.model.state_dict().keys() == eager.trainer.model.state_dict().keys()


def test_each_kind_is_compiled_whole_and_before_the_first_update(runs: tuple[Trained, Trained]) -> None:
    """Cuda 16: the probe compiles everything for all shapes and layers; a single row has graphs of its own."""
    _, compiled = runs
    trainer, pairs = compiled.trainer, compiled.trainer.plan.pairs
    batches = [batch for update in UPDATES for batch in trainer.cut((0, update)).batches]
    batches += [Batch.of(pairs.take(np.arange(first, first + rows))) for rows in range(1, 9) for first in range(0, 50, 7)]
    batches += [Batch.of(pairs.take(np.flatnonzero(pairs.sources == pairs.targets)[:rows])) for rows in (1, 2, 3)]
    for batch in batches:
        trainer.backward(batch, 1)
    shapes = {(batch.source.shape, batch.target_in.shape) for batch in batches}
    assert len(shapes) >= 50
    assert any(source == target for source, target in shapes)
    assert not counters["graph_break"]
    assert not counters["recompile_limit"]
    assert compiled.graphs == counters["stats"]["unique_graphs"] == 2 * COMPILED_KINDS


def test_validation_bypasses_compiled_layers(
    runs: tuple[Trained, Trained], vocabulary: Vocabulary, demo_pairs: list[tuple[str, str]]
) -> None:
    """It finds the same as in a model that was never compiled, and compiles nothing; training goes on."""
    source, reference = zip(*demo_pairs[:5], strict=True)
    trainer = runs[1].trainer
    validator = Validator("valid", list(source), list(reference), ("en", "de"), vocabulary, trainer.config)
    plain = Transformer(MODEL, len(vocabulary))
    plain.load_state_dict(trainer.model.state_dict())
    graphs = counters["stats"]["unique_graphs"]
    assert validator.validate(trainer.model, 100, Ranks()) == validator.validate(plain, 100, Ranks())
    trainer.update(UPDATES[0])
    assert counters["stats"]["unique_graphs"] == graphs
