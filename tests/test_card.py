"""`nmt describe`: its numbers are those of the real model, the real training and the real files."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nmt.config import PRESETS, ModelConfig
from nmt.ids import FIRST_PIECE
from nmt.model.attention import Cache
from nmt.model.transformer import Transformer
from nmt.model_directory import ModelDirectory
from nmt.sizes import TRAINING, flops, parameters
from nmt.training.loss import loss
from tests.conftest import call, refusal

SMALL = ModelConfig(layers=2, d_model=16, heads=4, d_ff=24)
V, S, T = 50, 7, 5


def described(*arguments: str | Path) -> Any:
    done = call("describe", *arguments, "--format", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def card(*arguments: str | Path) -> str:
    done = call("describe", *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def numel(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_paper_s_base_model() -> None:
    """The base model has 63,082,496 parameters, and its rate peaks at 7e-4 after 4,000 updates (section 5.3)."""
    counts = described("base")["parameters"]
    assert counts["total"] == 63_082_496
    assert (counts["embedding"], counts["encoder"], counts["decoder"]) == (18_944_000, 18_914_304, 25_224_192)
    assert counts["encoder_layer"] == {
        "self_attention": 1_050_624,
        "cross_attention": 0,
        "feed_forward": 2_099_712,
        "layer_norms": 2_048,
    }
    assert counts["decoder_layer"] == counts["encoder_layer"] | {"cross_attention": 1_050_624, "layer_norms": 3_072}
    assert described("base")["recipe"]["peak_learning_rate"] == pytest.approx(512**-0.5 * 4_000**-0.5)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_those_of_the_model(name: str, norm: str) -> None:
    """Of every preset, before and after its norms are moved, each part counts what the model's own has."""
    config = PRESETS[name].model.model_copy(update={"norm": norm})
    with torch.device("meta"):
        model = Transformer(config, 999)
    counted = parameters(config, 999)
    assert counted.total == model.count_parameters()
    assert counted.embedding == numel(model.embedding)
    assert counted.encoder == numel(model.encoder) + numel(model.encoder_norm)
    assert counted.decoder == numel(model.decoder) + numel(model.decoder_norm)
    assert counted.final_norm == numel(model.decoder_norm)
    for layer, real in ((counted.encoder_layer, model.encoder[0]), (counted.decoder_layer, model.decoder[0])):
        assert layer.self_attention == numel(real.self_attention)
        assert layer.cross_attention == (numel(real.cross_attention) if hasattr(real, "cross_attention") else 0)
        assert layer.feed_forward == numel(real.feed_forward)
        assert layer.layer_norms == numel(real.add_norms)


def counting() -> FlopCounterMode:
    return FlopCounterMode(display=False)


@pytest.mark.parametrize("config", [SMALL, SMALL.model_copy(update={"layers": 1, "norm": "pre"})])
def test_flops_are_those_that_pytorch_counts(config: ModelConfig) -> None:
    """Encoding, decoding and the projection each take what PyTorch counts, and training three times their sum."""
    model = Transformer(config, V)
    source, target = (torch.randint(FIRST_PIECE, V, (1, length)) for length in (S, T))
    with sdpa_kernel(SDPBackend.MATH):  # of a CPU's fused kernel PyTorch counts nothing
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
    assert counts == [expected.encode, expected.decode, expected.project]
    assert sum(counts) + backward.get_total_flops() == TRAINING * expected.total


def test_translating_takes_the_flops_that_pytorch_counts() -> None:
    """Token by token with a cache, the decoder takes less: a query never meets the keys after its own."""
    model = Transformer(SMALL, V).eval()
    cache = Cache(SMALL.layers)
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
        memory = model.encode(torch.randint(FIRST_PIECE, V, (1, S)))
        with counting() as decoding:
            for _ in range(T):
                model.decode(torch.randint(FIRST_PIECE, V, (1, 1)), memory, cache)
    assert decoding.get_total_flops() == flops(SMALL, V, S, T, cached=True).decode < flops(SMALL, V, S, T).decode


def test_flops_of_the_card() -> None:
    """Times the tokens of a sentence, the numbers of the card are the formula's, whole training and translating too."""
    shown, config = described("base")["flops"], PRESETS["base"].model
    source, target = shown["source_tokens"], shown["target_tokens"]
    forward, cached = (flops(config, 37_000, source, target, cached) for cached in (False, True))
    assert [shown[part] * target for part in ("encode", "decode", "project", "forward")] == [
        forward.encode,
        forward.decode,
        forward.project,
        forward.total,
    ]
    assert shown["whole_training"] == 3 * shown["forward"] * 100_000 * 25_000
    assert shown["translate_sentence"] + target * shown["translate_token"] == cached.total
    # Two for each number of a matrix, three times in training: all but 1% is that, the rest attention.
    matrices = 63_082_496 * 6 * 100_000 * 25_000
    assert shown["whole_training"] == pytest.approx(matrices, rel=0.01)


