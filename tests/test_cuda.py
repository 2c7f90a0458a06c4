"""What only a CUDA device can show. `tests/benchmarks/gpu.sh` runs these where there is one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from nmt import devices
from nmt.config import ModelConfig, TrainingConfig
from nmt.data.batching import Plan
from nmt.model.attention import attention, hiding
from nmt.model.transformer import Transformer
from nmt.training.probe import find_micro_batch
from nmt.training.trainer import Trainer
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from nmt.validation import evaluate
from tests.conftest import RECIPE, Nmt, write_corpus
from tests.training.test_trainer import random_pairs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
MODEL = ModelConfig(layers=2, d_model=64, heads=4, d_ff=128, dropout=0.0)
SIZE = 400


def trainer_on(
    device: str, precision: str = "fp32", compiled: bool = False, layers: int = 2, size: int = SIZE, **settings: Any
) -> Trainer:
    config = TrainingConfig.model_validate({"warmup": 10, "tokens_per_update": 1_000} | settings)
    torch.manual_seed(1)
    plan = Plan(random_pairs(400, longest=30, size=size), config.tokens_per_update, 1)
    model = Transformer(MODEL.model_copy(update={"layers": layers}), size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))  # biases and norms too
    return Trainer(model.to(device), plan, config, torch.device(device), precision, compiled=compiled)


def losses_of(trainer: Trainer, updates: int = 8) -> list[float]:
    """Mean loss of each of the plan's first updates."""
    found = []
    for pairs in trainer.plan.epoch(0)[:updates]:
        before = float(trainer.summed_loss)
        trainer.update(pairs)
        found.append((float(trainer.summed_loss) - before) / trainer.plan.target_tokens(pairs))
    return found


def test_losses_are_those_of_a_cpu() -> None:
    assert losses_of(trainer_on("cuda")) == pytest.approx(losses_of(trainer_on("cpu")), rel=1e-3)


def test_compiled_layers_compute_the_same() -> None:
    assert losses_of(trainer_on("cuda", compiled=True)) == pytest.approx(losses_of(trainer_on("cuda")), rel=1e-3)


@pytest.mark.parametrize("compiled", [False, True])
def test_bf16_stays_near_fp32(compiled: bool) -> None:
    assert losses_of(trainer_on("cuda", "bf16", compiled)) == pytest.approx(losses_of(trainer_on("cpu")), rel=1e-2)


def test_nothing_waits_for_the_device_within_an_update() -> None:
    trainer = trainer_on("cuda", "bf16")
    losses_of(trainer, 2)  # what is made once may be waited for
    shares = [trainer.cut(pairs) for pairs in trainer.plan.epoch(0)[2:6]]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for pairs, share in zip(trainer.plan.epoch(0)[2:6], shares, strict=True):
            trainer.update(pairs, share)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_memory_that_runs_out_halves_the_micro_batches() -> None:
    """Real allocations that fail, in an update that would not fit: the loss is that of smaller micro-batches."""
    small, large = (trainer_on("cuda", micro_batch_tokens=tokens) for tokens in (4_000, 32_000))
    longest = int(small.plan.targets.argmax())
    pairs = np.full(
        32_000 // int(small.plan.targets[longest]), longest
    )  # without padding, which would end micro-batches
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


def test_validation_finds_what_it_finds_on_a_cpu() -> None:
    on_cpu, on_gpu = (
        evaluate(trainer.model, trainer.plan, np.arange(400), 5_000, 0.1, "fp32")
        for trainer in map(trainer_on, ("cpu", "cuda"))
    )
    assert on_gpu == pytest.approx(on_cpu, rel=1e-4)


def test_attention_needs_no_plan_for_a_shape() -> None:
    """cuDNN's makes one for each, and keeps it: PyTorch, which prefers it on newer GPUs, is told not to take it."""
    device = devices.find_device("cuda")
    query, key = torch.randn(2, 4, 37, 64, device=device), torch.randn(2, 4, 41, 64, device=device)
    seen = torch.rand(2, 1, 1, 41, device=device) < 0.8
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        attention(query.bfloat16(), key.bfloat16(), key.bfloat16(), hiding(seen, query.bfloat16()))
    used = {event.key for event in profiler.key_averages() if event.key.startswith("aten::_scaled_dot_product")}
    assert used == {"aten::_scaled_dot_product_efficient_attention"}


def test_search_finds_what_it_finds_on_a_cpu() -> None:
    sources = [[12 + (7 * n * k) % 300 for k in range(1, 3 + n)] for n in range(12)]
    model = trainer_on("cpu").model.eval()
    found = TorchEngine(model).search(sources, SearchOptions(beam=4))
    on_gpu = TorchEngine(model.to("cuda")).search(sources, SearchOptions(beam=4))
    same = sum(one[0].ids == other[0].ids for one, other in zip(found, on_gpu, strict=True))
    assert same >= 11, "but for ties in an untrained model"
    for one, other in zip(found, on_gpu, strict=True):
        assert one[0].score == pytest.approx(other[0].score, abs=1e-2)


def test_command_trains_resumes_and_translates(nmt: Nmt, tmp_path: Path, demo_pairs: list[tuple[str, str]]) -> None:
    """With the defaults of a machine that has a GPU: bf16, compiled layers, a micro-batch size of its own finding."""
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
    assert "going on after update 100" in second.stderr.decode()
    done = nmt("translate", "-m", tmp_path / "model", stdin=b"".join(f"{pair[0]}\n".encode() for pair in pairs[:20]))
    right = sum(line == pair[1] for line, pair in zip(done.stdout.decode().splitlines(), pairs, strict=False))
    assert right >= 15, "it knows its training text by heart"
