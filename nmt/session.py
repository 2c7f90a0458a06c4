"""One stretch of training, from the start of the process to its end: checkpoints, validations, the log, what is said.

Every rank goes through the same steps; rank 0 alone writes and speaks. A disk that is full ends nothing: it is told of, and
training goes on to the next checkpoint, which may find room again.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from nmt.config import TrainingConfig
from nmt.errors import NmtError
from nmt.formatting import counted, duration
from nmt.model_directory import ModelDirectory, path_of
from nmt.pages import report
from nmt.reporting import Reporter
from nmt.tensorboard import TensorBoard
from nmt.training import checkpoint
from nmt.training.checkpoint import Progress
from nmt.training.trainer import Interval, Trainer
from nmt.validation import Validation, Validator
from nmt.weights import load_weights, save_weights

ESTIMATE_AFTER = 20  # updates
A_DAY = 86_400.0
LINE_EVERY = 100  # updates, where there is no progress bar
REPORT_EVERY = 60.0  # seconds between two writings of report.html that no validation asks for
FEW = 10  # validation lines, of which half may well be the same
MUCH = 0.1  # of the updates' time, from which validations make the first estimate a wrong one
WORSE = 1.2  # times the loss before an interruption: something is amiss


class Session:
    """What happens when the trainer saves, validates and logs."""

    def __init__(
        self,
        directory: ModelDirectory,
        config: TrainingConfig,
        trainer: Trainer,
        validator: Validator | None,
        before: Validator | None,
        reporter: Reporter,
        started: float,
    ) -> None:
        """`before` has the text of the model that this one began from, if it did.

        `started` is the perf_counter of the process's beginning, from which minutes are counted.
        """
        self.directory, self.config, self.reporter = directory, config, reporter
        self.trainer, self.validator, self.before, self.progress = trainer, validator, before, trainer.progress
        self.ranks = trainer.ranks
        self.kind = directory.describe().kind if self.ranks.first else ""
        self.resumed_at, self.minutes_before = self.progress.update, self.progress.minutes
        self.saved_at = self.progress.update  # the update of the last checkpoint
        self.averaged: list[int] = []  # the updates whose mean the weights to use are
        self.recorded = True  # whether a checkpoint knows of the last validation, and the weights to use with it
        self.micro_batch_tokens = self.progress.micro_batch_tokens
        self.loss_before = self.progress.last_loss
        self.started, self.since = started, time.perf_counter()
        self.scored: list[float] = []  # seconds that each validation took
        self.estimated = False  # whether the time left was told, ...
        self.unsure = False  # ... without the validations, before the first of them
        self.reported = time.perf_counter()
        self.warned: set[str] = set()  # of what is told of once
        self.board: TensorBoard | None = None
        if self.ranks.first:
            with self._optional("the TensorBoard logs"):
                self.board = TensorBoard(directory.tensorboard, self.progress.update)
                if self.board.active:
                    reporter.say(f"TensorBoard logs: {directory.tensorboard}")
        self.task = reporter.bar.add_task("training", total=config.steps, completed=self.progress.update, status="")

    def save(self) -> bool:
        """Write a checkpoint. False, on all ranks, where that failed: the one before is still whole."""
        progress = self.progress
        progress.minutes = self._minutes()
        if self.ranks.first:
            with self._going_on(f"no checkpoint of update {progress.update:,}"):
                checkpoint.tidy(self.directory.checkpoints, progress, self.config.average)
                checkpoint.save(
                    self.directory.checkpoints, self.trainer.model, self.trainer.optimizer, progress, self.kind
                )
                self.saved_at = progress.update
            if not progress.validations:  # so that a run stopped early can be tried out
                with self._going_on("there are no weights to use yet"):
                    save_weights(self.directory.weights_path, self.trainer.model.state_dict(), self.kind)
        self.saved_at = self.ranks.hand_out(self.saved_at)
        return self.saved_at == progress.update

    def begin(self) -> None:
        """Of a run that begins from another model: what that one's weights are worth on either text."""
        if not self.progress.update:
            _, event, said = self._score()
            self._log({"event": "validation", "step": 0, "minutes": 0.0} | event)
            self.reporter.say(f"before the first update: {said}")

    def validate(self) -> None:
        """A failure is logged and ends nothing: a checkpoint is safe, and training is worth more than a score."""
        progress, reporter = self.progress, self.reporter
        found, event, said = self._score()
        progress.validations.append((progress.update, found.bleu if found else None))
        progress.minutes = self._minutes()
        minutes = round(progress.minutes, 2)
        self._log({"event": "validation", "step": progress.update, "minutes": minutes} | event)
        self.recorded = False
        if self.ranks.first:
            with self._going_on(f"the validation of update {progress.update:,} is not recorded"):
                self._average()
                # Last but for tidying up, so that after a sudden end what is not recorded is done again.
                checkpoint.record(path_of(self.directory.checkpoints, progress.update), progress)
                self.recorded = True
            with self._going_on("old checkpoints stay"):
                checkpoint.tidy(self.directory.checkpoints, progress, self.config.average)
        self.recorded = self.ranks.hand_out(self.recorded)
        reporter.say(f"update {progress.update:,}, {minutes:.1f} min: saved, {said}")
        if found and found.lines >= FEW and found.same > 0.5 and progress.update > self.config.warmup:
            reporter.warn(
                f"{found.same:.0%} of the validation outputs are the same sentence: the model has collapsed; "
                "start again with a longer warm-up or a lower rate (warmup, factor under [training])"
            )
        patience = self.config.patience
        if patience and progress.stale(patience) and progress.update < self.config.steps:
            reporter.say(
                f"no better BLEU in {counted(patience, 'validation')}: stopping early, with the average of the "
                f"checkpoints up to the best, update {progress.best:,}"
            )

    def _average(self) -> None:
        """Write the weights to use, and warn where they are the mean of fewer checkpoints than they should be."""
        self.averaged = write_average(self.directory, self.progress, self.config, self.kind)
        if missing := {*to_average(self.progress, self.config)} - {*self.averaged}:
            lost = f"the checkpoint of update {max(missing):,} is damaged or gone"
            self._warn_once(lost, f"{lost}; the weights to use: {_mean_of(self.averaged)}")

    def finish(self) -> None:
        """Log and say which checkpoints the weights to use are the mean of, and what these are worth."""
        weights = load_weights(self.directory.weights_path) if self.ranks.first else {}
        self.trainer.model.load_state_dict(self.ranks.hand_out(weights))
        _, event, said = self._score()
        self._log({"event": "average", "step": self.progress.update, "updates": self.averaged} | event)
        self.reporter.say(f"the weights to use: {_mean_of(self.averaged)}; {said}")

    def _score(self) -> tuple[Validation | None, dict[str, Any], str]:
        """What validation found, if it did not fail; as the log has it, and as a person reads it."""
        found, event, said, began = None, {}, ["no validation text"], time.perf_counter()
        try:
            if self.validator:
                found = self.validator.validate(self.trainer.model, self.progress.micro_batch_tokens, self.ranks)
                event, said = asdict(found), [str(found)]
        except NmtError as error:
            self.reporter.warn(f"validation failed ({error})")
            event, said = {"validation_error": str(error)}, ["not validated"]
        if before := self.before:
            try:
                old = before.validate(self.trainer.model, self.progress.micro_batch_tokens, self.ranks)
                event["before"] = {"name": before.name, "bleu": old.bleu, "perplexity": old.perplexity}
                said.append(f"on the {before.name}: {old}")
            except NmtError as error:
                self.reporter.warn(f"validation on the {before.name} failed ({error})")
        self.scored.append(time.perf_counter() - began)
        return found, event, "; ".join(said)

    def log(self, interval: Interval) -> None:
        reporter = self.reporter
        if not self.ranks.first:
            return
        self._log(
            {
                "event": "training",
                "step": interval.update,
                "epoch": interval.epoch,
                "loss": interval.loss,
                "lr": interval.learning_rate,
                "tokens_per_second": round(interval.tokens_per_second),
                "tokens_per_update": round(interval.tokens_per_update),
                "padding": round(interval.padding, 4),
                "minutes": round(self._minutes(), 2),
            }
        )
        if self.loss_before and interval.loss > WORSE * self.loss_before:
            reporter.warn(f"the loss is {interval.loss:.3f}, after {self.loss_before:.3f} before the interruption")
        self.loss_before = None  # only the first line after a resume is compared
        if self.progress.micro_batch_tokens != self.micro_batch_tokens:
            self.micro_batch_tokens = self.progress.micro_batch_tokens
            reporter.warn(f"out of memory: going on with micro-batches of {self.micro_batch_tokens:,} tokens")
        left = self._time_left(interval.update)
        status = f"loss {interval.loss:.3f}, {interval.tokens_per_second:,.0f} tokens/s, {left} left"
        reporter.bar.update(self.task, completed=interval.update, status=status)
        if not reporter.on_terminal and interval.update % LINE_EVERY == 0:
            reporter.say(
                f"update {interval.update:,} of {self.config.steps:,}: {status}, lr {interval.learning_rate:.2e}"
            )

    def _time_left(self, update: int) -> str:
        """For a person; told of after some updates too, and once more where the first validation shows it to be much longer."""
        steps, every, done = self.config.steps, self.config.validate_every, update - self.resumed_at
        updating = (steps - update) * (time.perf_counter() - self.since - sum(self.scored)) / done
        # At this update or later, but before the last one; then of that, and of the weights to use.
        ahead = (steps - 1) // every - (update - 1) // every + 2 if self.validator or self.before else 0
        validating = ahead * sum(self.scored) / max(1, len(self.scored))
        left, known = updating + validating, bool(self.scored) or not ahead
        corrected = self.unsure and known and validating > MUCH * updating
        self.unsure = self.unsure and not known
        if corrected or (done >= ESTIMATE_AFTER and not self.estimated):
            self.estimated, self.unsure = True, not known
            besides = f" and {counted(ahead, 'validation')}" if ahead else ""
            unknown = "" if known else "; how long these take, the first will tell"
            self.reporter.say(
                f"about {duration(left)} to the end, {counted(steps - update, 'update')}{besides} from here{unknown}"
            )
            if left > A_DAY:
                self._warn_once("a day", "this is more than a day; a smaller --preset or fewer --steps train sooner")
        return duration(left) if known else f"over {duration(left)}"

    def _minutes(self) -> float:
        """Since the run's first beginning, stops not counted."""
        return self.minutes_before + (time.perf_counter() - self.started) / 60

    def _log(self, event: dict[str, Any]) -> None:
        if self.ranks.first:
            with self._going_on("an event is missing in the log"):
                self.directory.log(event)
            if self.board:
                with self._optional("the TensorBoard logs"):
                    self.board.add(event)
            if event["event"] in ("validation", "average") or time.perf_counter() - self.reported > REPORT_EVERY:
                self.write_report()

    def write_report(self) -> None:
        """Draw the page anew."""
        if self.ranks.first:
            with self._optional("report.html"):
                report.write(self.directory)
            self.reported = time.perf_counter()

    @contextmanager
    def _going_on(self, otherwise: str) -> Iterator[None]:
        """A disk that is full, or gone, is told of and survived."""
        try:
            yield
        except OSError as error:
            self.reporter.warn(f"{error.filename or self.directory.path}: {error.strerror or error}; {otherwise}")

    @contextmanager
    def _optional(self, what: str) -> Iterator[None]:
        """What only shows a run must never end it: a failure is told of once."""
        try:
            yield
        except Exception as error:
            self._warn_once(what, f"{what} cannot be written ({error}); training goes on")

    def _warn_once(self, about: str, text: str) -> None:
        if about not in self.warned:
            self.warned.add(about)
            self.reporter.warn(text)


def to_average(progress: Progress, config: TrainingConfig) -> list[int]:
    """The updates of whose checkpoints the weights to use are the mean: so many of the last validated ones as `average` asks
    for, after an early stop of those up to the best.
    """
    return checkpoint.averaged(progress, config.average, progress.best if progress.stale(config.patience) else None)


def write_average(
    directory: ModelDirectory, progress: Progress, config: TrainingConfig, kind: str, fewer: bool = True
) -> list[int]:
    """Write the weights to use: of those to average the ones that are there and whole, back to the first gap.

    Returns their updates. Not `fewer`, nothing is written where one is missing. `kind` is the model's, see description.py.
    """
    last = to_average(progress, config)
    weights, count = checkpoint.average((path_of(directory.checkpoints, update) for update in reversed(last)), kind)
    # Before anything is validated, the weights saved at the stop stay.
    if count and (fewer or count == len(last)):
        save_weights(directory.weights_path, weights, kind)
    return last[len(last) - count :]


def _mean_of(updates: list[int]) -> str:
    if len(updates) < 2:
        return f"those of update {updates[0]:,}" if updates else "as they were"
    return f"the average of {counted(len(updates), 'checkpoint')}, updates {updates[0]:,} to {updates[-1]:,}"
