"""`nmt describe`: its numbers are those of the real model, the real training and the real files."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nmt.config import PRESETS, ModelConfig
from nmt.event_log import EventLog
from nmt.ids import FIRST_PIECE
from nmt.model.transformer import Transformer
from nmt.saved_model import SavedModel
from nmt.sizes import TRAINING_FACTOR, flops, parameters, steps
from nmt.training.loss import loss
from tests.conftest import call

SMALL = ModelConfig(layers=2, d_model=16, heads=4, d_ff=24)
V, S, T = 50, 7, 5


def as_json(*arguments: str | Path) -> Any:
    done = call("describe", *arguments, "--format", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def numel(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_paper_s_base_model() -> None:
    """63,082,496 parameters, and a learning rate that peaks at 7e-4 after 4,000 updates (section 5.3)."""
    facts = as_json("base")
    assert facts["parameters"]["total"] == 63_082_496
    assert facts["recipe"]["peak_learning_rate"] == pytest.approx(512**-0.5 * 4_000**-0.5)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.model.architecture == "transformer"])
def test_parameters_are_those_of_the_model(name: str, norm: str) -> None:
    config = PRESETS[name].model.model_copy(update={"norm": norm})
    with torch.device("meta"):
        model = Transformer(config, 999)
    counted = parameters(config, 999)
    assert counted["total"] == model.count_parameters()
    assert counted["embedding"] == numel(model.embedding)
    assert counted["encoder"] == numel(model.encoder) + numel(model.encoder_norm)
    assert counted["decoder"] == numel(model.decoder) + numel(model.decoder_norm)
    assert counted["final_norm"] == numel(model.decoder_norm)
    for layer, real in ((counted["encoder_layer"], model.encoder[0]), (counted["decoder_layer"], model.decoder[0])):
        assert sum(layer.values()) == numel(real)
        assert layer["feed_forward"] == numel(real.feed_forward)


counting = partial(FlopCounterMode, display=False)


@pytest.mark.parametrize("config", [SMALL, SMALL.model_copy(update={"layers": 1, "norm": "pre"})])
def test_flops_are_those_that_pytorch_counts(config: ModelConfig) -> None:
    """Encoding, decoding and projection one by one, and training as three times their sum."""
    model = Transformer(config, V)
    source, target = (torch.randint(FIRST_PIECE, V, (1, length)) for length in (S, T))
    with sdpa_kernel(SDPBackend.MATH):  # PyTorch does not count the CPU's fused kernel
        with counting() as encoding:
            memory = model.encode(source)
        with counting() as decoding:
            states = model.decode(target, memory)
        with counting() as projecting:
            summed = loss(states, model.embedding.weight, target)
        with counting() as backward:
            torch.autograd.backward(summed)
    counts = [counter.get_total_flops() for counter in (encoding, decoding, projecting)]
    expected = flops(config, V, S, T)
    assert counts == [*expected.values()]
    assert sum(counts) + backward.get_total_flops() == TRAINING_FACTOR * sum(expected.values())


def test_a_trained_model(overfitted: Path) -> None:
    """Sizes, data and scores are those of the model's files and log."""
    saved = SavedModel.open(overfitted)
    facts = as_json("-m", overfitted)
    run = facts["run"]
    assert facts["parameters"]["total"] == saved.network().count_parameters()
    assert (facts["vocabulary_size"], facts["vocabulary_exact"]) == (len(saved.vocabulary), True)
    log = EventLog(saved.directory.metrics_path).read()
    validations = [event for event in log if event["event"] == "validation"]
    best = max(validations, key=lambda event: event["bleu"])
    assert (run["best"]["step"], run["best"]["bleu"]) == (best["step"], best["bleu"])
    assert (run["last"]["step"], run["updates"], run["minutes"]) == (400, 400, validations[-1]["minutes"])
    assert run["data"]["lines"] == {"train": 200, "valid": 100, "test": 100}
    words = " ".join(call("describe", "-m", overfitted).stdout.split())
    for shown in (f"best bleu {best['bleu']:.6g} ", best["signature"], saved.config["begun"], saved.config["command"]):
        assert shown in words


def test_several_side_by_side(overfitted: Path) -> None:
    """A column each: the numbers of the log and of sizes.py, and "-" for what a preset has not; as JSON a list."""
    log = EventLog(overfitted / "metrics.jsonl").read()
    speeds = [event["tokens_per_second"] for event in log if event["event"] == "training"]
    [average] = [event for event in log if event["event"] == "average"]
    rows = [re.split(" {2,}", line.strip()) for line in call("describe", overfitted, "base").stdout.splitlines()]
    assert rows[:3] == [[str(overfitted), "base"], ["architecture", "Transformer", "Transformer"], ["2+2 layers", "6+6 layers"]]
    found = {name: values for name, *values in rows[3:] if len(values) == 2}
    model = SavedModel.open(overfitted).description.model
    sizes = [steps(config, 25, 25) for config in (model, PRESETS["base"].model)]
    assert found["parameters"][1] == "63,082,496"
    for name, key in (("encode 25", "encode"), ("train on 25 + 25", "train"), ("translate 25", "translate")):
        assert found[f"steps to {name} tokens"] == [str(size[key]) for size in sizes]
    assert found["training tokens/s"] == [f"{round(sum(speeds) / len(speeds)):,}", "-"]
    assert found["validation BLEU"] == [f"{average['bleu']:.2f}", "-"]
    assert found["validation perplexity"] == [f"{average['perplexity']:.2f}", "-"]
    assert found["updates"] == ["400", "-"]
    assert as_json(overfitted, "base") == [as_json(overfitted), as_json("base")]


def test_a_run_that_has_only_begun(overfitted: Path, tmp_path: Path) -> None:
    """Without log, weights and checkpoints, everything that follows from config.json is described."""
    for name in ("config.json", "tokenizer.model"):
        shutil.copy(overfitted / name, tmp_path)
    facts = as_json("-m", tmp_path)
    assert facts["parameters"] == as_json("-m", overfitted)["parameters"]
    assert (facts["run"]["updates"], facts["run"]["best"], facts["run"]["last"]) == (0, None, None)
