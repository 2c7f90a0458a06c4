"""What a run is: settled before it begins and written to config.json, or compared with what stands there.

Rank 0 does this for all ranks, and is the only one that speaks.
"""

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sacrebleu
import sentencepiece
import torch

import nmt
from nmt import devices
from nmt.config import (
    EXTENT,
    MICRO_BATCH,
    PRESETS,
    RUNTIME,
    ModelConfig,
    Preset,
    TrainingConfig,
    find_preset,
    fine_tuning,
    preset_for,
    settle,
)
from nmt.data.cache import Cache
from nmt.data.cleaning import copies_letterless
from nmt.data.corpus import Corpus
from nmt.data.preparation import describe, learn_vocabulary, prepare_corpus
from nmt.data.vocabulary import SAMPLE, Vocabulary
from nmt.description import LANGUAGE, Description, kind_of
from nmt.errors import UsageError
from nmt.formatting import blank_lines, counted
from nmt.lines import is_blank, remove, sha256_of
from nmt.looks import unlike
from nmt.model_directory import BEFORE, WEIGHTS, ModelDirectory
from nmt.reporting import Reporter
from nmt.weights import save_weights

Text = tuple[list[str], list[str]]  # source and target lines


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    data: str
    asked_languages: tuple[str | None, str | None]  # source and target
    preset: str | None
    toml: Path | None
    flags: dict[str, Any]  # by the field they set; None where they were not given
    origin: Path | None  # the model to go on from
    restart: bool
    command: str

    def languages(self) -> tuple[str, str]:
        """Source and target: those that were asked for, else those of the model to go on from. Raises UsageError."""
        usual = ModelDirectory.containing(self.origin).describe().languages if self.origin else ("en", "de")
        source, target = (
            other if asked is None else asked for asked, other in zip(self.asked_languages, usual, strict=True)
        )
        for option, language in (("--source", source), ("--target", target)):
            if not LANGUAGE.fullmatch(language):
                raise UsageError(f"{option} {language}: no language's code; write one such as en, pt-BR or zh_Hans")
        return source, target


@dataclass(frozen=True)
class Settings:
    """What every rank must know."""

    preset: Preset
    model: ModelConfig
    training: TrainingConfig
    data: dict[str, Any]  # what the text is, as config.json has it
    copies: bool  # whether lines without a letter are copied
    languages: tuple[str, str]  # source and target
    vocabulary: bytes
    valid: Text | None
    origin: str | None  # the corpus of the model that this one began from ...
    before: Text | None  # ... and its held-out text


def presets_for(request: Request) -> tuple[dict[str, Preset], TrainingConfig]:
    """The presets that may come to be used, and the training settings (those of cleaning are the same in all).

    The origin's recipe, else the preset that is named, else the corpus's own, else those that its size decides between.
    Raises UsageError for settings that none of them can have, before any data is read.
    """
    if request.origin and request.preset is not None:
        raise UsageError("--preset and --from exclude each other: a model that was trained has its own settings")
    if request.origin:
        candidates = {"fine-tuning": Origin.read(request.origin).preset}
    else:
        own = {"wmt14": "base", "demo": "demo"}.get(request.data) if request.preset is None else request.preset
        candidates = {name: find_preset(name) for name in (["tiny", "small", "base"] if own is None else [own])}
    faults = []
    for preset in candidates.values():
        try:
            _, config = settle(preset, request.toml, request.flags)
            devices.find_precision(config.precision, devices.find_device(config.device))
            return candidates, config
        except UsageError as error:
            faults.append(error)
    raise faults[0]


@dataclass(frozen=True)
class Origin:
    """The trained model that a fine-tuning run begins from."""

    directory: ModelDirectory
    weights: Path
    told: Description
    preset: Preset

    @classmethod
    def read(cls, path: Path) -> "Origin":
        """Of a model directory, or a checkpoint folder. Raises UsageError where it is missing or damaged."""
        directory = ModelDirectory.containing(path)
        told = directory.describe()
        trained_as = PRESETS.get(told.preset)
        micro_batch_tokens = trained_as.micro_batch_tokens if trained_as else MICRO_BATCH
        return cls(directory, path / WEIGHTS, told, fine_tuning(told.model, told.training, micro_batch_tokens))

    def refuse_other(self, corpus: Corpus, model: ModelConfig, config: TrainingConfig) -> None:
        """Raises UsageError for what a trained model cannot become."""
        there = self.told.languages
        if there != (corpus.source, corpus.target):
            raise UsageError(
                f"--from {self.directory.path}: translates from {there[0]} to {there[1]}, "
                f"not from {corpus.source} to {corpus.target}"
            )
        free = {"dropout", "attention_dropout", "relu_dropout"}
        asked = model.model_dump() | {"vocab_size": config.vocab_size}
        given = self.preset.model.model_dump() | {"vocab_size": self.preset.training.vocab_size}
        if fixed := [f"{name} is {given[name]}" for name in asked if name not in free and asked[name] != given[name]]:
            raise UsageError(f"--from {self.directory.path}: in this model {', '.join(fixed)}, and stays so")


