"""On a CUDA device nmt computes a CPU's numbers. `tests/benchmarks/gpu.sh` runs these tests on a real one.

tests/test_emulated.py runs most of them on the emulated device, where numbers agree more closely.
"""

import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from nmt import devices
from nmt.config import ModelConfig, TrainingConfig
from nmt.data.batching import Plan
from nmt.data.vocabulary import Vocabulary
from nmt.model.attention import additive_mask, attention
from nmt.model.transformer import Transformer
from nmt.training import trainer as training
from nmt.training.probe import find_micro_batch
from nmt.training.ranks import Ranks
from nmt.training.trainer import Trainer
from nmt.translation.attentions import attention_maps
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from nmt.validation import Validator
from tests.conftest import RECIPE, Nmt, write_corpus
from tests.runs import Pairs
from tests.training.test_trainer import random_pairs
from tests.translation.test_search import sentences, small_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
EMULATED = "tests.emulated.gpu" in sys.modules
MODEL = ModelConfig(layers=2, d_model=64, heads=4, d_ff=128, dropout=0.0)
# Relative: sums in another order, and rounding to 8 bits in other places.
TOLERANCE = {"fp32": 1e-5 if EMULATED else 1e-3, "bf16": 1e-2}
each_precision = pytest.mark.parametrize("precision", TOLERANCE)


def trainer_on(
    device: str, precision: str = "fp32", compiled: bool = False, layers: int = 2, size: int = 400, **settings: Any
) -> Trainer:
    config = TrainingConfig.model_validate({"warmup": 10, "tokens_per_update": 1_000} | settings)
    torch.manual_seed(1)
    plan = Plan(random_pairs(400, longest=30, size=size), config.tokens_per_update, 1)
    model = Transformer(MODEL.model_copy(update={"layers": layers}), size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))  # biases and norms too
    return Trainer(model.to(device), plan, config, torch.device(device), precision, compiled=compiled)


def losses_of(trainer: Trainer, updates: int = 4) -> list[float]:
    """The mean loss of each of the plan's first updates."""
    found = []
    for pairs in trainer.plan.epoch(0)[:updates]:
        before = float(trainer.summed_loss)
        trainer.update(pairs)
        found.append((float(trainer.summed_loss) - before) / int(trainer.plan.pairs.targets[pairs].sum()))
    return found


