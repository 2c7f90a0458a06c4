"""`nmt describe`: a preset or a trained model. JSON has the facts as they are, text lists them under the same names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmt.config import Preset, find_preset
from nmt.description import Description
from nmt.event_log import EventLog
from nmt.formatting import check_format, table
from nmt.lines import clean
from nmt.saved_model import SavedModel
from nmt.sizes import TRAINING_FACTOR, flops, memory, parameters
from nmt.training.schedule import learning_rate

Facts = dict[str, Any]

TOKENS = 25  # per side of the sentence pair whose FLOPs are counted; a token of a longer one hardly costs more
TITLES = {"flops": "FLOPs of matrix products; up to training, per target token", "memory": "Bytes of memory, no activations"}
FORMATS = {int: "{:,}", float: "{:.6g}", type(None): "-"}
# What config.json says of a run; `origin` is called `from` there.
RUN: Any = {"source": True, "target": True, "data": {"name", "lines", "sha256"}, "origin": True, "command": True, "begun": True}


def describe(preset: str | None, model: Path, form: str) -> str:
    """Describes the preset, or without one the model directory or checkpoint folder, as text or as one JSON object:

        name, vocabulary_size, vocabulary_exact (false for a preset: the size is a maximum), source (of a preset's numbers)
        architecture  the fields of ModelConfig, and d_k
        parameters    total, embedding, encoder, decoder, final_norm; encoder_layer and decoder_layer, by sub-layer
        recipe        the fields of TrainingConfig, preset, peak_learning_rate, target_tokens
        flops         source_tokens, target_tokens (of a sentence pair); encode, decode, project, forward, training (per
                      target token); whole_training
        memory        bytes: weights_fp32, weights_bf16, training_state, checkpoint, cache_per_token (fp32)
        run           for a trained model only: source, target, data (name, lines, sha256), from, command, begun, versions,
                      updates, minutes, and before, best, last, average: validations as logged in metrics.jsonl, or null

    Raises UsageError for an unknown preset or format, and for a missing or damaged model.
    """
    check_format(form)
    if preset:
        recipe = find_preset(preset)
        facts = {"name": f"preset {preset}", "source": recipe.source, "vocabulary_exact": False}
        facts |= _facts(preset, recipe, recipe.training.vocab_size)
    else:
        saved = SavedModel.open(model)
        found = saved.description
        facts = {"name": str(model), "vocabulary_exact": True}
        facts |= _facts(found.preset, found, found.vocabulary.size) | {"run": _run_facts(saved)}
    if form == "json":
        return json.dumps(facts) + "\n"
    parts = sections(facts, "model").items()
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
        "memory": memory(model, counts["total"]),
    }


def _run_facts(saved: SavedModel) -> Facts:
    """What config.json and metrics.jsonl record of the run, up to the checkpoint's update if this is one."""
    found = saved.description
    log = EventLog(saved.directory.metrics_path).read()
    events = [event for event in log if saved.update is None or event["step"] <= saved.update]
    scored = [{key: event[key] for key in event if key != "samples"} for event in events if "bleu" in event]
    validations = [event for event in scored if event["event"] == "validation" and event["step"]]
    averages = [event for event in scored if event["event"] == "average" and saved.update is None]
    return found.model_dump(by_alias=True, include=RUN) | {
        "versions": {"nmt": found.nmt} | found.versions,
        "updates": saved.update or max((event["step"] for event in events), default=0),
        "minutes": max((event.get("minutes", 0.0) for event in events), default=0.0),
        "before": next((event for event in scored if event["step"] == 0), None),
        "best": max(validations, key=lambda event: float(event["bleu"]), default=None),
        "last": next(reversed(validations), None),
        "average": next(reversed(averages), None),
    }


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
