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
from nmt.data.vocabulary import SAMPLE, learn
from nmt.errors import NmtError, UsageError
from nmt.model.transformer import Transformer
from nmt.model_directory import ModelDirectory
from nmt.reporting import Reporter, duration, table
from nmt.training import checkpoint
from nmt.training.trainer import Interval, Trainer
from nmt.validation import Validation, Validator

ESTIMATE_AFTER = 20  # updates
A_DAY = 86_400.0
LINE_EVERY = 100  # updates, where there is no progress bar
WORSE = 1.2  # times the loss before an interruption: something is amiss


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
    _, config = settle(find_preset(preset or "base"), toml, flags)
    devices.find_device(config.device)  # a mistake in the settings shows before any data is read
    with directory.locked():
        started = time.perf_counter()
        corpus = corpora.load(data, *languages)
        for note in corpus.notes:
            reporter.say(note)
        name, model_config, config = _choose(corpus, data, preset, toml, flags)
        reporter.say(f"preset {name}: {find_preset(name).source}")
        run = _Run(directory, corpus, model_config, config, reporter)
        if directory.exists() and not restart:
            run.check_identity()
        else:
            _clear(directory)  # of the old run, or of one that was stopped before it had begun
            run.begin(name, command)
        run.go_on(started)


def _choose(
    corpus: Corpus, data: str, preset: str | None, toml: Path | None, flags: dict[str, Any]
) -> tuple[str, ModelConfig, TrainingConfig]:
    """Preset, model and training settings; the preset chosen by the pairs that cleaning keeps, where none is named."""
    if preset is None:
        preset = {"wmt14": "base", "demo": "demo"}.get(data)
    if preset is None:
        _, config = settle(find_preset("base"), toml, flags)
        preset = preset_for(sum(1 for _ in usable(corpus.train, config, CleaningReport())))
    return preset, *settle(find_preset(preset), toml, flags)


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
        self.model_config, self.config = model_config, config
        self.device = devices.find_device(config.device)
        self.precision = devices.find_precision(config.precision, self.device)
        self.languages = (corpus.source, corpus.target)

    def begin(self, preset: str, command: str) -> None:
        """Make the directory of a new run: vocabulary, held-out text, and config.json last, which makes it a run."""
        corpus, config = self.corpus, self.config
        pairs = usable(corpus.train, config, CleaningReport())
        vocabulary = learn(pairs, corpus.train.count, config.vocab_size, config.seed)
        sample = min(corpus.train.count, SAMPLE)
        fewer = (
            f" instead of {config.vocab_size:,}: the corpus fills no more"
            if len(vocabulary) < config.vocab_size
            else ""
        )
        self.reporter.say(f"vocabulary: {len(vocabulary):,} pieces{fewer}, learned from {sample:,} pairs")
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
            self._write_average(progress)  # of as many checkpoints as are asked for now
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
        text = self.directory.read_heldout("valid")
        validator = Validator(*text, vocabulary, config, self.precision) if text else None
        with _signals() as signals:
            self._train(trainer, validator, signals, started)
        if progress.update < config.steps:
            raise Interrupted(
                f"stopped after update {progress.update:,} and saved; the same command goes on from there", signals[0]
            )
        reporter.say(
            f"done after {duration(time.perf_counter() - started)}. Next:\n"
            + table(
                [
                    ("score the held-out test set", f"nmt score -m {self.directory.path}"),
                    ("translate", f"nmt translate -m {self.directory.path} FILE"),
                ]
            )
        )

    @staticmethod
    def _validate(validator: Validator | None, model: Transformer) -> Validation | str:
        """What validation found, or why it found nothing: a checkpoint is safe, and training worth more than a score."""
        if validator is None:
            return "no validation text"
        try:
            return validator.validate(model)
        except Exception as error:  # out of memory, say
            return f"validation failed ({type(error).__name__}: {error})"

    def _write_average(self, progress: checkpoint.Progress) -> None:
        """The weights to use: the mean of the last validated checkpoints that are still there."""
        there = checkpoint.saved(self.directory.checkpoints)
        last = [update for update in checkpoint.averaged(progress, self.config.average) if update in there]
        folders = [checkpoint.path_of(self.directory.checkpoints, update) for update in last]
        checkpoint.save_weights(self.directory.weights_path, checkpoint.average(folders))

    def _train(self, trainer: Trainer, validator: Validator | None, signals: list[int], started: float) -> None:
        progress, config, reporter, directory = trainer.progress, self.config, self.reporter, self.directory
        resumed_at, loss_before, since = progress.update, progress.last_loss, time.perf_counter()
        with reporter:
            task = reporter.bar.add_task("training", total=config.steps, completed=progress.update, status="")

            def save() -> None:
                checkpoint.save(directory.checkpoints, trainer.model, trainer.optimizer, progress)
                if not progress.validations:  # so that a run stopped early can be tried out
                    checkpoint.save_weights(directory.weights_path, trainer.model.state_dict())

            def validate() -> None:
                found = self._validate(validator, trainer.model)
                progress.validations.append((progress.update, found.bleu if isinstance(found, Validation) else None))
                self._write_average(progress)
                checkpoint.tidy(directory.checkpoints, progress, config.average)
                minutes = (time.perf_counter() - started) / 60
                event = found.event() if isinstance(found, Validation) else {"validation_error": found}
                directory.log({"event": "validation", "step": progress.update, "minutes": round(minutes, 2)} | event)
                # Last, so that after a sudden end what is not recorded is done again.
                checkpoint.record(checkpoint.path_of(directory.checkpoints, progress.update), progress)
                reporter.say(f"update {progress.update:,}, {minutes:.1f} min: saved, {found}")
                if isinstance(found, Validation) and found.same > 0.5 and progress.update > config.warmup:
                    reporter.warn(
                        f"{found.same:.0%} of the validation outputs are the same sentence: the model has collapsed; "
                        "start again with a longer warm-up or a lower rate (warmup, factor under [training])"
                    )

            def log(interval: Interval) -> None:
                directory.log(
                    {
                        "event": "training",
                        "step": interval.update,
                        "epoch": interval.epoch,
                        "loss": interval.loss,
                        "lr": interval.learning_rate,
                        "tokens_per_second": round(interval.tokens_per_second),
                        "tokens_per_update": round(interval.tokens_per_update),
                        "padding": round(interval.padding, 4),
                    }
                )
                nonlocal loss_before
                if loss_before and interval.loss > WORSE * loss_before:
                    reporter.warn(f"the loss is {interval.loss:.3f}, after {loss_before:.3f} before the interruption")
                loss_before = None  # only the first line after a resume is compared
                left = (config.steps - interval.update) * (time.perf_counter() - since) / (interval.update - resumed_at)
                status = f"loss {interval.loss:.3f}, {interval.tokens_per_second:,.0f} tokens/s, {duration(left)} left"
                reporter.bar.update(task, completed=interval.update, status=status)
                if not reporter.on_terminal and interval.update % LINE_EVERY == 0:
                    reporter.say(
                        f"update {interval.update:,} of {config.steps:,}: {status}, lr {interval.learning_rate:.2e}"
                    )
                if interval.update - resumed_at == ESTIMATE_AFTER:
                    reporter.say(
                        f"about {duration(left)} to the end, {config.steps - interval.update:,} updates from here"
                    )
                    if left > A_DAY:
                        reporter.warn("this is more than a day; a smaller --preset or fewer --steps train sooner")

            trainer.run(save, validate, log, lambda: bool(signals))


def _describe_data(corpus: Corpus) -> dict[str, Any]:
    splits = {name: getattr(corpus, name) for name in ("train", "valid", "test")}
    return {
        "name": corpus.name,
        "lines": {name: split.count for name, split in splits.items() if split},
        "sha256": {name: split.sha256 for name, split in splits.items() if split},
    }


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Signals that asked the run to stop, noted so that an update can be finished. A second one stops at once."""
    noted: list[int] = []

    def note(number: int, _frame: Any) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    previous: dict[int, Any] = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
