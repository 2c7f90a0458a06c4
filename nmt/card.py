"""`nmt describe`: a preset, or the model of a directory, on one page: what it is made of, its recipe, what it takes.

`of_preset` and `of_model` gather the facts; JSON is these as they are, and text says them to a person.
"""

import json
import math
import textwrap
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

from nmt.config import MICRO_BATCH, PRESETS, RUNTIME, ModelConfig, Preset, TrainingConfig, find_preset, fine_tuning
from nmt.description import Description
from nmt.errors import UsageError
from nmt.formatting import check_format, counted, duration, format_perplexity
from nmt.lines import clean, parse_json
from nmt.model_directory import PROGRESS, ModelDirectory, saved
from nmt.sizes import TRAINING, attention, feed_forward, flops, layer_norm, memory, parameters
from nmt.training.schedule import learning_rate

Facts = dict[str, Any]
Rows = list[tuple[str, str]]  # (label, value)

TOKENS = 25  # of a sentence, on either side; FLOPs a token hardly depend on it while attention is a hundredth of them
WIDTH, LABEL = 80, 18  # columns of the page, and of what stands before a value
NUMBERS, WORDS = ">20", "<24"  # how a table's columns are set
VALIDATIONS = {"before": "at the beginning", "best": "best checkpoint", "last": "last", "average": "weights to use"}
PARTS = {"encode": "encode", "decode": "decode", "project": "project to V", "forward": "together"}
SUBLAYERS = {
    "self-attention": "self_attention",
    "cross-attention": "cross_attention",
    "feed-forward": "feed_forward",
    "layer norms": "layer_norms",
}
DROPOUTS = {
    "dropout": "sub-layer outputs and embedding sums",
    "attention_dropout": "attention weights",
    "relu_dropout": "ReLU outputs",
}
NORMS = {
    "post": "post: LayerNorm(x + Dropout(Sublayer(x)))",
    "pre": "pre: x + Dropout(Sublayer(LayerNorm(x))), and one after each stack",
}


def describe(preset: str | None, model: Path, form: str) -> str:
    """What is known of the preset of that name; where none is named, of the model of a directory or checkpoint folder.

    As text, or as one JSON object:
        name, vocabulary_size, vocabulary_exact (false of a preset: that many pieces at most)
        architecture  the fields of ModelConfig, and d_k
        parameters    total, embedding, encoder, decoder, final_norm; encoder_layer and decoder_layer, by sub-layer
        recipe        the fields of TrainingConfig, preset, source (a sentence), changed (the fields that are not as in the
                      preset), peak_learning_rate, target_tokens
        flops         source_tokens, target_tokens (of a sentence pair); encode, decode, project, forward, training (for each
                      target token); whole_training; translate_sentence and translate_token (greedy, with a cache)
        memory        bytes: weights_fp32, weights_bf16, training_state, checkpoint, cache_per_token (fp32)
        comparison    of base alone: base and gpt2_small, with the same keys (context null: any length)
        run           of a trained model alone: source, target, data (name, lines, sha256), from, command, begun, versions,
                      updates, minutes, and before, best, last, average: validations as metrics.jsonl has them, or null
    Raises UsageError for an unknown preset or format, and for a model that is missing or damaged.
    """
    check_format(form)
    if preset is not None:
        return tell(of_preset(preset), form)
    return tell(of_model(model), form)


def tell(facts: Facts, form: str) -> str:
    return (json.dumps(facts) if form == "json" else "\n\n".join(page(facts))) + "\n"


def of_preset(name: str) -> Facts:
    """The facts of a preset. Raises UsageError with the nearest name."""
    preset = find_preset(name)
    size = preset.training.vocab_size
    facts = _facts(f"preset {name}", name, preset, preset.model, preset.training, size) | {"vocabulary_exact": False}
    if name == "base":
        facts["comparison"] = compare(preset.model, size, facts["parameters"]["total"])
    return facts


def of_model(path: Path) -> Facts:
    """The facts of a model directory, or of the run up to one of its checkpoints. Raises UsageError."""
    directory = ModelDirectory.containing(path)
    told = directory.describe()
    tuned = fine_tuning(told.model, told.training, MICRO_BATCH) if told.origin else None
    preset = tuned or PRESETS.get(told.preset)
    facts = _facts(str(path), told.preset, preset, told.model, told.training, len(directory.read_vocabulary()))
    return facts | {"vocabulary_exact": True, "run": _run(directory, told, _last_update(directory, path))}