def test_gpt2_small_has_its_published_size() -> None:
    """Counted from its sizes, GPT-2 small has the 124,439,808 parameters of the released model, beside base alone."""
    comparison = described("base")["comparison"]
    assert comparison["gpt2_small"]["parameters"] == 124_439_808
    assert comparison["base"]["parameters"] == 63_082_496
    assert comparison["base"].keys() == comparison["gpt2_small"].keys()
    assert re.search(r"parameters +63,082,496 +124,439,808\n", card("base"))
    assert "comparison" not in described("big")
    assert "GPT-2" not in card("big")


def numbers(facts: Any) -> list[int]:
    """All counts of some size in an object."""
    if isinstance(facts, dict):
        return [number for value in facts.values() for number in numbers(value)]
    return [facts] if type(facts) is int and facts >= 1_000 else []


@pytest.mark.parametrize("name", PRESETS)
def test_the_text_has_the_numbers_of_the_json(name: str) -> None:
    """Every count of architecture, parameters and FLOPs stands in the text, which keeps to 80 columns."""
    facts, text = described(name), card(name)
    assert max(map(len, text.splitlines())) <= 80
    whole = facts["flops"].pop("whole_training")
    for number in numbers({part: facts[part] for part in ("architecture", "parameters", "flops")}):
        assert re.search(rf"(?<![\d,]){number:,}(?![\d,])", text), number
    assert f" {whole:.2e}\n" in text
    assert f"{facts['memory']['training_state'] / 2**20:,.1f} MiB: weights, gradients" in text
    assert f"{facts['memory']['cache_per_token']:,} bytes a token" in text
    assert PRESETS[name].source in " ".join(text.split())


def test_a_trained_model(overfitted: Path) -> None:
    """Sizes, data and scores of a trained model are those of its files and of its log."""
    directory = ModelDirectory(overfitted)
    facts, text = described("-m", overfitted), card("-m", overfitted)
    config, run = directory.read_config(), facts["run"]
    model = directory.read_model(directory.weights_path)
    assert facts["parameters"]["total"] == model.count_parameters()
    assert (facts["vocabulary_size"], facts["vocabulary_exact"]) == (len(directory.read_vocabulary()), True)
    validations = [event for event in directory.events() if event["event"] == "validation"]
    assert [run["best"]["step"], run["last"]["step"], run["updates"]] == [
        max(validations, key=lambda event: event["bleu"])["step"],
        400,
        400,
    ]
    assert run["best"]["bleu"] == max(event["bleu"] for event in validations)
    assert run["minutes"] == validations[-1]["minutes"]
    assert run["data"]["lines"] == {"train": 200, "valid": 100, "test": 100}
    assert f"BLEU {run['best']['bleu']:.2f}" in text
    assert validations[-1]["signature"] in text
    assert config["data"]["sha256"]["train"][:12] in text
    assert config["begun"] in text
    assert config["command"] in " ".join(text.split())
    assert "400 of 400" in text
    assert set(facts["recipe"]["changed"]) == {
        "layers", "d_model", "d_ff", "dropout",
        "steps", "tokens_per_update", "warmup", "vocab_size", "validate_every", "average",
    }  # fmt: skip


def test_memory_is_that_of_the_files(overfitted: Path) -> None:
    """Weights and checkpoints take the bytes that are told, but for some kilobytes of names; the cache exactly those."""
    memory, directory = described("-m", overfitted)["memory"], ModelDirectory(overfitted)
    weights = directory.weights_path.stat().st_size
    assert memory["weights_fp32"] < weights < memory["weights_fp32"] + 8_192
    complete = directory.checkpoints / "step-000400"
    size = sum(path.stat().st_size for path in complete.iterdir())
    assert memory["checkpoint"] < size < 1.1 * memory["checkpoint"]
    model = directory.read_model(directory.weights_path)
    keys_values = model.encode(torch.full((1, S), FIRST_PIECE)).keys_values
    assert sum(states.nbytes for states in keys_values) == S * memory["cache_per_token"]


def test_a_checkpoint_is_described_as_the_run_was_then(overfitted: Path) -> None:
    """Of a checkpoint's folder, updates, time and scores are those up to it."""
    run = described("-m", overfitted / "checkpoints" / "step-000200")["run"]
    logged = [event for event in ModelDirectory(overfitted).events() if event["step"] == 200]
    [validation] = [event for event in logged if event["event"] == "validation"]
    assert run["updates"] == run["best"]["step"] == run["last"]["step"] == 200
    assert run["last"]["bleu"] == validation["bleu"]
    assert run["minutes"] == validation["minutes"]
    assert "200 of 400" in card("-m", overfitted / "checkpoints" / "step-000200")


