"""A training run from settings to model directory: the one place that composes all the rooms."""

import hashlib
import platform
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sacrebleu
import sentencepiece
import torch

import nmt
from nmt import devices
from nmt.config import EXTENT, RUNTIME, ModelConfig, TrainingConfig, find_preset, preset_for, settle
from nmt.data import corpus as corpora
from nmt.data.batching import Plan
from nmt.data.corpus import CleaningReport, Corpus, usable
from nmt.data.prepared import prepare
from nmt.data.vocabulary import SAMPLE, Vocabulary, learn
from nmt.errors import NmtError, UsageError
from nmt.lines import is_blank
from nmt.model.transformer import Transformer
from nmt.model_directory import ModelDirectory
from nmt.reporting import Reporter, duration, table
from nmt.session import Session, write_average
from nmt.training import checkpoint
from nmt.training.trainer import Trainer
from nmt.validation import Validator


class Interrupted(NmtError):
    """A signal asked the run to stop; all is saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


def train(
    path: Path,
    data: str,
    languages: tuple[str, str],
    preset: str | None,
    toml: Path | None,
    flags: dict[str, Any],
    restart: bool,
    command: str,
    reporter: Reporter,
) -> None:
    """Train into the model directory, or go on with the run that is there. Raises NmtError and UsageError."""
    directory = ModelDirectory(path)
    candidates, config = _check(data, preset, toml, flags)
    with directory.locked():
        started = time.perf_counter()
        corpus = corpora.load(data, *languages)
        for note in corpus.notes:
            reporter.say(note)
        kept = sum(1 for _ in usable(corpus.train, config, CleaningReport()))
        name = candidates[0] if len(candidates) == 1 else preset_for(kept)
        reporter.say(f"preset {name}: {find_preset(name).source}")
        run = _Run(directory, corpus, *settle(find_preset(name), toml, flags), reporter)
        if directory.exists() and not restart:
            run.check_identity()
        else:
            _clear(directory)  # of the old run, or of one that was stopped before it had begun
            run.begin(name, command, kept)
        run.go_on(started)


def _check(data: str, preset: str | None, toml: Path | None, flags: dict[str, Any]) -> tuple[list[str], TrainingConfig]:
    """The presets that may come to be used, and the training settings (those of cleaning are the same in all).

    The one named, else the corpus's own, else those that its size decides between. Raises UsageError for settings that
    none of them can have, before any data is read.
    """
    own = preset or {"wmt14": "base", "demo": "demo"}.get(data)
    candidates = [own] if own else ["tiny", "base"]
    faults = []
    for name in candidates:
        try:
            _, config = settle(find_preset(name), toml, flags)
            devices.find_precision(config.precision, devices.find_device(config.device))
            return candidates, config
        except UsageError as error:
            faults.append(error)
    raise faults[0]


def _clear(directory: ModelDirectory) -> None:
    """Delete a run's own files, and nothing else."""
    for path in directory.files():
        path.with_name(path.name + ".part").unlink(missing_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class _Run:
    """One call of `nmt train` on one directory."""

    def __init__(
        self,
        directory: ModelDirectory,
        corpus: Corpus,
        model_config: ModelConfig,
        config: TrainingConfig,
        reporter: Reporter,
    ) -> None:
        self.directory, self.corpus, self.reporter = directory, corpus, reporter
        self.device = devices.find_device(config.device)
        self.precision = devices.find_precision(config.precision, self.device)
        self.model_config = model_config
        self.config = config.model_copy(update={"device": self.device.type, "precision": self.precision})
        self.languages = (corpus.source, corpus.target)

    def begin(self, preset: str, command: str, kept: int) -> None:
        """Make the directory of a new run: vocabulary, held-out text, and config.json last, which makes it a run."""
        corpus, config = self.corpus, self.config
        vocabulary = learn(usable(corpus.train, config, CleaningReport()), kept, config.vocab_size, config.seed)
        short = len(vocabulary) < config.vocab_size
        fewer = f" instead of {config.vocab_size:,}: the corpus fills no more" if short else ""
        self.reporter.say(f"vocabulary: {len(vocabulary):,} pieces{fewer}, learned from {min(kept, SAMPLE):,} pairs")
        vocabulary.save(self.directory.tokenizer_path)
        for split in ("valid", "test"):
            if (text := getattr(corpus, split)) and text.count:
                self.directory.write_heldout(split, self.languages, text)
        self.directory.write_config(
            {
                "nmt": nmt.__version__,
                "begun": datetime.now(UTC).isoformat(timespec="seconds"),
                "command": command,
                "preset": preset,
                "source": corpus.source,
                "target": corpus.target,
                "data": _describe_data(corpus),
                "vocabulary": {"size": len(vocabulary), "sha256": hashlib.sha256(vocabulary.model).hexdigest()},
                "model": self.model_config.model_dump(),
                "training": self.config.model_dump(),
                "versions": {
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                    "sentencepiece": sentencepiece.__version__,
                    "sacrebleu": sacrebleu.__version__,
                },
            }
        )

    def check_identity(self) -> None:
        """Raises UsageError with all that differs from the run in the directory, where anything that matters does."""
        stored = self.directory.read_config()
        now = self._identity(
            self.languages, _describe_data(self.corpus), self.model_config.model_dump(), self.config.model_dump()
        )
        before = self._identity(
            (stored["source"], stored["target"]), stored["data"], stored["model"], stored["training"]
        )
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
        for name in sorted(RUNTIME):
            old, new = stored["training"][name], getattr(self.config, name)
            if old != new:
                self.reporter.say(f"{name} was {old}, now {new}: the same updates, but not to the last bit")
        self.directory.write_config(
            {key: value for key, value in stored.items() if key != "format"} | {"training": self.config.model_dump()}
        )

    @staticmethod
    def _identity(
        languages: tuple[str, str], data: dict[str, Any], model: dict[str, Any], training: dict[str, Any]
    ) -> dict[str, Any]:
        identity: dict[str, Any] = {"source": languages[0], "target": languages[1]}
        identity |= {f"the {split} text": digest[:12] for split, digest in data["sha256"].items()}
        identity |= model
        return identity | {name: value for name, value in training.items() if name not in RUNTIME | EXTENT}

    def go_on(self, started: float) -> None:
        """Train from the newest checkpoint, or from the beginning, to the last update."""
        config, reporter = self.config, self.reporter
        vocabulary = self.directory.read_vocabulary()
        report = CleaningReport()
        pairs = prepare(usable(self.corpus.train, config, report), vocabulary, config, report)
        reporter.say(f"{self.corpus.name}: {report}")
        if not len(pairs):
            raise UsageError(f"--data {self.corpus.name}: no training pair is left after cleaning")
        torch.manual_seed(config.seed)
        model = Transformer(self.model_config, len(vocabulary)).to(self.device)
        trainer = Trainer(
            model, Plan(pairs, config.tokens_per_update, config.seed), config, self.device, self.precision
        )
        if newest := checkpoint.newest(self.directory.checkpoints):
            trainer.progress = checkpoint.restore(newest, model, trainer.optimizer)
        progress = trainer.progress
        self.directory.cut_log(progress.update, [update for update, _ in progress.validations])
        if progress.update >= config.steps and not trainer.validation_due():
            write_average(self.directory, progress, config.average)  # of as many checkpoints as are asked for now
            reporter.say(
                f"{self.directory.path}: this run is finished ({progress.update:,} updates); more with --steps"
            )
            return
        reporter.say(
            f"model: {model.count_parameters():,} parameters on {devices.describe(self.device, self.precision)}; "
            f"seed {config.seed}; checkpoints take up to {checkpoint.size(model, config.average) / 2**20:,.0f} MiB"
        )
        tokens = int(trainer.plan.targets.sum())
        reporter.say(
            f"updates: {config.steps:,} of about {config.tokens_per_update:,} target tokens; "
            f"an epoch has {tokens:,} tokens, or {max(1, round(tokens / config.tokens_per_update)):,} updates"
        )
        if progress.update:
            last = "" if progress.last_loss is None else f", last loss {progress.last_loss:.3f}"
            reporter.say(f"going on after update {progress.update:,}, rate {trainer.learning_rate():.2e}{last}")
        with _signals(reporter) as signals, reporter:
            session = Session(self.directory, config, trainer, self._validator(vocabulary), reporter, started)
            trainer.run(session.save, session.validate, session.log, lambda: bool(signals))
        if progress.update < config.steps:
            raise Interrupted(
                f"stopped after update {progress.update:,} and saved; the same command goes on from there", signals[0]
            )
        here = self.directory.path
        steps = [
            ("score the held-out test set", f"nmt score -m {here}"),
            ("translate", f"nmt translate -m {here} FILE"),
        ]
        reporter.say(f"done after {duration(60 * progress.minutes)}. Next:\n{table(steps)}")

    def _validator(self, vocabulary: Vocabulary) -> Validator | None:
        text = self.directory.read_heldout("valid")
        if text is None or all(is_blank(source) or is_blank(target) for source, target in zip(*text, strict=True)):
            return None
        return Validator(*text, vocabulary, self.config, self.precision)


def _describe_data(corpus: Corpus) -> dict[str, Any]:
    splits = {name: getattr(corpus, name) for name in ("train", "valid", "test")}
    return {
        "name": corpus.name,
        "lines": {name: split.count for name, split in splits.items() if split},
        "sha256": {name: split.sha256 for name, split in splits.items() if split},
    }


@contextmanager
def _signals(reporter: Reporter) -> Iterator[list[int]]:
    """Signals that asked the run to stop, noted so that an update can be finished. A second one stops at once."""
    noted: list[int] = []

    def note(number: int, _frame: Any) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)
        reporter.say("stopping after this update; once more to stop at once, and lose what is not saved")

    previous: dict[int, Any] = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