def _facts(
    name: str, preset_name: str, preset: Preset | None, model: ModelConfig, training: TrainingConfig, size: int
) -> Facts:
    """What presets and trained models have in common."""
    counted = parameters(model, size)
    settings = model.model_dump() | training.model_dump()
    usual = preset.model.model_dump() | preset.training.model_dump() if preset else settings
    peak = learning_rate(min(training.warmup, training.steps), model.d_model, training.warmup, training.factor)
    tokens = training.steps * training.tokens_per_update
    at_once, step_by_step = (flops(model, size, TOKENS, TOKENS, cached) for cached in (False, True))
    forward = at_once.total // TOKENS  # without a remainder, like the parts: each is so much a token
    return {
        "name": name,
        "vocabulary_size": size,
        "architecture": model.model_dump() | {"d_k": model.d_model // model.heads},
        "parameters": {"total": counted.total} | asdict(counted),
        "recipe": training.model_dump()
        | {
            "preset": preset_name,
            "source": preset.source if preset else None,
            "changed": [key for key in settings if settings[key] != usual[key] and key not in RUNTIME],
            "peak_learning_rate": peak,
            "target_tokens": tokens,
        },
        "flops": {"source_tokens": TOKENS, "target_tokens": TOKENS}
        | {part: count // TOKENS for part, count in asdict(at_once).items()}
        | {
            "forward": forward,
            "training": TRAINING * forward,
            "whole_training": TRAINING * forward * tokens,
            "translate_sentence": step_by_step.encode,
            "translate_token": (step_by_step.decode + step_by_step.project) // TOKENS,
        },
        "memory": memory(model, counted.total),
    }


def _last_update(directory: ModelDirectory, path: Path) -> int | None:
    """The update of a checkpoint folder, None of a model directory. Raises UsageError where it cannot be read."""
    if directory.path == path:
        return None
    try:
        return int(parse_json((path / PROGRESS).read_bytes())["update"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise UsageError(f"{path / PROGRESS}: is damaged ({type(error).__name__}); name another checkpoint") from None


def _run(directory: ModelDirectory, told: Description, until: int | None) -> Facts:
    """What the directory tells of its run, up to this update where there is one."""
    events = [event for event in directory.events() if sound(event) and (until is None or event["step"] <= until)]
    updates = [event["step"] for event in events] + saved(directory.checkpoints)
    scored = [{key: event[key] for key in event if key != "samples"} for event in events if "bleu" in event]
    trained = [event for event in scored if event["event"] == "validation" and event["step"]]
    average = [event for event in scored if event["event"] == "average" and until is None]
    return {
        "source": told.source,
        "target": told.target,
        "data": told.data.model_dump(include={"name", "lines", "sha256"}),
        "from": told.origin.model_dump() if told.origin else None,
        "command": told.command,
        "begun": told.begun,
        "versions": {"nmt": told.nmt} | told.versions,
        "updates": until if until is not None else max(updates, default=0),
        "minutes": max((event["minutes"] for event in events if "minutes" in event), default=0.0),
        "before": next((event for event in scored if not event["step"]), None),
        "best": max(trained, key=lambda event: float(event["bleu"]), default=None),
        "last": trained[-1] if trained else None,
        "average": average[-1] if average else None,
    }


def sound(event: Facts) -> bool:
    """Whether all that is told of a line of metrics.jsonl is in it, and can be: somebody may have written into the file."""
    try:
        numbers, words = [event["step"], event.get("minutes", 0)], [event["event"]]
        if "bleu" in event:
            numbers += [event["bleu"], event["perplexity"], event["lines"], event["beam"]]
            words += [event["signature"], validation(event)]
        return all(map(math.isfinite, numbers)) and all(isinstance(word, str) for word in words)
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def compare(config: ModelConfig, vocabulary_size: int, total: int) -> dict[str, Facts]:
    """The paper's base model beside GPT-2 small, which has the same parts in another arrangement.

    From "Language Models are Unsupervised Multitask Learners" (Radford et al. 2019), section 2.3, and the model released
    with it (hparams.json; src/model.py), whose sizes give its parameters.
    """
    layers, d_model, d_ff, pieces, positions = 12, 768, 3_072, 50_257, 1_024
    layer = attention(d_model) + feed_forward(d_model, d_ff) + 2 * layer_norm(d_model)
    return {
        "base": {
            "parameters": total,
            "layers": 2 * config.layers,
            "d_model": config.d_model,
            "heads": config.heads,
            "d_ff": config.d_ff,
            "vocabulary": vocabulary_size,
            "context": None,
            "pieces": "BPE of two languages",
            "stacks": f"{config.layers} encoder, {config.layers} decoder",
            "positions": "sines and cosines",
            "LayerNorm": "after each sub-layer",
            "activation": "ReLU",
            "initialisation": "Xavier",
        },
        "gpt2_small": {
            "parameters": (pieces + positions) * d_model + layers * layer + layer_norm(d_model),
            "layers": layers,
            "d_model": d_model,
            "heads": 12,
            "d_ff": d_ff,
            "vocabulary": pieces,
            "context": positions,
            "pieces": "byte-level BPE",
            "stacks": "decoder alone, no cross-attention",
            "positions": "learned",
            "LayerNorm": "before each, one more at the end",
            "activation": "GELU",
            "initialisation": "N residual layers scaled by 1/sqrt(N)",
        },
    }


def page(facts: Facts) -> list[str]:
    """The facts as text, a section each."""
    sections = [
        section(facts["name"], architecture_rows(facts)),
        section("Recipe", recipe_rows(facts["recipe"])),
        parameter_table(facts["parameters"], facts["architecture"]["layers"]),
        flops_table(facts["flops"]),
        section("Memory, activations not counted", memory_rows(facts["memory"])),
    ]
    if "run" in facts:
        sections.insert(1, section("Run", run_rows(facts["run"], facts["recipe"]["steps"])))
    if "comparison" in facts:
        ours, theirs = facts["comparison"].values()
        rows = [(f"  {key}", told(ours[key] or "any length"), told(theirs[key])) for key in ours]
        sections.append(table([("Beside GPT-2", "base (2017)", "GPT-2 small (2019)"), *rows], WORDS))
    return sections


def section(title: str, rows: Rows) -> str:
    """A heading, and its rows below."""
    return f"{told(title)}\n{set_rows(rows)}"


def set_rows(rows: Rows) -> str:
    """A label and its value a row, wrapped."""
    lines = []
    for label, value in rows:
        wrapped = textwrap.wrap(told(value), WIDTH - LABEL, break_long_words=False, break_on_hyphens=False)
        lines += [f"{head:<{LABEL}}{line}" for head, line in zip_longest([f"  {label}"], wrapped, fillvalue="")]
    return "\n".join(lines)


def table(rows: list[tuple[str, ...]], column: str) -> str:
    """A label and its values a row, in columns that are set so."""
    return "\n".join(f"{row[0]:<{LABEL}}{''.join(format(value, column) for value in row[1:])}".rstrip() for row in rows)


def told(value: int | str | None) -> str:
    """A count with its thousands apart, words on one line (a file's name may be neither one nor UTF-8), a dash for None."""
    return f"{value:,}" if isinstance(value, int) else clean(value or "-").encode("utf-8", "replace").decode()


def architecture_rows(facts: Facts) -> Rows:
    made = facts["architecture"]
    at_most = "" if facts["vocabulary_exact"] else " at most"
    return [
        ("layers", f"{made['layers']} in the encoder, {made['layers']} in the decoder"),
        ("d_model", told(made["d_model"])),
        ("heads", f"{made['heads']}, each of d_k = d_v = {made['d_k']}"),
        ("d_ff", f"{made['d_ff']:,}, ReLU"),
        ("norm", NORMS[made["norm"]]),
        ("dropout", ", ".join(f"{made[name]} on {what}" for name, what in DROPOUTS.items() if made[name]) or "none"),
        ("vocabulary", f"{facts['vocabulary_size']:,} pieces{at_most}; one matrix for source, target, output"),
    ]


def recipe_rows(recipe: Facts) -> Rows:
    steps, tokens = recipe["steps"], recipe["tokens_per_update"]
    patience = counted(recipe["patience"] or 0, "validation")
    sooner = f"; sooner after {patience} without a better BLEU" if recipe["patience"] else ""
    warmup = recipe["warmup"]
    falls = ", then down as u^-0.5" if warmup < steps else ""
    adam = "beta1 {adam_beta1}, beta2 {adam_beta2}, epsilon {adam_epsilon}; label smoothing {label_smoothing}"
    rows = [
        ("preset", f"{recipe['preset']}: {recipe['source']}" if recipe["source"] else recipe["preset"]),
        ("changed", ", ".join(recipe["changed"])),
        ("updates", f"{steps:,} of about {tokens:,} target tokens, {recipe['target_tokens']:,} in all{sooner}"),
        ("learning rate", f"up to {recipe['peak_learning_rate']:.2e} at update {min(warmup, steps):,}{falls}"),
        ("Adam", adam.format_map(recipe)),
        (
            "average",
            f"of {counted(recipe['average'], 'checkpoint')}, {counted(recipe['validate_every'], 'update')} apart",
        ),
    ]
    return [(label, value) for label, value in rows if value]


def parameter_table(counts: Facts, layers: int) -> str:
    """Of one layer by sub-layer, of the stacks, and of all."""
    encoder, decoder = counts["encoder_layer"], counts["decoder_layer"]
    rows: list[tuple[str, ...]] = [("Parameters", "encoder", "decoder", "shared")]
    for name, part in SUBLAYERS.items():
        rows.append((f"  {name}", told(encoder[part] or None), told(decoder[part])))
    rows.append(("  one layer", *(told(sum(layer.values())) for layer in (encoder, decoder))))
    if final := counts["final_norm"]:
        rows.append(("  final norm", told(final), told(final)))
    rows.append((f"  {layers} layers", told(counts["encoder"]), told(counts["decoder"])))
    rows.append(("  embedding", "", "", told(counts["embedding"])))
    rows.append(("  total", "", "", told(counts["total"])))
    return table(rows, NUMBERS)


def flops_table(counts: Facts) -> str:
    """By part of the model, for a target token; then of all training, and of translating."""
    rows: list[tuple[str, ...]] = [("FLOPs a token", "forward", f"training (x{TRAINING})")]
    rows += [(f"  {name}", told(counts[part]), told(TRAINING * counts[part])) for part, name in PARTS.items()]
    lengths = f"{counts['source_tokens']} source and {counts['target_tokens']} target tokens"
    sentence, token = counts["translate_sentence"], counts["translate_token"]
    rest = [
        ("counted", f"matrix products, in a pair of {lengths}"),
        ("all training", f"{counts['whole_training']:.2e}"),
        ("translating", f"{sentence:,} a sentence, then {token:,} a token (greedy)"),
    ]
    return f"{table(rows, NUMBERS)}\n{set_rows(rest)}"


def memory_rows(sizes: Facts) -> Rows:
    mib = {name: f"{size / 2**20:,.1f} MiB" for name, size in sizes.items()}
    return [
        ("weights", f"{mib['weights_fp32']} in fp32, {mib['weights_bf16']} in bf16"),
        ("training state", f"{mib['training_state']}: weights, gradients, Adam's two moments, all in fp32"),
        ("checkpoint", f"{mib['checkpoint']} on disk: weights and moments"),
        ("cache", f"{sizes['cache_per_token']:,} bytes a token, source or target: keys and values, fp32"),
    ]


def run_rows(run: Facts, steps: int) -> Rows:
    data, origin = run["data"], run["from"]
    counts = ", ".join(f"{data['lines'][split]:,} {split}" for split in data["sha256"])
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    validations = [(label, run[name]) for name, label in VALIDATIONS.items() if run[name]]
    rows = [
        ("data", f"{data['name']}, {run['source']} to {run['target']}; lines: {counts}"),
        ("SHA-256", ", ".join(f"{split} {digest[:12]}" for split, digest in data["sha256"].items())),
        ("from", f"a model of {origin['data']}, weights {origin['weights'][:12]}" if origin is not None else ""),
        ("command", run["command"]),
        ("begun", f"{run['begun']} with {versions}"),
        ("updates", f"{run['updates']:,} of {steps:,}, in {duration(60 * run['minutes'])}"),
        ("validation", "" if validations else "none of its own text is logged"),
        *((label, validation(event)) for label, event in validations),
        *(
            ("BLEU", f"of {event['lines']:,} validation lines, beam {event['beam']}, {event['signature']}")
            for _, event in validations[-1:]
        ),
    ]
    return [(label, value) for label, value in rows if value]


def validation(event: Facts) -> str:
    """BLEU and perplexity, and after fine-tuning those on the old text."""
    said = f"{scores(event)} at update {event['step']:,}"
    return f"{said}; on the old {old['name']} {scores(old)}" if (old := event.get("before")) else said


def scores(event: Facts) -> str:
    return f"BLEU {event['bleu']:.2f}, perplexity {format_perplexity(event['perplexity'])}"
