"""One stretch of training, from the start of the process to its end: checkpoints, validations, the log, what is said."""

import time
from typing import Any

from nmt.config import TrainingConfig
from nmt.model_directory import ModelDirectory
from nmt.reporting import Reporter, duration
from nmt.training import checkpoint
from nmt.training.checkpoint import Progress
from nmt.training.trainer import Interval, Trainer
from nmt.validation import Validation, Validator

ESTIMATE_AFTER = 20  # updates
A_DAY = 86_400.0
LINE_EVERY = 100  # updates, where there is no progress bar
WORSE = 1.2  # times the loss before an interruption: something is amiss


class Session:
    """What happens when the trainer saves, validates and logs."""

    def __init__(
        self,
        directory: ModelDirectory,
        config: TrainingConfig,
        trainer: Trainer,
        validator: Validator | None,
        reporter: Reporter,
        started: float,
    ) -> None:
        """`started` is the perf_counter of the process's beginning, from which minutes are counted."""
        self.directory, self.config, self.reporter = directory, config, reporter
        self.trainer, self.validator, self.progress = trainer, validator, trainer.progress
        self.resumed_at, self.minutes_before = self.progress.update, self.progress.minutes
        self.loss_before = self.progress.last_loss
        self.started, self.since = started, time.perf_counter()
        self.estimated = False
        self.task = reporter.bar.add_task("training", total=config.steps, completed=self.progress.update, status="")

    def save(self) -> None:
        progress = self.progress
        progress.minutes = self.minutes_before + (time.perf_counter() - self.started) / 60
        checkpoint.save(self.directory.checkpoints, self.trainer.model, self.trainer.optimizer, progress)
        if not progress.validations:  # so that a run stopped early can be tried out
            checkpoint.save_weights(self.directory.weights_path, self.trainer.model.state_dict())

    def validate(self) -> None:
        """A failure is logged and ends nothing: a checkpoint is safe, and training is worth more than a score."""
        progress, reporter = self.progress, self.reporter
        found: Validation | None = None
        event: dict[str, Any] = {}
        if self.validator is None:
            said = "no validation text"
        else:
            try:
                found = self.validator.validate(self.trainer.model)
                event, said = found.event(), str(found)
            except Exception as error:  # out of memory, say
                said = "not validated"
                event = {"validation_error": f"{type(error).__name__}: {error}"}
                reporter.warn(f"validation failed ({event['validation_error']})")
        progress.validations.append((progress.update, found.bleu if found else None))
        write_average(self.directory, progress, self.config.average)
        checkpoint.tidy(self.directory.checkpoints, progress, self.config.average)
        progress.minutes = self.minutes_before + (time.perf_counter() - self.started) / 60
        minutes = round(progress.minutes, 2)
        self.directory.log({"event": "validation", "step": progress.update, "minutes": minutes} | event)
        # Last, so that after a sudden end what is not recorded is done again.
        checkpoint.record(checkpoint.path_of(self.directory.checkpoints, progress.update), progress)
        reporter.say(f"update {progress.update:,}, {minutes:.1f} min: saved, {said}")
        if found and found.same > 0.5 and progress.update > self.config.warmup:
            reporter.warn(
                f"{found.same:.0%} of the validation outputs are the same sentence: the model has collapsed; "
                "start again with a longer warm-up or a lower rate (warmup, factor under [training])"
            )

    def log(self, interval: Interval) -> None:
        steps, reporter = self.config.steps, self.reporter
        self.directory.log(
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
        if self.loss_before and interval.loss > WORSE * self.loss_before:
            reporter.warn(f"the loss is {interval.loss:.3f}, after {self.loss_before:.3f} before the interruption")
        self.loss_before = None  # only the first line after a resume is compared
        done = interval.update - self.resumed_at
        left = (steps - interval.update) * (time.perf_counter() - self.since) / done
        status = f"loss {interval.loss:.3f}, {interval.tokens_per_second:,.0f} tokens/s, {duration(left)} left"
        reporter.bar.update(self.task, completed=interval.update, status=status)
        if not reporter.on_terminal and interval.update % LINE_EVERY == 0:
            reporter.say(f"update {interval.update:,} of {steps:,}: {status}, lr {interval.learning_rate:.2e}")
        if not self.estimated and done >= ESTIMATE_AFTER:
            self.estimated = True
            reporter.say(f"about {duration(left)} to the end, {steps - interval.update:,} updates from here")
            if left > A_DAY:
                reporter.warn("this is more than a day; a smaller --preset or fewer --steps train sooner")


def write_average(directory: ModelDirectory, progress: Progress, count: int) -> None:
    """The weights to use: the mean of the last `count` validated checkpoints, or of those that are still there."""
    there = checkpoint.saved(directory.checkpoints)
    last = [update for update in checkpoint.averaged(progress, count) if update in there]
    folders = [checkpoint.path_of(directory.checkpoints, update) for update in last]
    if folders:  # else nothing is validated yet, and the weights saved at the stop stay
        checkpoint.save_weights(directory.weights_path, checkpoint.average(folders))
