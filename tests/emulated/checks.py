"""Waits, launches and memory on a CUDA device, which only the emulated one counts. tests/test_emulated.py runs these."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt.config import ModelConfig
from nmt.model.transformer import Transformer
from nmt.training import trainer as training
from nmt.training.trainer import Trainer
from nmt.translation.engine import NetworkSteps, TorchEngine
from nmt.translation.hypothesis import SearchOptions
from tests import runs
from tests.conftest import call
from tests.emulated.gpu import Gpu
from tests.runs import events, outcome
from tests.test_cuda import each_precision, trainer_on
from tests.translation.test_search import sentences, small_model

# Launches for base's six layers, exactly as many as today, so that one more is noticed.
LAUNCHES_A_MICRO_BATCH = 1_080  # forward and backward in bf16, and a share of Adam's step
LAUNCHES_A_STEP = {("fp32", 1): 135, ("fp32", 4): 140, ("bf16", 1): 153, ("bf16", 4): 158}  # of search, by beam


@pytest.fixture(autouse=True)
def _small_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several micro-batches an update, even of few tokens."""
    monkeypatch.setattr(training, "MIN_CELLS_ON_GPU", 64)


def test_nothing_in_an_update_waits_and_launches_are_few(gpu: Gpu) -> None:
    """At base's depth: a launch costs the same at any width."""
    trainer = trainer_on("cuda", "bf16", tokens_per_update=400, micro_batch_tokens=200, layers=6)
    first, second = trainer.plan.epoch(0)[:2]
    trainer.update(first)
    share = trainer.cut((0, second))
    gpu.reset()
    gpu.may_wait = False
    trainer.update(second, share)
    launches = gpu.launches.total() / len(share.batches)
    assert launches <= LAUNCHES_A_MICRO_BATCH, gpu.launches.most_common(20)


@pytest.mark.parametrize("beam", [1, 4])
@each_precision
def test_search_waits_once_a_step_and_launches_little(
    precision: str, beam: int, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At base's depth, not counting the encoder and the start of the search."""
    torch.manual_seed(2)
    model = Transformer(ModelConfig(layers=6, d_model=32, heads=4, d_ff=64), 200).eval().to("cuda")
    engine = TorchEngine(model, precision)
    steps: list[int] = []
    before: list[int] = []
    step = NetworkSteps.step

    def counted(self: NetworkSteps, tokens: torch.Tensor) -> torch.Tensor:
        if not steps:
            before.append(gpu.launches.total())
        steps.append(len(tokens))
        return step(self, tokens)

    monkeypatch.setattr(NetworkSteps, "step", counted)
    gpu.reset()
    sources = [source[:12] for source in sentences(2, count=16, size=200)]
    engine.search(sources, SearchOptions(beam=beam, extra=12))
    launches = (gpu.launches.total() - before[0]) / len(steps)
    assert len(steps) > 12
    assert len(gpu.waits) <= len(steps), gpu.waits
    assert launches <= LAUNCHES_A_STEP[precision, beam], (launches, gpu.launches.most_common(30))


def test_forced_decoding_waits_twice(gpu: Gpu) -> None:
    """For the log-probabilities and for the attention."""
    engine = TorchEngine(small_model(1).to("cuda"))
    gpu.reset()
    engine.force([(source, source[::-1]) for source in sentences(1)])
    assert len(gpu.waits) <= 2, gpu.waits


def once(place: int) -> Callable[[str], None]:
    """Memory runs out at the operation with this number, counted from now."""
    left = [place]

    def fail(name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise torch.OutOfMemoryError(f"CUDA out of memory at {name}. (emulated)")

    return fail


@pytest.mark.parametrize("share", [0, 0.3, 0.6, 0.95])
def test_memory_that_runs_out_anywhere_in_an_update_halves_its_micro_batches(share: float, gpu: Gpu) -> None:
    """Anywhere before Adam's step: the update is the same as without the failure, as the next one's loss shows."""

    def updated(fail: Callable[[str], None]) -> Trainer:
        trainer = trainer_on("cuda", micro_batch_tokens=400, tokens_per_update=600)
        first, second = trainer.plan.epoch(0)[:2]
        gpu.fail = fail
        trainer.update(first)
        gpu.fail = lambda name: None
        trainer.update(second)
        return trainer

    calls: list[str] = []
    straight = updated(calls.append)
    failing = updated(once(1 + round(share * (calls.index("_fused_adam_") - 1))))
    assert failing.progress.micro_batch_tokens == 200
    assert float(failing.summed_loss) == pytest.approx(float(straight.summed_loss), rel=1e-5)


def test_memory_that_runs_out_in_a_search_halves_its_batch(gpu: Gpu) -> None:
    engine, sources = TorchEngine(small_model(1).to("cuda")), [source[:8] for source in sentences(1, count=6)]
    calls: list[str] = []
    gpu.fail = calls.append
    expected = engine.search(sources, SearchOptions(extra=5))
    for share in (0.01, 0.5, 0.95):
        gpu.fail = once(round(share * len(calls)))
        found = engine.search(sources, SearchOptions(extra=5))
        assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in expected]


def test_commands_do_on_it_what_they_do_on_a_cpu(tmp_path: Path, corpus: Path) -> None:
    """Train, stop, resume, average, translate and score: in fp32 with the losses and translations of a CPU."""
    made = {}
    for device in ("cpu", "cuda"):
        model = tmp_path / device / "model"
        model.parent.mkdir()
        options = ("--device", device, "--micro-batch-tokens", "100", "--dropout", "0")
        lengths = {"steps": 10, "validate_every": 5}
        assert runs.train(model, corpus, *options, "--steps", "5", **lengths).exit_code == 0
        done = runs.train(model, corpus, *options, **lengths)
        assert done.exit_code == 0, done.stderr
        assert "resuming after update 5" in done.stderr
        text = b"I see the old man.\n\nWe have a dog.\n"
        translated = call("translate", "-m", model, "--device", device, stdin=text)
        assert translated.exit_code == 0, translated.stderr
        scored = call("score", "-m", model, "--device", device)
        made[device] = model, translated.stdout, scored.stdout
    on_cpu, on_gpu = (events(made[device][0]) for device in ("cpu", "cuda"))
    for one, other in zip(on_gpu, on_cpu, strict=True):
        assert one["event"] == other["event"]
        for name in {"loss", "nll"} & one.keys():
            assert one[name] == pytest.approx(other[name], rel=1e-4)
    assert made["cpu"][1:] == made["cuda"][1:]
    assert len(outcome(made["cuda"][0])[0]) == len(outcome(made["cpu"][0])[0])
