"""`nmt describe`: a preset or a trained model on one page.

`preset_facts` and `model_facts` collect the facts. JSON prints them as they are, `page` lists them under the same names.
"""

import json
import re
import textwrap
from itertools import zip_longest
from pathlib import Path
from typing import Any

from nmt.config import PRESETS, RUNTIME, ModelConfig, Preset, TrainingConfig, find_preset, fine_tuning
from nmt.event_log import EventLog
from nmt.formatting import check_format, table
from nmt.lines import clean
from nmt.saved_model import SavedModel
from nmt.sizes import TRAINING_FACTOR, flops, memory, parameters
from nmt.training.schedule import learning_rate

Facts = dict[str, Any]

TOKENS = 25  # per side of the sentence pair whose FLOPs are counted; a token of a longer one hardly costs more
NAME_WIDTH, VALUE_WIDTH = 18, 58  # columns; with indent and gap, the page is at most 80 wide
TITLES = {
    "architecture": "Architecture",
    "parameters": "Parameters",
    "recipe": "Recipe",
    "flops": "FLOPs of matrix products; from encode to training, per target token",
    "memory": "Memory in bytes, without activations",
    "run": "Run",
}


def describe(preset: str | None, model: Path, form: str) -> str:
    """Describes the preset, or without one the model directory or checkpoint folder, as text or as one JSON object:

        name, vocabulary_size, vocabulary_exact (false for a preset: the size is a maximum)
        architecture  the fields of ModelConfig, and d_k
        parameters    total, embedding, encoder, decoder, final_norm; encoder_layer and decoder_layer, by sub-layer
        recipe        the fields of TrainingConfig, preset, source (a sentence), changed (the fields that differ from the
                      preset), peak_learning_rate, target_tokens
        flops         source_tokens, target_tokens (of a sentence pair); encode, decode, project, forward, training (per
                      target token); whole_training; translate_sentence and translate_token (greedy, with a cache)
        memory        bytes: weights_fp32, weights_bf16, training_state, checkpoint, cache_per_token (fp32)
        run           for a trained model only: source, target, data (name, lines, sha256), from, command, begun, versions,
                      updates, minutes, and before, best, last, average: validations as logged in metrics.jsonl, or null

    Raises UsageError for an unknown preset or format, and for a missing or damaged model.
    """
    check_format(form)
    facts = preset_facts(preset) if preset else model_facts(model)
    return (json.dumps(facts) if form == "json" else page(facts)) + "\n"


def preset_facts(name: str) -> Facts:
    """The facts of a preset. Raises UsageError for an unknown name."""
    preset = find_preset(name)
    facts = _facts(name, preset, preset.model, preset.training, preset.training.vocab_size)
    return {"name": f"preset {name}", "vocabulary_exact": False} | facts


def model_facts(path: Path) -> Facts:
    """The facts of a model directory, or of its run up to one of its checkpoints. Raises UsageError."""
    saved = SavedModel.open(path)
    found = saved.description
    preset = fine_tuning(found.preset, found.model, found.training) if found.origin else PRESETS.get(found.preset)
    facts = _facts(found.preset, preset, found.model, found.training, found.vocabulary.size)
    return {"name": str(path), "vocabulary_exact": True} | facts | {"run": _run_facts(saved)}


def _facts(name: str, preset: Preset | None, model: ModelConfig, training: TrainingConfig, pieces: int) -> Facts:
    """The facts that presets and trained models share; `preset` is what the settings are compared with."""
    settings = model.model_dump() | training.model_dump()
    usual = preset.model.model_dump() | preset.training.model_dump() if preset else settings
    peak_update, target_tokens = min(training.warmup, training.steps), training.steps * training.tokens_per_update
    counts = parameters(model, pieces)
    full, cached = (flops(model, pieces, TOKENS, TOKENS, cached) for cached in (False, True))
    forward = sum(full.values()) // TOKENS
    return {
        "vocabulary_size": pieces,
        "architecture": model.model_dump() | {"d_k": model.d_model // model.heads},
        "parameters": counts,
        "recipe": {
            **training.model_dump(),
            "preset": name,
            "source": preset.source if preset else None,
            "changed": [key for key in settings if settings[key] != usual[key] and key not in RUNTIME],
            "peak_learning_rate": learning_rate(peak_update, model.d_model, training.warmup, training.factor),
            "target_tokens": target_tokens,
        },
        "flops": {
            "source_tokens": TOKENS,
            "target_tokens": TOKENS,
            **{part: count // TOKENS for part, count in full.items()},
            "forward": forward,
            "training": TRAINING_FACTOR * forward,
            "whole_training": TRAINING_FACTOR * forward * target_tokens,
            "translate_sentence": cached["encode"],
            "translate_token": (cached["decode"] + cached["project"]) // TOKENS,
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
    return {
        "source": found.source,
        "target": found.target,
        "data": found.data.model_dump(include={"name", "lines", "sha256"}),
        "from": found.origin.model_dump() if found.origin else None,
        "command": found.command,
        "begun": found.begun,
        "versions": {"nmt": found.nmt} | found.versions,
        "updates": saved.update or max((event["step"] for event in events), default=0),
        "minutes": max((event.get("minutes", 0.0) for event in events), default=0.0),
        "before": next((event for event in scored if event["step"] == 0), None),
        "best": max(validations, key=lambda event: float(event["bleu"]), default=None),
        "last": validations[-1] if validations else None,
        "average": averages[-1] if averages else None,
    }


def page(facts: Facts) -> str:
    """The facts as text: a section per object, a row per fact."""
    general = {name: fact for name, fact in facts.items() if name not in TITLES}
    sections = [_section(title, facts[name]) for name, title in TITLES.items() if name in facts]
    return "\n\n".join([_section("Model", general), *sections])


def _section(title: str, facts: Facts) -> str:
    rows: list[tuple[str, str]] = []
    for name, fact in facts.items():
        text = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", clean(_text(fact)))  # shortens a SHA-256
        lines = textwrap.wrap(text, VALUE_WIDTH, break_long_words=False, break_on_hyphens=False)
        rows += zip_longest([f"{name:<{NAME_WIDTH}}"], lines, fillvalue="")
    return f"{title}\n{table(rows)}"


def _text(fact: Any) -> str:
    """A JSON value as text: the parts of a list are separated by commas, those of an object by semicolons."""
    match fact:
        case dict():
            parts = {name: f"({_text(part)})" if isinstance(part, dict) else _text(part) for name, part in fact.items()}
            return "; ".join(f"{name} {part}" for name, part in parts.items())
        case list():
            return ", ".join(map(_text, fact)) or "-"
        case float():
            return f"{fact:.6g}"
    return f"{fact:,}" if type(fact) is int else "-" if fact is None else str(fact)
