"""What a run is, resolved once: the command line's request, a preset, a TOML file and the corpus make an immutable plan."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from nmt import devices
from nmt.config import EXTENT, PRESETS, RUNTIME, Preset, find_preset, fine_tuning, preset_for, read_toml, settle
from nmt.data.corpus import Corpus
from nmt.data.mixture import DataOption, Mixture, data_options
from nmt.description import LANGUAGE
from nmt.errors import UsageError
from nmt.model_directory import BEFORE
from nmt.saved_model import SavedModel
from nmt.translation.hypothesis import SearchOptions

OWN_PRESET = {"wmt14": "base", "demo": "demo"}  # by corpus; any other one's preset follows from its size


@dataclass(frozen=True)
class Request:
    """What the user asked for on the command line."""

    data: Sequence[str]
    synthetic: str | None
    source: str | None
    target: str | None
    preset: str | None
    toml: Path | None
    flags: dict[str, Any]  # by the field they set; None where not given
    origin: Path | None  # the model to fine-tune
    restart: bool
    command: str


@dataclass(frozen=True)
class Options:
    """What a request determines before any text is read."""

    request: Request
    data: tuple[DataOption, ...]
    tables: dict[str, dict[str, Any]]  # of the TOML file
    languages: tuple[str, str]  # codes of source and target
    origin: SavedModel | None
    preset: str
    recipe: Preset  # with the user's settings
    device: torch.device


@dataclass(frozen=True)
class RunPlan:
    """Everything a run is, the same on every rank."""

    preset: str
    recipe: Preset  # with the user's settings, and the device and precision that were found
    languages: tuple[str, str]
    corpora: tuple[DataOption, ...]
    data: dict[str, Any]  # each corpus's name, and the lines and digests of its splits, as in config.json
    origin: dict[str, str] | None  # the origin's corpus and the digest of its weights, as in config.json
    ranks: int
    command: str

    def identity(self) -> dict[str, Any]:
        """What config.json says about data and settings."""
        config: dict[str, Any] = {"source": self.languages[0], "target": self.languages[1], "data": self.data}
        if self.origin:
            config["from"] = self.origin
        model, training = self.recipe.model.model_dump(), self.recipe.training.model_dump()
        return config | {"model": model, "training": training, "ranks": self.ranks}

    def changes(self, started: dict[str, Any]) -> tuple[list[str], list[str]]:
        """What differs from the config.json of the run to resume: of what must be the same; and of what may change at the cost
        of the last bits.
        """
        now = self.identity()
        return _differences(_fixed(started), _fixed(now)), _differences(_runtime(started), _runtime(now))


def check(request: Request) -> Options:
    """Everything that can be decided, and refused, before any text is read. Raises UsageError."""
    if request.origin and request.preset is not None:
        raise UsageError("--preset and --from exclude each other: a trained model keeps its own settings")
    origin = SavedModel.open(request.origin) if request.origin else None
    languages, data = _languages(request, origin), data_options(request.data, request.synthetic)
    tables = read_toml(request.toml) if request.toml else {}
    if origin:
        described = origin.description
        name, own = "fine-tuning", fine_tuning(described.preset, described.model, described.training)
    else:
        name = OWN_PRESET.get(data[0].data, "tiny") if request.preset is None else request.preset
        own = find_preset(name)
    recipe = settle(own, tables, request.flags)
    _refuse_contradictions(recipe)
    if origin and (changed := _differences(_lasting(described.languages, own), _lasting(languages, recipe))):
        raise UsageError(f"--from {origin.directory.path}: {'; '.join(changed)}; a trained model keeps these")
    return Options(request, data, tables, languages, origin, name, recipe, devices.find_device(recipe.training.device))


def resolve(options: Options, mixture: Mixture, ranks: int) -> RunPlan:
    """The plan of the run on these corpora. Raises UsageError where the preset for its size cannot have the user's settings."""
    request, name, recipe = options.request, options.preset, options.recipe
    if not options.origin and request.preset is None and (len(options.data) > 1 or options.data[0].data not in OWN_PRESET):
        name = preset_for(mixture.clean(recipe.training).kept)
        recipe = settle(PRESETS[name], options.tables, request.flags)
        _refuse_contradictions(recipe)
    precision = devices.find_precision(recipe.training.precision, options.device)
    found = {"device": options.device.type, "precision": precision}
    recipe = replace(recipe, training=recipe.training.model_copy(update=found))
    data, *others = map(_identity, options.data, mixture.corpora)
    if others:
        data["others"] = others
    origin = None
    if model := options.origin:
        data["lines"][BEFORE] = model.description.data.lines.get("valid", 0)
        weights = model.weights_sha256()
        if weights is None:
            raise UsageError(f"--from {model.weights_path}: no such file, so there are no weights to start from")
        origin = {"data": model.description.data.name, "weights": weights}
    return RunPlan(name, recipe, options.languages, options.data, data, origin, ranks, request.command)


