"""One stretch of training, from the start of the process to its end: updates, checkpoints, validations, the log.

Every rank takes the same steps; rank 0 alone writes and speaks. A full disk ends nothing: the user is warned, and training
continues to the next checkpoint, which may find room again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from nmt.errors import NmtError
from nmt.event_log import Event, EventLog
from nmt.formatting import counted, duration
from nmt.model_directory import ModelDirectory, path_of
from nmt.pages import report
from nmt.reporting import Reporter
from nmt.saved_model import SavedModel
from nmt.tensorboard import TensorBoard
from nmt.training import checkpoint
from nmt.training.trainer import Interval, Trainer
from nmt.validation import Validation, Validator
from nmt.weights import load_weights, save_weights

ESTIMATE_AFTER = 20  # updates
A_DAY = 86_400.0  # seconds
LINE_EVERY = 100  # updates, where there is no progress bar
REPORT_EVERY = 60.0  # seconds between two writings of report.html
MIN_LINES_TO_JUDGE = 10  # validation lines; half of fewer may well be the same


class Session:
    """Drives a trainer: saves, validates and logs at the right updates."""

    def __init__(
        self,
        directory: ModelDirectory,
        kind: str,
        trainer: Trainer,
        validator: Validator | None,
        origin_validator: Validator | None,
        reporter: Reporter,
        started: float,
    ) -> None:
        """`kind` is the weights', see description.py; `origin_validator` has the text of the model this one started from.

        `started` is the perf_counter at the process's start, from which minutes are counted.
        """
        self.directory, self.kind, self.reporter = directory, kind, reporter
        self.trainer, self.validator, self.origin_validator = trainer, validator, origin_validator
        self.config, self.progress, self.ranks = trainer.config, trainer.progress, trainer.ranks
        self.event_log = EventLog(directory.metrics_path)
        self.resumed_at, self.minutes_before = self.progress.update, self.progress.minutes
        self.saved_at = self.progress.update  # update of the newest checkpoint
        self.recorded = True  # whether the last validation is in its checkpoint, and the weights to use are written
        self.averaged: list[int] = []  # updates whose mean the weights to use are
        self.micro_batch_tokens = self.progress.micro_batch_tokens
        self.started, self.since = started, time.perf_counter()
        self.validation_seconds: list[float] = []
        self.estimated: set[bool] = set()  # whether the time left was printed without and with that of validations
        self.reported_at = time.perf_counter()
        self.warned: set[str] = set()
        self.board: TensorBoard | None = None
        if self.ranks.first:
            self.saved = SavedModel.open(directory.path)
            with self._survive("the TensorBoard logs", Exception):
                self.board = TensorBoard(directory.tensorboard, self.progress.update)
                if self.board.active:
                    reporter.say(f"TensorBoard logs: {directory.tensorboard}")
        total = self.config.steps
        self.task = reporter.bar.add_task("training", total=total, completed=self.progress.update, status="")

    def begin(self) -> None:
        """Before a fine-tuning run starts: log what the origin's weights score on both texts."""
        if not self.progress.update:
            _, scores, summary = self._scores()
            self._log({"event": "validation", "step": 0, "minutes": 0.0} | scores)
            self.reporter.say(f"before the first update: {summary}")

    def train(self, stop: Callable[[], bool]) -> None:
        """Train to the end, or until `stop` is true on any rank. All is saved then. Raises NmtError as `updates` does."""
        trainer, ranks = self.trainer, self.ranks
        if trainer.validation_due():  # the run was interrupted between saving and validating
            self.validate()
        for _ in trainer.updates():
            if trainer.log_due():
                self.log(trainer.interval())
            stopping, due = ranks.any(stop()), trainer.validation_due()
            if due or stopping:
                trainer.check_finite()
                # A validation may take long, so a run asked to stop leaves it to the run that resumes.
                if self.save() and due and not stopping:
                    self.validate()
                    stopping = ranks.any(stop())
            if stopping:
                break
        self.write_report()

    def save(self) -> bool:
        """Write a checkpoint. False, on all ranks, where that failed: the one before is still whole."""
        progress, directory = self.progress, self.directory
        progress.minutes = self._minutes()
        if self.ranks.first:
            with self._survive(f"no checkpoint of update {progress.update:,}"):
                checkpoint.tidy(directory.checkpoints, progress, self.config.average)
                checkpoint.save(directory.checkpoints, self.trainer.model, self.trainer.optimizer, progress, self.kind)
                self.saved_at = progress.update
            if not progress.validations:  # a run stopped early can be tried out
                with self._survive("there are no weights to use yet"):
                    save_weights(directory.weights_path, self.trainer.model.state_dict(), self.kind)
        self.saved_at = self.ranks.from_first(self.saved_at)
        return self.saved_at == progress.update

    def validate(self) -> None:
        """Validate the checkpoint just saved. A failure is logged and ends nothing: training is worth more than a score."""
        progress, reporter = self.progress, self.reporter
        found, scores, summary = self._scores()
        progress.validations.append((progress.update, found.bleu if found else None))
        progress.minutes = self._minutes()
        minutes = round(progress.minutes, 2)
        self._log({"event": "validation", "step": progress.update, "minutes": minutes} | scores)
        self.recorded = False
        if self.ranks.first:
            with self._survive(f"the validation of update {progress.update:,} is not recorded"):
                self._average()
                # Recorded last, so that after a sudden end everything not recorded is done again.
                checkpoint.record(path_of(self.directory.checkpoints, progress.update), progress)
                self.recorded = True
            with self._survive("old checkpoints stay"):
                checkpoint.tidy(self.directory.checkpoints, progress, self.config.average)
        self.recorded = self.ranks.from_first(self.recorded)
        reporter.say(f"update {progress.update:,}, {minutes:.1f} min: saved, {summary}")
        if found and found.lines >= MIN_LINES_TO_JUDGE and found.same > 0.5 and progress.update > self.config.warmup:
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

    def finish(self) -> None:
        """Log and print which checkpoints the weights to use are the mean of, and their scores."""
        model = self.trainer.model
        if self.ranks.first:
            model.load_state_dict(load_weights(self.directory.weights_path))
        self.ranks.broadcast(model.state_dict().values())
        _, scores, summary = self._scores()
        self._log({"event": "average", "step": self.progress.update, "updates": self.averaged} | scores)
        self.reporter.say(f"the weights to use: {_mean_of(self.averaged)}; {summary}")

    def log(self, interval: Interval) -> None:
        """Add a line of training to the log, and show how far the run has come."""
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
        if self.progress.micro_batch_tokens != self.micro_batch_tokens:
            self.micro_batch_tokens = self.progress.micro_batch_tokens
            reporter.warn(f"out of memory: continuing with micro-batches of {self.micro_batch_tokens:,} tokens")
        left = self._time_left(interval.update)
        status = f"loss {interval.loss:.3f}, {interval.tokens_per_second:,.0f} tokens/s, {left} left"
        reporter.bar.update(self.task, completed=interval.update, status=status)
        if not reporter.on_terminal and interval.update % LINE_EVERY == 0:
            reporter.say(f"update {interval.update:,} of {self.config.steps:,}: {status}, lr {interval.learning_rate:.2e}")

    def write_report(self) -> None:
        """Write report.html from the log."""
        if self.ranks.first:
            with self._survive("report.html", Exception):
                report.write(self.saved)
            self.reported_at = time.perf_counter()

    def _average(self) -> None:
        """Write the weights to use, and warn where they are the mean of fewer checkpoints than planned."""
        planned = checkpoint.to_average(self.progress, self.config)
        self.averaged = write_average(self.directory, planned, self.kind)
        if missing := {*planned} - {*self.averaged}:
            lost = f"the checkpoint of update {max(missing):,} is damaged or gone"
            self._warn_once(f"{lost}; the weights to use: {_mean_of(self.averaged)}", lost)

    def _scores(self) -> tuple[Validation | None, dict[str, Any], str]:
        """The validation, if it succeeds; what the log says of it; and a summary for a person."""
        found, event, summary, began = None, {}, ["no validation text"], time.perf_counter()
        if self.validator:
            try:
                found = self._validated(self.validator)
                event, summary = asdict(found), [str(found)]
            except NmtError as error:
                self.reporter.warn(f"validation failed ({error})")
                event, summary = {"validation_error": str(error)}, ["not validated"]
        if before := self.origin_validator:
            try:
                old = self._validated(before)
                event["before"] = {"name": before.name, "bleu": old.bleu, "perplexity": old.perplexity}
                summary.append(f"on the {before.name}: {old}")
            except NmtError as error:
                self.reporter.warn(f"validation on the {before.name} failed ({error})")
        self.validation_seconds.append(time.perf_counter() - began)
        return found, event, "; ".join(summary)

    def _validated(self, validator: Validator) -> Validation:
        return validator.validate(self.trainer.model, self.progress.micro_batch_tokens, self.ranks)

    def _time_left(self, update: int) -> str:
        """Time to the end of the run; printed once, and once more when the first validation has shown its share of it."""
        steps, every, done = self.config.steps, self.config.validate_every, update - self.resumed_at
        seconds = self.validation_seconds
        # Validations from this update on, the last update's, and the one of the weights to use.
        ahead = (steps - 1) // every - (update - 1) // every + 2 if self.validator or self.origin_validator else 0
        updating = (steps - update) * (time.perf_counter() - self.since - sum(seconds)) / done
        left, known = updating + ahead * sum(seconds) / max(1, len(seconds)), bool(seconds) or not ahead
        if done >= ESTIMATE_AFTER and known not in self.estimated:
            self.estimated.add(known)
            besides = f" and {counted(ahead, 'validation')}" if ahead else ""
            unknown = "" if known else "; how long these take, the first will show"
            self.reporter.say(
                f"about {duration(left)} to the end, {counted(steps - update, 'update')}{besides} from here{unknown}"
            )
            if left > A_DAY:
                self._warn_once("this is more than a day; a smaller --preset or fewer --steps finish sooner")
        return duration(left) if known else f"over {duration(left)}"

    def _minutes(self) -> float:
        """Since the run's first start, without the time between a stop and a resume."""
        return self.minutes_before + (time.perf_counter() - self.started) / 60

    def _log(self, event: Event) -> None:
        if not self.ranks.first:
            return
        with self._survive("an event is missing in the log"):
            self.event_log.append(event)
        if self.board:
            with self._survive("the TensorBoard logs", Exception):
                self.board.add(event)
        if event["event"] != "training" or time.perf_counter() - self.reported_at > REPORT_EVERY:
            self.write_report()

    @contextmanager
    def _survive(self, loss: str, errors: type[Exception] = OSError) -> Iterator[None]:
        """Warn of errors, and continue: a full disk costs a checkpoint, not the run. `loss` is what is missing then.

        What only shows the run (a page, TensorBoard's logs) may fail in any way, and the user is warned once.
        """
        try:
            yield
        except errors as error:
            if errors is Exception:
                self._warn_once(f"{loss} cannot be written ({error}); training continues")
            elif isinstance(error, OSError):
                self.reporter.warn(f"{error.filename or self.directory.path}: {error.strerror or error}; {loss}")

    def _warn_once(self, text: str, about: str = "") -> None:
        if (about or text) not in self.warned:
            self.warned.add(about or text)
            self.reporter.warn(text)


def write_average(directory: ModelDirectory, updates: list[int], kind: str, partial: bool = True) -> list[int]:
    """Write the weights to use: the mean of these checkpoints, or, if `partial`, of those after the last damaged one.

    Returns the updates it is the mean of; if none, the old weights stay. `kind` is the weights', see description.py.
    """
    weights, count = checkpoint.average((path_of(directory.checkpoints, update) for update in reversed(updates)), kind)
    if count and (partial or count == len(updates)):
        save_weights(directory.weights_path, weights, kind)
    return updates[len(updates) - count :]


def _mean_of(updates: list[int]) -> str:
    if len(updates) < 2:
        return f"those of update {updates[0]:,}" if updates else "as they were"
    return f"the average of {counted(len(updates), 'checkpoint')}, updates {updates[0]:,} to {updates[-1]:,}"
