"""A training run from settings to model directory: the one place that composes all the rooms."""

import hashlib
import math
import platform
import shutil
import signal
import sys
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
from nmt import devices, scoring
from nmt.config import EXTENT, RUNTIME, ModelConfig, TrainingConfig, find_preset, preset_for, settle
from nmt.data import corpus as corpora
from nmt.data.batching import Plan
from nmt.data.corpus import CleaningReport, Corpus, usable
from nmt.data.prepared import prepare
from nmt.data.vocabulary import SAMPLE, Vocabulary, learn
from nmt.errors import NmtError, UsageError
from nmt.model.transformer import Transformer
from nmt.model_directory import ModelDirectory
from nmt.reporting import Reporter, duration, table
from nmt.training import checkpoint
from nmt.training.trainer import Interval, Trainer
from nmt.training.validation import evaluate
from nmt.translation.engine import TorchEngine
from nmt.translation.translator import Translator

ESTIMATE_AFTER = 20  # updates
A_DAY = 86_400.0
LINE_EVERY = 100  # updates, where there is no progress bar


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
    settle(find_preset(preset or "base"), toml, flags)  # a mistake in the settings shows before any data is read
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
            if text := getattr(corpus, split):
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
            f"{name} was {before.get(name, 'unset')}, now {now[name]}" for name in now if before.get(name) != now[name]
        ]
        if differences:
            raise UsageError(
                f"{self.directory.path} holds another run: " + "; ".join(differences) + ". "
                "Name another directory with --model, give the settings it had, or discard it with --restart"
            )
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
        self.directory.cut_log(progress.update)
        if progress.update >= config.steps and progress.validations:
            reporter.say(
                f"{self.directory.path}: this run is finished ({progress.update:,} updates); more with --steps"
            )
            return
        reporter.say(
            f"model: {model.count_parameters():,} parameters on {devices.describe(self.device, self.precision)}; "
            f"seed {config.seed}; checkpoints take up to {checkpoint.size(model, config.average) / 2**20:,.0f} MiB"
        )
        if progress.update:
            reporter.say(f"going on after update {progress.update:,}, learning rate {trainer.learning_rate():.2e}")
        validator = _Validator(self.directory, vocabulary, config, self.precision)
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

    def _train(self, trainer: Trainer, validator: "_Validator", signals: list[int], started: float) -> None:
        progress, config, reporter, directory = trainer.progress, self.config, self.reporter, self.directory
        resumed_at, since = progress.update, time.perf_counter()
        with reporter:
            task = reporter.bar.add_task("training", total=config.steps, completed=progress.update, status="")

            def save() -> None:
                path = checkpoint.save(directory.checkpoints, trainer.model, trainer.optimizer, progress)
                if not progress.validations:  # so that a run stopped early can be tried out
                    checkpoint.save_weights(directory.weights_path, checkpoint.load_weights(path / checkpoint.WEIGHTS))

            def validate() -> None:
                event = validator.validate(trainer.model)
                progress.validations.append((progress.update, event.get("bleu")))
                checkpoint.record(checkpoint.path_of(directory.checkpoints, progress.update), progress)
                last = checkpoint.averaged(progress, config.average)
                folders = [checkpoint.path_of(directory.checkpoints, update) for update in last]
                checkpoint.save_weights(directory.weights_path, checkpoint.average(folders))
                checkpoint.tidy(directory.checkpoints, progress, config.average)
                minutes = (time.perf_counter() - started) / 60
                directory.log({"step": progress.update, "minutes": round(minutes, 2)} | event)
                reporter.say(f"update {progress.update:,}, {minutes:.1f} min: " + _describe_validation(event))
                if event.get("same", 0) > 0.5 and progress.update > config.warmup:
                    reporter.warn(
                        f"{event['same']:.0%} of the validation outputs are the same sentence: the model has collapsed; "
                        "start again with a longer warm-up or a lower rate (warmup, factor under [training])"
                    )

            def log(interval: Interval) -> None:
                directory.log(
                    {
                        "step": interval.update,
                        "epoch": interval.epoch,
                        "loss": interval.loss,
                        "lr": interval.learning_rate,
                        "tokens_per_second": round(interval.tokens_per_second),
                        "padding": round(interval.padding, 4),
                    }
                )
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


class _Validator:
    """Loss and BLEU of the directory's validation text, decoded with translate's defaults."""

    def __init__(
        self, directory: ModelDirectory, vocabulary: Vocabulary, config: TrainingConfig, precision: str
    ) -> None:
        self.vocabulary, self.config, self.precision = vocabulary, config, precision
        self.text = directory.read_heldout("valid")
        self.plan: Plan | None = None
        if self.text:
            whole = config.model_copy(update={"max_pieces": sys.maxsize, "max_ratio": math.inf})
            pairs = usable(zip(*self.text, strict=True), config, CleaningReport())
            self.plan = Plan(prepare(pairs, vocabulary, whole, CleaningReport()), config.tokens_per_update, config.seed)

    def validate(self, model: Transformer) -> dict[str, Any]:
        """The event for the log; empty without validation text. A failure is in it, and ends nothing."""
        if not self.text or not self.plan or not len(self.plan.pairs):
            return {}
        try:
            smoothed, nll = evaluate(
                model, self.plan, self.config.micro_batch_tokens, self.config.label_smoothing, self.precision
            )
            source, reference = self.text
            on_cpu = model.embedding.weight.device.type == "cpu"
            engine = TorchEngine(model, "fp32" if on_cpu else self.precision)
            hypotheses = Translator(engine, self.vocabulary).translate(source)
            score = scoring.bleu(hypotheses, [reference])
        except (
            Exception
        ) as error:  # out of memory, say: a checkpoint is safe, and training is worth more than its score
            return {"validation_error": f"{type(error).__name__}: {error}"}
        most_common = max(map(hypotheses.count, set(hypotheses)))
        return {
            "valid_loss": smoothed,
            "nll": nll,
            "perplexity": math.exp(nll),
            "bleu": score.value,
            "signature": score.signature,
            "lines": score.lines,
            "beam": 4,
            "same": most_common / len(hypotheses),
        }


def _describe_validation(event: dict[str, Any]) -> str:
    if "validation_error" in event:
        return f"saved; validation failed ({event['validation_error']})"
    if not event:
        return "saved; there is no validation text"
    return (
        f"validation perplexity {event['perplexity']:.2f}, BLEU {event['bleu']:.2f} ({event['lines']:,} lines, beam 4)"
    )


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
