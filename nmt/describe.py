"""`nmt describe`: presets and trained models. JSON has the facts as they are, text lists them under the same names.

Of several, text is a table of what distinguishes them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config import PRESETS, ModelConfig, Preset, find_preset
from nmt.description import Description
from nmt.event_log import EventLog
from nmt.formatting import check_format, table
from nmt.lines import clean
from nmt.saved_model import SavedModel
from nmt.sizes import TRAINING_FACTOR, flops, memory, parameters, steps
from nmt.training.schedule import learning_rate

Facts = dict[str, Any]

TOKENS = 25  # per side of the sentence pair whose FLOPs are counted; a token of a longer one hardly costs more
TITLES = {
    "flops": "FLOPs of matrix products; up to training, per target token",
    "steps": "Steps that must wait for one another, a sentence of these tokens",
    "memory": "Bytes of memory, no activations",
}
FORMATS = {int: "{:,}", float: "{:.6g}", type(None): "-"}
# What config.json says of a run; `origin` is called `from` there.
RUN: Any = {"source": True, "target": True, "data": {"name", "lines", "sha256"}, "origin": True, "command": True, "begun": True}


@dataclass(frozen=True)
class Subject:
    """A preset or a trained model, and its facts: those of `describe`."""

    name: str  # as the user wrote it
    facts: Facts
    model: ModelConfig
    saved: SavedModel | None  # None for a preset


def find(names: Sequence[str], model: Path) -> list[Subject]:
    """Presets, model directories and checkpoint folders by name; without names the model in `model`.

    A preset's name wins over that of a directory, which can be written as ./base. Raises UsageError for an unknown preset, and
    for a missing or damaged model.
    """
    return [_find(name) for name in names] or [_trained(str(model), model)]


def _find(name: str) -> Subject:
    if name not in PRESETS and ("/" in name or Path(name).exists()):
        return _trained(name, Path(name))
    recipe = find_preset(name)
    facts = {"name": f"preset {name}", "source": recipe.source, "vocabulary_exact": False}
    return Subject(name, facts | _facts(name, recipe, recipe.training.vocab_size), recipe.model, None)


def _trained(name: str, path: Path) -> Subject:
    saved = SavedModel.open(path)
    found = saved.description
    facts = {"name": name, "vocabulary_exact": True}
    facts |= _facts(found.preset, found, found.vocabulary.size) | {"run": _run_facts(saved)}
    return Subject(name, facts, found.model, saved)


def describe(subjects: Sequence[Subject], form: str) -> str:
    """The subjects as text, or as JSON: one object, or a list of several objects.

        name, vocabulary_size, vocabulary_exact (false for a preset: the size is a maximum), source (of a preset's numbers)
        architecture  the fields of ModelConfig, and d_k
        parameters    total, embedding, encoder, decoder, final_norm; encoder_layer and decoder_layer, by sub-layer
        recipe        the fields of TrainingConfig, preset, peak_learning_rate, target_tokens
        flops         source_tokens, target_tokens (of a sentence pair); encode, decode, project, forward, training (per
                      target token); whole_training
        steps         source_tokens, target_tokens; encode, train, translate: how many steps must wait for one another
        memory        bytes: weights_fp32, weights_bf16, training_state, checkpoint, cache_per_token (fp32)
        run           for a trained model only: source, target, data (name, lines, sha256), from, command, begun, versions,
                      updates, minutes, tokens_per_second (the mean over the log), and before, best, last, average:
                      validations as logged in metrics.jsonl, or null

    Raises UsageError for an unknown format.
    """
    check_format(form)
    facts = [subject.facts for subject in subjects]
    if form == "json":
        return json.dumps(facts if len(facts) > 1 else facts[0]) + "\n"
    if len(facts) > 1:
        return _side_by_side(subjects)
    parts = sections(facts[0], "model").items()
    return "\n\n".join(f"{TITLES.get(name, name.capitalize())}\n{table(rows)}" for name, rows in parts) + "\n"


def _facts(preset: str, found: Preset | Description, pieces: int) -> Facts:
    """The facts that presets and trained models share."""
    model, training = found.model, found.training
    counts = parameters(model, pieces)
    per_token = {part: count // TOKENS for part, count in flops(model, pieces, TOKENS, TOKENS).items()}
    forward = sum(per_token.values())
    target_tokens, peak_update = training.steps * training.tokens_per_update, min(training.warmup, training.steps)
    return {
        "vocabulary_size": pieces,
        "architecture": model.model_dump() | {"d_k": model.d_model // model.heads},
        "parameters": counts,
        "recipe": {
            **training.model_dump(),
            "preset": preset,
            "peak_learning_rate": learning_rate(peak_update, model.d_model, training.warmup, training.factor),
            "target_tokens": target_tokens,
        },
        "flops": {
            "source_tokens": TOKENS,
            "target_tokens": TOKENS,
            **per_token,
            "forward": forward,
            "training": TRAINING_FACTOR * forward,
            "whole_training": TRAINING_FACTOR * forward * target_tokens,
        },
        "steps": {"source_tokens": TOKENS, "target_tokens": TOKENS, **steps(model, TOKENS, TOKENS)},
        "memory": memory(model, counts["total"]),
    }


def _run_facts(saved: SavedModel) -> Facts:
    """What config.json and metrics.jsonl record of the run, up to the checkpoint's update if this is one."""
    found = saved.description
    log = EventLog(saved.directory.metrics_path).read()
    events = [event for event in log if saved.update is None or event["step"] <= saved.update]
    scored = [{key: event[key] for key in event if key != "samples"} for event in events if "bleu" in event]
    validations = [event for event in scored if event["event"] == "validation" and event["step"]]
    speeds = [event["tokens_per_second"] for event in events if "tokens_per_second" in event]
    averages = [event for event in scored if event["event"] == "average" and saved.update is None]
    return found.model_dump(by_alias=True, include=RUN) | {
        "versions": {"nmt": found.nmt} | found.versions,
        "updates": saved.update or max((event["step"] for event in events), default=0),
        "minutes": max((event.get("minutes", 0.0) for event in events), default=0.0),
        "tokens_per_second": round(sum(speeds) / len(speeds)) if speeds else None,
        "before": next((event for event in scored if event["step"] == 0), None),
        "best": max(validations, key=lambda event: float(event["bleu"]), default=None),
        "last": next(reversed(validations), None),
        "average": next(reversed(averages), None),
    }


def architecture(model: ModelConfig) -> list[str]:
    """The architecture in words: its name, and what it consists of."""
    if model.architecture == "rnn":
        return ["RNN with attention", "1+1 layers", f"width {model.d_model:,}"]
    norm_and_positions = [f"{model.norm}-LN", "sinusoids" if model.positions == "sinusoids" else "learned positions"]
    if model.architecture == "transformer":
        words = ["Transformer", f"{model.layers}+{model.layers} layers"]
    else:
        words = ["decoder-only", f"{model.layers} layers", f"{model.mask} mask"]
    return [*words, f"width {model.d_model:,}", *norm_and_positions, *(["GELU"] if model.activation == "gelu" else [])]


def compared(subjects: Sequence[Subject]) -> dict[str, list[str]]:
    """What distinguishes the subjects, by name of the fact, a value for each; "-" where only a trained model has one.

    Perplexity and BLEU are those of the weights to use, or before there are such of the best validation.
    """
    runs = [subject.facts.get("run", {}) for subject in subjects]
    scored = [run.get("average") or run.get("best") or {} for run in runs]
    trained = {
        "updates": [run.get("updates") for run in runs],
        "training tokens/s": [run.get("tokens_per_second") for run in runs],
        "minutes": [run.get("minutes") for run in runs],
        "validation perplexity": [_rounded(event.get("perplexity")) for event in scored],
        "validation BLEU": [_rounded(event.get("bleu")) for event in scored],
    }
    rows: dict[str, list[Any]] = {
        "architecture": [architecture(subject.model) for subject in subjects],
        "parameters": [subject.facts["parameters"]["total"] for subject in subjects],
        "FLOPs per target token": [subject.facts["flops"]["forward"] for subject in subjects],
        f"steps to encode {TOKENS} tokens": [subject.facts["steps"]["encode"] for subject in subjects],
        f"steps to train on {TOKENS} + {TOKENS} tokens": [subject.facts["steps"]["train"] for subject in subjects],
        f"steps to translate {TOKENS} tokens": [subject.facts["steps"]["translate"] for subject in subjects],
        **trained,
    }
    return {name: [_shown(value) for value in values] for name, values in rows.items()}


def _rounded(score: float | None) -> str | None:
    return None if score is None else f"{score:.2f}"


def _side_by_side(subjects: Sequence[Subject]) -> str:
    """A table with a column for each subject. Architectures take several lines, so that columns stay narrow."""
    rows = [["", *(clean(subject.name) for subject in subjects)]]
    facts = compared(subjects)
    words = [value.split(", ") for value in facts.pop("architecture")]
    for line in range(max(map(len, words))):
        rows.append(["" if line else "architecture", *(each[line] if line < len(each) else "" for each in words)])
    rows += [[name, *values] for name, values in facts.items()]
    return table(rows, "<" + ">" * len(subjects)) + "\n"


def sections(facts: Facts, general: str) -> dict[str, list[tuple[str, str]]]:
    """Names and values for a reader, in a section for each object among the facts, after a `general` one for the others."""
    others = {name: fact for name, fact in facts.items() if not isinstance(fact, dict)}
    parts = {general: others} | {name: fact for name, fact in facts.items() if isinstance(fact, dict)}
    return {name: list(_rows(part)) for name, part in parts.items()}


def _rows(facts: Facts, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The facts, and those of the objects in them, each of which is named after its object too."""
    for name, fact in facts.items():
        if isinstance(fact, dict):
            yield from _rows(fact, f"{prefix}{name} ")
        else:
            yield prefix + name, _shown(fact)


def _shown(fact: Any) -> str:
    if isinstance(fact, list):
        return ", ".join(map(_shown, fact)) or "-"
    shown = FORMATS.get(type(fact), "{}").format(fact)
    return re.sub("([0-9a-f]{12})[0-9a-f]{52}", r"\1", clean(shown))  # shortens a SHA-256