@pytest.fixture
def copied(overfitted: Path, tmp_path: Path) -> ModelDirectory:
    """A model directory to change."""
    return ModelDirectory(Path(shutil.copytree(overfitted, tmp_path / "model")))


def test_a_run_that_has_only_begun(copied: ModelDirectory) -> None:
    """Without a log, weights or checkpoints, all that follows from the settings is told, and that no score is there."""
    before = described("-m", copied.path)
    copied.metrics_path.unlink()
    copied.weights_path.unlink()
    shutil.rmtree(copied.checkpoints)
    facts = described("-m", copied.path)
    assert facts["parameters"] == before["parameters"]
    assert (facts["run"]["updates"], facts["run"]["best"], facts["run"]["last"]) == (0, None, None)
    assert "none of its own text is logged" in card("-m", copied.path)
    assert "BLEU" not in card("-m", copied.path)


ODD: list[dict[str, Any]] = [
    {"step": "401"}, {"step": None}, {"minutes": None}, {"bleu": "37.5"}, {"bleu": None}, {"bleu": float("nan")},
    {"perplexity": "x"}, {"perplexity": float("inf")}, {"signature": 5}, {"lines": None}, {"beam": "4"},
    {"before": 3}, {"before": {"name": "old"}}, {"event": None},
]  # fmt: skip


def test_odd_lines_of_the_log_are_passed_over(copied: ModelDirectory) -> None:
    """A validation of which something is missing or not what it should be changes nothing, in text and JSON."""
    expected = described("-m", copied.path), card("-m", copied.path)
    last = [event for event in copied.events() if "bleu" in event][-1]
    copied.log({"minutes": 1.0, "event": "training"})
    for odd in ODD:
        copied.log(last | {"step": 401, "bleu": 99.0} | odd)
        assert (described("-m", copied.path), card("-m", copied.path)) == expected, odd


def test_a_fine_tuned_model(copied: ModelDirectory) -> None:
    """What it began from, and its scores on both texts before, during and at the end, are told."""
    config = copied.read_config()
    copied.write_config(
        config | {"preset": "fine-tuning", "from": {"data": "old-text", "weights": "0123456789abcdef" * 4}}
    )
    scores = {"lines": 100, "beam": 4, "signature": "sign", "perplexity": 2.0}
    for kind, step, bleu, old in (("validation", 0, 11.5, 81.5), ("average", 400, 22.5, 72.5)):
        before = {"name": "old-text", "bleu": old, "perplexity": 1e9}
        copied.log({"event": kind, "step": step, "bleu": bleu, "before": before} | scores)
    facts, text = described("-m", copied.path), card("-m", copied.path)
    assert (facts["run"]["before"]["bleu"], facts["run"]["average"]["before"]["bleu"]) == (11.5, 72.5)
    assert facts["run"]["best"]["event"] == "validation"
    assert "a model of old-text, weights 0123456789ab\n" in text
    words = " ".join(text.split())
    assert "BLEU 11.50, perplexity 2.00 at update 0; on the old old-text BLEU 81.50, perplexity 1.00e+09" in words
    assert "weights to use BLEU 22.50" in words
    assert "fine-tuning: the model's own settings" in words


def test_names_cannot_disturb_the_page(copied: ModelDirectory) -> None:
    """Control characters and what UTF-8 cannot hold, in a corpus's name, stay out of the text."""
    config = copied.read_config()
    copied.write_config(config | {"data": config["data"] | {"name": "a\x1b[31m\udcffb"}})
    assert "a [31m?b, en to de" in card("-m", copied.path)
    assert described("-m", copied.path)["run"]["data"]["name"] == "a\x1b[31m\udcffb"


def test_torch_is_not_needed(overfitted: Path) -> None:
    """A preset and a trained model are described in a process that never imports torch."""
    script = (
        "import sys; from pathlib import Path; from nmt import card\n"
        f"card.describe('base', Path('model'), 'text'); card.describe(None, Path({str(overfitted)!r}), 'json')\n"
        "sys.exit(int('torch' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_mistakes_are_told_in_a_sentence(copied: ModelDirectory, tmp_path: Path) -> None:
    """An unknown preset or format, a folder that is no model, and damaged files are refused, with the way out."""
    assert "did you mean 'base'?" in refusal(call("describe", "bsae"))
    assert "--format xml: must be text or json" in refusal(call("describe", "base", "--format", "xml"))
    assert "no trained model here" in refusal(call("describe", "-m", tmp_path / "none"))
    checkpoint = copied.checkpoints / "step-000200"
    (checkpoint / "progress.json").write_text("{")
    assert str(checkpoint / "progress.json") in refusal(call("describe", "-m", checkpoint))
    copied.tokenizer_path.unlink()
    assert "tokenizer.model: no such file" in refusal(call("describe", "-m", copied.path))
