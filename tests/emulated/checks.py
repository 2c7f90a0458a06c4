"""What nmt does on a CUDA device: the CPU's numbers, few waits, few launches. tests/test_emulated.py runs these; see gpu.py."""

import copy
import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt.config import ModelConfig
from nmt.model.transformer import Transformer
from nmt.training import trainer as training
from nmt.training.ranks import Ranks
from nmt.training.trainer import Trainer
from nmt.translation.attentions import watch
from nmt.translation.engine import TorchEngine, TransformerSteps
from nmt.translation.hypothesis import Hypothesis, SearchOptions
from nmt.validation import Validator
from tests import runs
from tests.conftest import call
from tests.emulated.gpu import Gpu
from tests.runs import Pairs, events, outcome
from tests.test_cuda import trainer_on
from tests.translation.test_search import sentences, small_model

PRECISIONS = ["fp32", "bf16"]
# Launches of base's six layers: as many as there are now, so that one more is noticed.
MOST_A_MICRO_BATCH = 1_080  # forward and backward, and its share of Adam's step, in bf16
MOST_A_STEP = {("fp32", 1): 135, ("fp32", 4): 140, ("bf16", 1): 153, ("bf16", 4): 158}  # of the search, by beam
NEAR = {"fp32": 1e-5, "bf16": 1e-2}  # relative: sums in another order, and rounding to 8 bits at other places


@pytest.fixture(autouse=True)
def _small_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several an update, also of few tokens."""
    monkeypatch.setattr(training, "FEWEST_ON_GPU", 64)


# -- training -------------------------------------------------------------------------------------------------------------
def losses_of(trainer: Trainer, updates: int) -> list[float]:
    """Mean loss of each of the plan's first updates."""
    found = []
    for pairs in trainer.plan.epoch(0)[:updates]:
        before = float(trainer.summed_loss)
        trainer.update(pairs)
        found.append((float(trainer.summed_loss) - before) / trainer.plan.target_tokens(pairs))
    return found


@pytest.mark.parametrize("precision", PRECISIONS)
def test_updates_of_several_micro_batches_are_a_cpus(precision: str) -> None:
    on_gpu, on_cpu = (
        trainer_on(device, precision, tokens_per_update=500, micro_batch_tokens=200) for device in ("cuda", "cpu")
    )
    assert len(on_gpu.cut(on_gpu.plan.epoch(0)[0]).batches) > 3
    assert losses_of(on_gpu, 3) == pytest.approx(losses_of(on_cpu, 3), rel=NEAR[precision])


def test_nothing_in_an_update_waits_and_launches_are_few(gpu: Gpu) -> None:
    """Of base's depth, for which a launch is as dear as for its width."""
    trainer = trainer_on("cuda", "bf16", tokens_per_update=400, micro_batch_tokens=200, layers=6)
    first, second = trainer.plan.epoch(0)[:2]
    trainer.update(first)
    share = trainer.cut(second)
    gpu.reset()
    gpu.may_wait = False
    trainer.update(second, share)
    launches = gpu.launches.total() / len(share.batches)
    print(f"{launches:.0f} launches a micro-batch of {len(share.batches)}")
    assert launches <= MOST_A_MICRO_BATCH, gpu.launches.most_common(20)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_validation_finds_what_a_cpu_finds(precision: str, vocabulary: object, demo_pairs: Pairs) -> None:
    source, reference = (list(side) for side in zip(*demo_pairs[:12], strict=True))
    trainer = trainer_on("cpu", size=len(vocabulary))  # type: ignore[arg-type]
    config = trainer.config
    validator = Validator("valid", source, reference, ("en", "de"), vocabulary, config, precision)  # type: ignore[arg-type]
    on_cpu = validator.validate(trainer.model, 300, Ranks())
    on_gpu = validator.validate(copy.deepcopy(trainer.model).to("cuda"), 300, Ranks())
    assert on_gpu.nll == pytest.approx(on_cpu.nll, rel=NEAR[precision])
    assert on_gpu.valid_loss == pytest.approx(on_cpu.valid_loss, rel=NEAR[precision])
    if precision == "fp32":
        assert on_gpu.signature == on_cpu.signature


# -- search ---------------------------------------------------------------------------------------------------------------
SEARCHES = {
    "greedy": SearchOptions(beam=1, extra=12),
    "beam 4": SearchOptions(beam=4, extra=12),
    "n-best": SearchOptions(beam=4, n_best=4, extra=12),
    "details": SearchOptions(beam=4, n_best=2, extra=12, details=True),
}


def search(model: Transformer, precision: str, options: SearchOptions, seed: int) -> list[list[Hypothesis]]:
    engine = TorchEngine(model, precision)
    engine.pack()
    return engine.search(sentences(seed, count=12), options)


@pytest.mark.parametrize("name", SEARCHES)
def test_search_finds_what_a_cpu_finds(name: str) -> None:
    """The same ids and scores in fp32, of sentences that end at different steps."""
    model, options = small_model(1), SEARCHES[name]
    on_cpu = search(copy.deepcopy(model), "fp32", options, 1)
    on_gpu = search(copy.deepcopy(model).to("cuda"), "fp32", options, 1)
    assert len({len(best[0].ids) for best in on_cpu}) > 3
    for one, other in zip(chain(*on_gpu), chain(*on_cpu), strict=True):
        assert one.ids == other.ids
        assert one.score == pytest.approx(other.score, rel=1e-4)
        if options.details:
            assert one.forced
            assert other.forced
            assert one.forced.log_probabilities == pytest.approx(other.forced.log_probabilities, rel=1e-3, abs=1e-5)
            np.testing.assert_allclose(one.forced.attention, other.forced.attention, atol=1e-5)