@each_precision
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_losses_are_those_of_a_cpu(precision: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several micro-batches an update."""
    monkeypatch.setattr(training, "MIN_CELLS_ON_GPU", 64)
    on_gpu = losses_of(trainer_on("cuda", precision, compiled, micro_batch_tokens=200))
    on_cpu = losses_of(trainer_on("cpu", micro_batch_tokens=200))
    assert on_gpu == pytest.approx(on_cpu, rel=TOLERANCE[precision])


def test_nothing_waits_for_the_device_within_an_update() -> None:
    trainer = trainer_on("cuda", "bf16")
    losses_of(trainer, 2)  # what is made once may wait
    shares = [trainer.cut((0, pairs)) for pairs in trainer.plan.epoch(0)[2:6]]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for pairs, share in zip(trainer.plan.epoch(0)[2:6], shares, strict=True):
            trainer.update(pairs, share)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_memory_that_runs_out_halves_the_micro_batches() -> None:
    """An update that does not fit fails real allocations; its loss is that of smaller micro-batches."""
    small, large = (trainer_on("cuda", micro_batch_tokens=tokens) for tokens in (4_000, 32_000))
    targets = small.plan.pairs.targets
    longest = int(targets.argmax())
    pairs = np.full(32_000 // int(targets[longest]), longest)  # no padding, which would end micro-batches
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    small.update(pairs)
    room = 3 * torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
    try:
        large.update(pairs)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert large.progress.micro_batch_tokens < 32_000
    assert float(large.summed_loss) == pytest.approx(float(small.summed_loss), rel=1e-3)


def test_probe_finds_a_size_and_leaves_no_trace() -> None:
    trainer = trainer_on("cuda", "bf16")
    before = {name: weights.clone() for name, weights in trainer.model.state_dict().items()}
    assert find_micro_batch(trainer, 5_000) == 5_000, "a small model's whole update fits"
    assert all(torch.equal(weights, before[name]) for name, weights in trainer.model.state_dict().items())
    assert trainer.progress.update == 0


@each_precision
def test_validation_finds_what_a_cpu_finds(precision: str, vocabulary: Vocabulary, demo_pairs: Pairs) -> None:
    source, reference = (list(side) for side in zip(*demo_pairs[:12], strict=True))
    found = []
    for trainer in (trainer_on(device, size=len(vocabulary)) for device in ("cpu", "cuda")):
        config = trainer.config.model_copy(update={"precision": precision})
        validator = Validator("valid", source, reference, ("en", "de"), vocabulary, config)
        likelihood = validator.validate(trainer.model, 300, Ranks())
        found.append((likelihood["nll"], likelihood["valid_loss"]))
    assert found[1] == pytest.approx(found[0], rel=TOLERANCE[precision])


def test_attention_needs_no_plan_for_a_shape() -> None:
    """cuDNN's, which PyTorch prefers on newer GPUs, plans anew for each shape and is switched off."""
    device = devices.find_device("cuda")
    query, key = torch.randn(2, 4, 37, 64, device=device), torch.randn(2, 4, 41, 64, device=device)
    seen = torch.rand(2, 1, 1, 41, device=device) < 0.8
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        attention(query.bfloat16(), key.bfloat16(), key.bfloat16(), additive_mask(seen, query.bfloat16()))
    used = {event.key for event in profiler.key_averages() if event.key.startswith("aten::_scaled_dot_product")}
    assert used == {"aten::_scaled_dot_product_efficient_attention"}


@each_precision
@pytest.mark.parametrize("options", [SearchOptions(1), SearchOptions(4), SearchOptions(4, n_best=4, details=True)])
def test_search_finds_what_a_cpu_finds(precision: str, options: SearchOptions) -> None:
    """The same ids and scores of sentences that end at different steps. In bf16 many choices of a random model tip over."""
    model, sources = small_model(1), sentences(1, count=12)
    on_cpu = TorchEngine(model).search(sources, options)
    on_gpu = TorchEngine(small_model(1).to("cuda"), precision).search(sources, options)
    assert len({len(best[0].ids) for best in on_cpu}) > 3
    same = sum(one[0].ids == other[0].ids for one, other in zip(on_gpu, on_cpu, strict=True))
    assert same >= (6 if precision == "bf16" else 12 if EMULATED else 11)
    for one, other in zip(chain(*on_gpu), chain(*on_cpu), strict=True):
        if one.ids == other.ids:
            assert one.score == pytest.approx(other.score, rel=10 * TOLERANCE[precision] if precision == "fp32" else 2e-2)
            if one.forced and other.forced and precision == "fp32":
                log_p = one.forced.log_probabilities, other.forced.log_probabilities
                assert log_p[0] == pytest.approx(log_p[1], rel=1e-3, abs=1e-4)
                np.testing.assert_allclose(one.forced.attention, other.forced.attention, atol=1e-4)


def test_attention_maps_are_those_of_a_cpu() -> None:
    source, target = sentences(1)[:2]
    maps = (attention_maps(small_model(1).to(device), source, target) for device in ("cuda", "cpu"))
    for one, other in zip(*maps, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_commands_train_resume_and_translate(nmt: Nmt, tmp_path: Path, demo_pairs: Pairs) -> None:
    """With the defaults for a GPU: bf16, compiled layers, and a micro-batch size found by the probe."""
    pairs = demo_pairs[:200]
    data = write_corpus(tmp_path / "corpus", train=pairs, valid=pairs[:20], test=pairs[20:40])
    (tmp_path / "recipe.toml").write_text(RECIPE.replace('precision = "fp32"\n', ""))
    command = ["train", "--data", data, "--config", tmp_path / "recipe.toml", "-m", tmp_path / "model"]
    first = nmt(*command, "--steps", "100", "--validate-every", "50")
    said = first.stderr.decode()
    assert first.returncode == 0, said
    assert devices.name(torch.device("cuda")) in said
    assert "bf16" in said
    second = nmt(*command, "--steps", "300", "--validate-every", "50")
    assert second.returncode == 0, second.stderr.decode()
    assert "resuming after update 100" in second.stderr.decode()
    lines = "".join(f"{source}\n" for source, _ in pairs[:20]).encode()
    done = nmt("translate", "-m", tmp_path / "model", "--format", "json", stdin=lines)
    found = [json.loads(line)["hypotheses"][0]["text"] for line in done.stdout.decode().splitlines()]
    right = sum(text == target for text, (_, target) in zip(found, pairs, strict=False))
    assert right >= 15, "it knows its training text by heart"