class Settler:
    """Rank 0, before a run begins or goes on."""

    def __init__(self, directory: ModelDirectory, corpus: Corpus, cache: Cache, ranks: int, reporter: Reporter) -> None:
        self.directory, self.corpus, self.cache = directory, corpus, cache
        self.ranks, self.reporter = ranks, reporter
        self.languages = (corpus.source, corpus.target)

    def settle(self, request: Request, candidates: dict[str, Preset], cleaning: TrainingConfig) -> Settings:
        """The settings of the run: a new one's directory is made, an old one's must agree with what is asked for."""
        for note in self.corpus.notes:
            self.reporter.say(note)
        kept = self.corpus.clean(cleaning).kept
        name = next(iter(candidates)) if len(candidates) == 1 else preset_for(kept)
        preset = candidates[name]
        self.reporter.say(f"{'recipe' if request.origin else 'preset'} {name}: {preset.source}")
        model, config = settle(preset, request.toml, request.flags)
        device = devices.find_device(config.device)
        precision = devices.find_precision(config.precision, device)
        config = config.model_copy(update={"device": device.type, "precision": precision})
        origin = Origin.read(request.origin) if request.origin else None
        if origin:
            if origin.directory.path.resolve() == self.directory.path.resolve():
                raise UsageError(f"--from {request.origin}: a model cannot replace itself; name another with --model")
            origin.refuse_other(self.corpus, model, config)
            if doubt := unlike(self.corpus.form, origin.told.data.form):
                self.reporter.warn(f"--data {self.corpus.name}: {doubt}")
        identity = self._describe(model, config, origin)
        if self.directory.exists() and not request.restart:
            self._compare(identity)
        else:
            vocabulary = origin.directory.read_vocabulary() if origin else self._learn(kept, config)
            weights = origin.directory.read_model(origin.weights).state_dict() if origin else {}
            before = origin.directory.read_heldout("valid") if origin else None
            prepared = prepare_corpus(self.corpus, vocabulary, config, self.cache)
            if not len(prepared.pairs):
                raise UsageError(
                    f"--data {self.corpus.name}: no training pair is left after cleaning: {prepared.report}"
                )
            identity["data"] |= describe(self.corpus, prepared)
            copies = copies_letterless(self.corpus.facts)
            if copies is None:
                copies = origin.told.data.copies_letterless if origin else True
            if not copies:
                self.reporter.say("lines without a letter: to be translated, as in the training text, and not copied")
            identity["data"]["copies_letterless"] = copies
            self._clear()  # of the old run, or of one that was stopped before it had begun
            if origin:
                self._borrow(origin, weights, before, kind_of(self.languages, model, vocabulary.sha256))
            self._begin(identity, vocabulary, name, request.command)
        return Settings(
            preset,
            model,
            config,
            identity["data"],
            self.directory.describe().data.copies_letterless,
            self.languages,
            self.directory.read_vocabulary().model,
            self.directory.read_heldout("valid"),
            origin.told.data.name if origin else None,
            self.directory.read_heldout(BEFORE),
        )

    def _describe(self, model: ModelConfig, config: TrainingConfig, origin: Origin | None) -> dict[str, Any]:
        """What config.json has of the settings and the data, and a resumed run must have again."""
        source, target = self.languages
        identity: dict[str, Any] = {"source": source, "target": target, "data": describe_data(self.corpus)}
        if origin:
            before = origin.told.data
            identity["data"]["lines"][BEFORE] = before.lines.get("valid", 0)
            try:
                weights = sha256_of(origin.weights)
            except OSError as error:
                raise UsageError(
                    f"--from {origin.weights}: {error.strerror}; it has no weights to begin from"
                ) from None
            identity["from"] = {"data": before.name, "weights": weights}
        return identity | {"model": model.model_dump(), "training": config.model_dump(), "ranks": self.ranks}

    def _learn(self, kept: int, config: TrainingConfig) -> Vocabulary:
        vocabulary = learn_vocabulary(self.corpus, config, self.cache)
        short = len(vocabulary) < config.vocab_size
        fewer = f" instead of {config.vocab_size:,}: the corpus fills no more" if short else ""
        self.reporter.say(
            f"vocabulary: {counted(len(vocabulary), 'piece')}{fewer}, learned from {counted(min(kept, SAMPLE), 'pair')}"
        )
        return vocabulary

    def _clear(self) -> None:
        """Delete a run's own files, and nothing else."""
        for path in self.directory.files():
            if path.is_symlink():
                self.reporter.say(f"{path}: a link, which is removed; what it leads to, {path.resolve()}, stays")
            remove(path)

    def _borrow(self, origin: Origin, weights: dict[str, torch.Tensor], before: Text | None, kind: str) -> None:
        """Take over the origin's weights and held-out text too, so that the directory is whole from the beginning."""
        save_weights(self.directory.weights_path, weights, kind)
        if before:
            self.directory.write_heldout(BEFORE, self.languages, list(zip(*before, strict=True)))
        self.reporter.say(f"from {origin.directory.path}: its vocabulary and weights, a fresh optimiser")

    def _begin(self, identity: dict[str, Any], vocabulary: Vocabulary, preset: str, command: str) -> None:
        """Write vocabulary and held-out text, and config.json last, which makes the directory a run's."""
        vocabulary.save(self.directory.tokenizer_path)
        for split in ("valid", "test"):
            if (text := getattr(self.corpus, split)) and text.count:
                self.directory.write_heldout(split, self.languages, text)
                if blank := [number for number, pair in enumerate(text, 1) if any(map(is_blank, pair))]:
                    self.reporter.warn(
                        f"the {split} text: {blank_lines(blank, text.count)}, on one side or both; BLEU counts them too"
                    )
        self.directory.write_config(
            {
                "nmt": nmt.__version__,
                "begun": datetime.now(UTC).isoformat(timespec="seconds"),
                "command": command,
                "preset": preset,
            }
            | identity
            | {
                "vocabulary": {"size": len(vocabulary), "sha256": vocabulary.sha256},
                "versions": {
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                    "sentencepiece": sentencepiece.__version__,
                    "sacrebleu": sacrebleu.__version__,
                },
            }
        )

    def _compare(self, identity: dict[str, Any]) -> None:
        """Raises UsageError with all that differs from the run in the directory, where anything that matters does."""
        stored = self.directory.read_config()
        before, now = _flat(stored), _flat(identity)
        differences = [
            f"{name} was {before.get(name, 'unset')}, now {now.get(name, 'unset')}"
            for name in before | now
            if before.get(name) != now.get(name)
        ]
        if differences:
            raise UsageError(
                f"{self.directory.path} holds another run: " + "; ".join(differences) + ". "
                "Name another directory with --model, give the settings it had, or discard it with --restart"
            )
        changed = {name: (stored["training"].get(name), identity["training"][name]) for name in sorted(RUNTIME)}
        changed["ranks"] = stored.get("ranks", 1), self.ranks
        for name, (old, new) in changed.items():
            if old != new:
                self.reporter.say(f"{name} was {old}, now {new}: the same updates, but not to the last bit")
        runtime = {"training": identity["training"], "ranks": self.ranks}
        self.directory.write_config({key: value for key, value in stored.items() if key != "format"} | runtime)


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """By name, all of config.json that must not change while a run lasts."""
    identity: dict[str, Any] = {"source": config["source"], "target": config["target"]}
    identity |= {f"the {split} text": digest[:12] for split, digest in config["data"]["sha256"].items()}
    if "from" in config:
        identity["--from"] = f"the weights {config['from']['weights'][:12]}"
    identity |= config["model"]
    return identity | {name: value for name, value in config["training"].items() if name not in RUNTIME | EXTENT}


def describe_data(corpus: Corpus) -> dict[str, Any]:
    """Name, lines and digests of the text, as config.json has them."""
    splits = {name: getattr(corpus, name) for name in ("train", "valid", "test")}
    return {
        "name": corpus.name,
        "lines": {name: split.count for name, split in splits.items() if split},
        "sha256": {name: split.sha256 for name, split in splits.items() if split},
    }