@pytest.mark.parametrize("name", ["greedy", "beam 4"])
def test_search_in_bf16_is_near(name: str) -> None:
    """Of a model of noise, whose choices are close, most greedy translations, and the score of each as the model has it."""
    model, options = small_model(1), SEARCHES[name]
    on_cpu = search(copy.deepcopy(model), "fp32", options, 1)
    on_gpu = search(copy.deepcopy(model).to("cuda"), "bf16", options, 1)
    same = [one[0].ids == other[0].ids for one, other in zip(on_gpu, on_cpu, strict=True)]
    assert sum(same) >= 6
    for one, other in zip(chain(*on_gpu), chain(*on_cpu), strict=True):
        if one.ids == other.ids:
            assert one.log_probability == pytest.approx(other.log_probability, rel=2e-2)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_search_waits_once_a_step_and_launches_little(
    precision: str, beam: int, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of base's depth: the encoder and all that is done once a batch is left out."""
    torch.manual_seed(2)
    model = Transformer(ModelConfig(layers=6, d_model=32, heads=4, d_ff=64), 200).eval().to("cuda")
    engine = TorchEngine(model, precision)
    engine.pack()
    steps: list[int] = []
    before: list[int] = []
    step = TransformerSteps.step

    def counted(self: TransformerSteps, tokens: torch.Tensor) -> torch.Tensor:
        if not steps:
            before.append(gpu.launches.total())
        steps.append(len(tokens))
        return step(self, tokens)

    monkeypatch.setattr(TransformerSteps, "step", counted)
    gpu.reset()
    sources = [source[:12] for source in sentences(2, count=16, size=200)]
    engine.search(sources, SearchOptions(beam=beam, extra=12))
    launches = (gpu.launches.total() - before[0]) / len(steps)
    assert len(steps) > 12
    assert len(gpu.waits) <= len(steps), gpu.waits
    assert launches <= MOST_A_STEP[precision, beam], (launches, gpu.launches.most_common(30))
    print(f"{precision} beam {beam}: {launches:.0f} launches a step, {len(gpu.waits)} waits in {len(steps)} steps")


def test_forced_decoding_and_attention_maps_are_a_cpus(gpu: Gpu) -> None:
    model = small_model(1)
    on_gpu = copy.deepcopy(model).to("cuda")
    sources = sentences(1)
    pairs = [(source, source[::-1]) for source in sources]
    expected = TorchEngine(model).force(pairs)
    gpu.reset()
    found = TorchEngine(on_gpu).force(pairs)
    assert len(gpu.waits) <= 2, gpu.waits
    for one, other in zip(found, expected, strict=True):
        assert one.log_probabilities == pytest.approx(other.log_probabilities, rel=1e-3, abs=1e-5)
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-5)
    for maps, others in zip(watch(on_gpu, *pairs[0]), watch(model, *pairs[0]), strict=True):
        np.testing.assert_allclose(maps, others, atol=1e-5)


# -- memory ---------------------------------------------------------------------------------------------------------------
def once(place: int) -> Callable[[str], None]:
    """Memory runs out at this operation, counted from now."""
    left = [place]

    def fail(name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise torch.OutOfMemoryError(f"CUDA out of memory at {name}. (emulated)")

    return fail


@pytest.mark.parametrize("share", [0, 0.3, 0.6, 0.95])
def test_memory_that_runs_out_anywhere_in_an_update_halves_its_micro_batches(share: float, gpu: Gpu) -> None:
    """Before Adam's step, which takes none: the update is then what it would have been, as the next one's loss tells."""

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


# -- the commands ---------------------------------------------------------------------------------------------------------
def test_commands_do_on_it_what_they_do_on_a_cpu(tmp_path: Path, corpus: Path) -> None:
    """Train, stop, resume, average, translate, score: in fp32 the losses and translations of a CPU."""
    made = {}
    for device in ("cpu", "cuda"):
        model = tmp_path / device / "model"
        model.parent.mkdir()
        options = ("--device", device, "--micro-batch-tokens", "100", "--dropout", "0")
        lengths = {"steps": 10, "validate_every": 5}
        assert runs.train(model, corpus, *options, "--steps", "5", **lengths).exit_code == 0
        done = runs.train(model, corpus, *options, **lengths)
        assert done.exit_code == 0, done.stderr
        assert "going on after update 5" in done.stderr
        text = "".join(f"{line}\n" for line in ("I see the old man.", "", "We have a dog."))
        translated = call("translate", "-m", model, "--device", device, "--format", "json", stdin=text.encode())
        assert translated.exit_code == 0, translated.stderr
        scored = call("score", "-m", model, "--device", device)
        made[device] = model, translated.stdout, scored.stdout
    on_cpu, on_gpu = (events(made[device][0]) for device in ("cpu", "cuda"))
    for one, other in zip(on_gpu, on_cpu, strict=True):
        assert one["event"] == other["event"]
        for name in {"loss", "nll"} & one.keys():
            assert one[name] == pytest.approx(other[name], rel=1e-4)
    texts = [
        [hypothesis["text"] for line in made[device][1].splitlines() for hypothesis in json.loads(line)["hypotheses"]]
        for device in ("cpu", "cuda")
    ]
    assert texts[0] == texts[1]
    assert made["cpu"][2] == made["cuda"][2]
    assert len(outcome(made["cuda"][0])[0]) == len(outcome(made["cpu"][0])[0])