def _identity(option: DataOption, corpus: Corpus) -> dict[str, Any]:
    """What config.json says about a corpus, apart from what cleaning finds."""
    splits = corpus.splits.items()
    found: dict[str, Any] = {"name": corpus.name, "lines": {}, "sha256": {}}
    for split, text in splits:
        found["lines"][split], found["sha256"][split] = text.count, text.sha256
    if option.weight:
        found["weight"] = option.weight
    if option.synthetic:
        found["synthetic"] = True
    return found


def _refuse_contradictions(recipe: Preset) -> None:
    """Raise UsageError where the network cannot do what the training asks of it."""
    model, training = recipe.model, recipe.training
    if training.source_loss and (model.architecture, model.mask) != ("decoder-only", "causal"):
        raise UsageError(
            "source_loss: a network that sees the whole source has nothing to predict; it takes --architecture "
            "decoder-only with mask = causal"
        )
    longest = training.max_pieces, training.max_pieces + SearchOptions.extra
    if not model.can_number(*longest):
        raise UsageError(
            f"max_positions = {model.max_positions}: too few for pairs of {training.max_pieces} pieces (max_pieces), whose "
            f"translation may have {SearchOptions.extra} more; that takes {model.positions_for(*longest)}"
        )


def _languages(request: Request, origin: SavedModel | None) -> tuple[str, str]:
    """Source and target: those asked for, else those of the model to fine-tune."""
    usual = origin.description.languages if origin else ("en", "de")
    asked = (request.source, request.target)
    source, target = (own if code is None else code for code, own in zip(asked, usual, strict=True))
    for option, language in (("--source", source), ("--target", target)):
        if not re.fullmatch(LANGUAGE, language):
            raise UsageError(f"{option} {language}: not a language code; write one such as en, pt-BR or zh_Hans")
    return source, target


def _lasting(languages: tuple[str, str], recipe: Preset) -> dict[str, Any]:
    """By name, what a trained model cannot change."""
    architecture = {name: value for name, value in recipe.model.model_dump().items() if "dropout" not in name}
    return {"source": languages[0], "target": languages[1], "vocab_size": recipe.training.vocab_size} | architecture


def _fixed(config: dict[str, Any]) -> dict[str, Any]:
    """By name, everything in config.json that must not change while a run lasts."""
    identity: dict[str, Any] = {"source": config["source"], "target": config["target"]}
    data = config["data"]
    identity |= {f"the {split} text": digest[:12] for split, digest in data["sha256"].items()}
    identity["its weight"] = data.get("weight")
    for corpus in data.get("others", []):
        kind = "synthetic text" if corpus.get("synthetic") else "text"
        identity[f"the {kind} of {corpus['name']}"] = corpus["sha256"]["train"][:12]
        identity[f"the weight of {corpus['name']}"] = corpus.get("weight")
    if config.get("from"):
        identity["--from"] = f"the weights {config['from']['weights'][:12]}"
    training = {name: value for name, value in config["training"].items() if name not in RUNTIME | EXTENT}
    return identity | config["model"] | training


def _runtime(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config["training"][name] for name in sorted(RUNTIME)} | {"ranks": config["ranks"]}


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [
        f"{name} was {before.get(name, 'unset')}, now {now.get(name, 'unset')}"
        for name in before | now
        if before.get(name) != now.get(name)
    ]
