"""One stretch of training, from the start of the process to its end: updates, checkpoints, validations, the log.

Every rank takes the same steps; rank 0 alone writes and speaks. A full disk ends nothing: the user is warned, and training
continues to the next checkpoint, which may find room again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property

from nmt.errors import first_line
from nmt.event_log import Event, EventLog
from nmt.formatting import counted, duration
from nmt.lines import is_blank
from nmt.model_directory import BEFORE, path_of
from nmt.pages import report
from nmt.run_data import RunData, Workspace
from nmt.settings import RunPlan
from nmt.tensorboard import TensorBoard
from nmt.training import checkpoint
from nmt.training.trainer import Trainer
from nmt.validation import Validator
from nmt.weights import load_weights, save_weights

ESTIMATE_AFTER = 20  # updates
A_DAY = 86_400.0  # seconds
LINE_EVERY = 100  # updates, where there is no progress bar
REPORT_EVERY = 60.0  # seconds between two writings of report.html
MIN_LINES_TO_JUDGE = 10  # validation lines; half of fewer may well be the same


class Session:
    """Drives a trainer: saves, validates and logs at the right updates."""

    def __init__(self, plan: RunPlan, data: RunData, work: Workspace, trainer: Trainer, started: float) -> None:
        """`started` is the perf_counter at the process's start, from which minutes are counted."""
        self.plan, self.data, self.description = plan, data, data.saved.description
        self.directory, self.ranks, self.reporter = work.directory, work.ranks, work.reporter
        self.trainer, self.config, self.progress = trainer, trainer.config, trainer.progress
        self.event_log = EventLog(self.directory.metrics_path)
        self.warn_once = cache(self.reporter.warn)
        self.validators: dict[str, Validator] = {}
        old = f"old {plan.origin['data']}" if plan.origin else ""
        for split, name, text in (("valid", "validation", data.valid), (BEFORE, old, data.before)):
            if text and any(not is_blank(source) and not is_blank(target) for source, target in zip(*text, strict=True)):
                self.validators[split] = Validator(
                    name, *text, plan.languages, data.vocabulary, self.config, self.description.data.copies_letterless
                )
        for validator in self.validators.values():
            validator.check_lengths(trainer.model.config)
        self.resumed_at, self.minutes_before = self.progress.update, self.progress.minutes
        self.micro_batch_tokens = self.progress.micro_batch_tokens
        self.saved_at = self.progress.update  # update of the newest checkpoint
        self.safe = True  # whether the last update, and its validation if it has one, are on the disk
        self.averaged: list[int] = []  # updates whose mean the weights to use are
        self.started, self.since, self.reported_at = started, time.perf_counter(), time.perf_counter()
        self.validation_seconds: list[float] = []
        self.estimated: set[bool] = set()  # whether the time left was printed without and with that of validations
        self.task = self.reporter.bar.add_task("training", total=self.config.steps, completed=self.progress.update, status="")

    def train(self, stop: Callable[[], bool]) -> None:
        """Train to the end, or until `stop` is true on any rank. All is saved then. Raises NmtError as `updates` does."""
        trainer, ranks = self.trainer, self.ranks
        if self.plan.origin and not self.progress.update:
            scores, summary = self._scores()
            self._log({"event": "validation", "step": 0, "minutes": 0.0} | scores)
            self.reporter.say(f"before the first update: {summary}")
        if trainer.validation_due():  # the run was interrupted between saving and validating
            self.validate()
        for _ in trainer.updates():
            if trainer.log_due():
                self.log(trainer.interval())
            stopping, due = ranks.any(stop()), trainer.validation_due()
            if due or stopping:
                trainer.check_finite(with_state=True)
                # A validation may take long, so a run asked to stop leaves it to the run that resumes.
                if self.save() and due and not stopping:
                    self.validate()
                    stopping = ranks.any(stop())
            if stopping:
                break
        self.write_report()

    def save(self) -> bool:
        """Write a checkpoint. False, on all ranks, where that failed: the one before is still whole."""
        progress, model, folder = self.progress, self.trainer.model, self.directory.checkpoints
        progress.minutes = self._minutes()
        if self.ranks.first:
            with self._survive(f"no checkpoint of update {progress.update:,}"):
                checkpoint.tidy(folder, progress, self.config.average)
                checkpoint.save(folder, model, self.trainer.optimizer, progress, self.description.kind)
                self.saved_at = progress.update
                if not progress.validations:  # a run stopped early can be tried out
                    save_weights(self.directory.weights_path, model.state_dict(), self.description.kind)
        self.saved_at = self.ranks.from_first(self.saved_at)
        self.safe = self.saved_at == progress.update
        return self.safe

    def validate(self) -> None:
        """Validate the checkpoint just saved. A failure is logged and ends nothing: training is worth more than a score."""
        progress, reporter, patience = self.progress, self.reporter, self.config.patience
        found, summary = self._scores()
        progress.validations.append((progress.update, found.get("bleu")))
        progress.minutes = self._minutes()
        minutes = round(progress.minutes, 2)
        self._log({"event": "validation", "step": progress.update, "minutes": minutes} | found)
        self.safe = False
        if self.ranks.first:
            with self._survive(f"the validation of update {progress.update:,} is not recorded"):
                self.average()
                # Recorded last, so that after a sudden end everything not recorded is done again.
                checkpoint.record(path_of(self.directory.checkpoints, progress.update), progress)
                self.safe = True
                checkpoint.tidy(self.directory.checkpoints, progress, self.config.average)
        self.safe = self.ranks.from_first(self.safe)
        reporter.say(f"update {progress.update:,}, {minutes:.1f} min: saved, {summary}")
        same, lines = found.get("same", 0.0), found.get("lines", 0)
        if same > 0.5 and lines >= MIN_LINES_TO_JUDGE and progress.update > self.config.warmup:
            reporter.warn(
                f"{same:.0%} of the validation outputs are the same sentence: the model has collapsed; "
                "start again with a longer warm-up or a lower rate (warmup, factor under [training])"
            )
        if patience and progress.stale(patience) and progress.update < self.config.steps:
            reporter.say(
                f"no better BLEU in {counted(patience, 'validation')}: stopping early, with the average of the "
                f"checkpoints up to the best, update {progress.best:,}"
            )

    def average(self, partial: bool = True) -> bool:
        """Write the weights to use: the mean of the checkpoints planned, or, if `partial`, of those after the last damaged one.

        Returns whether that was done. If not, the old weights stay.
        """
        planned = checkpoint.to_average(self.progress, self.config)
        self.averaged, weights = checkpoint.average(self.directory.checkpoints, planned, self.description.kind)
        if missing := {*planned} - {*self.averaged}:
            result = "are the average of those after it" if partial and weights else "stay as they are"
            self.warn_once(f"the checkpoint of update {max(missing):,} is damaged or gone; the weights to use {result}")
        written = bool(weights) and (partial or not missing)
        if written:
            save_weights(self.directory.weights_path, weights, self.description.kind)
        return written

    def renew(self) -> None:
        """Rewrite the weights to use of a finished run for another --average or --patience, or after a sudden end.

        Nothing is done where they already are what they should be, or where a checkpoint is missing: good weights stay.
        """
        logged = [event.get("updates") for event in self.event_log.read() if event["event"] == "average"]
        there = self.directory.weights_path.exists() and logged[-1:] == [checkpoint.to_average(self.progress, self.config)]
        if self.ranks.from_first(not there and self.ranks.first and self.average(partial=False)):
            self.finish()

    def finish(self) -> None:
        """Log and print which checkpoints the weights to use are the mean of, and their scores."""
        model = self.trainer.model
        if self.ranks.first:
            model.load_state_dict(load_weights(self.directory.weights_path))
        self.ranks.broadcast(model.state_dict().values())
        scores, summary = self._scores()
        self._log({"event": "average", "step": self.progress.update, "updates": self.averaged} | scores)
        self.reporter.say(f"the weights to use: the average of updates {', '.join(map(str, self.averaged))}; {summary}")

    def log(self, interval: Event) -> None:
        """Add a line of training to the log, and show how far the run has come."""
        if not self.ranks.first:
            return
        reporter, update, size = self.reporter, self.progress.update, self.progress.micro_batch_tokens
        self._log(interval | {"minutes": round(self._minutes(), 2)})
        if size < self.micro_batch_tokens:
            self.warn_once(f"out of memory: continuing with micro-batches of {size:,} tokens")
        status = f"loss {interval['loss']:.3f}, {interval['tokens_per_second']:,} tokens/s, {self._time_left(update)} left"
        reporter.bar.update(self.task, completed=update, status=status)
        if reporter.bar.disable and update % LINE_EVERY == 0:
            reporter.say(f"update {update:,} of {self.config.steps:,}: {status}, lr {interval['lr']:.2e}")

    def write_report(self) -> None:
        """Write report.html from the log."""
        if self.ranks.first:
            with self._survive("report.html is not written", Exception):
                report.write(self.data.saved, self.data.valid)
            self.reported_at = time.perf_counter()

    def _scores(self) -> tuple[Event, str]:
        """What the log says of the validations of this model, and a summary for a person."""
        event, summary, began = Event(), [], time.perf_counter()
        for split, validator in self.validators.items():
            try:
                found = validator.validate(self.trainer.model, self.progress.micro_batch_tokens, self.ranks)
            except Exception as error:  # training is worth more than a score
                self.reporter.warn(f"{validator.name} failed ({error})")
                event["validation_error"] = str(error)
                continue
            summary.append(validator.summary(found))
            if split == BEFORE:
                found = {BEFORE: {"name": validator.name, "bleu": found["bleu"], "perplexity": found["perplexity"]}}
            event |= found
        self.validation_seconds.append(time.perf_counter() - began)
        return event, "; ".join(summary) or "not validated"

    def _time_left(self, update: int) -> str:
        """Time to the end of the run; printed once, and once more when the first validation has shown its share of it."""
        steps, every, done = self.config.steps, self.config.validate_every, update - self.resumed_at
        seconds = self.validation_seconds
        # Validations from this update on, the last update's, and the one of the weights to use.
        ahead = (steps - 1) // every - (update - 1) // every + 2 if self.validators else 0
        updating = (steps - update) * (time.perf_counter() - self.since - sum(seconds)) / done
        left, known = updating + ahead * sum(seconds) / max(1, len(seconds)), bool(seconds) or not ahead
        if done >= ESTIMATE_AFTER and known not in self.estimated:
            self.estimated.add(known)
            unknown = "" if known else "; how long these take, the first will show"
            to_do = f"{counted(steps - update, 'update')} and {counted(ahead, 'validation')}"
            self.reporter.say(f"about {duration(left)} to the end, {to_do} from here{unknown}")
            if left > A_DAY:
                self.warn_once("this is more than a day; a smaller --preset or fewer --steps finish sooner")
        return duration(left) if known else f"over {duration(left)}"

    def _minutes(self) -> float:
        """Since the run's first start, without the time between a stop and a resume."""
        return self.minutes_before + (time.perf_counter() - self.started) / 60

    @cached_property
    def _board(self) -> TensorBoard:
        return TensorBoard(self.directory.tensorboard, self.resumed_at)

    def _log(self, event: Event) -> None:
        if not self.ranks.first:
            return
        with self._survive("an event is missing in the log"):
            self.event_log.append(event)
        with self._survive("TensorBoard's logs are not written", Exception):
            self._board.add(event)
        if event["event"] != "training" or time.perf_counter() - self.reported_at > REPORT_EVERY:
            self.write_report()

    @contextmanager
    def _survive(self, loss: str, errors: type[Exception] = OSError) -> Iterator[None]:
        """Warn of an error, and continue: a full disk costs a checkpoint, not the run. `loss` is what is missing then.

        What only shows the run, a page or TensorBoard's logs, may fail in any way.
        """
        try:
            yield
        except errors as error:
            fault = first_line(error)
            if isinstance(error, OSError):
                fault = f"{error.filename or self.directory.path}: {error.strerror or error}"
            self.warn_once(f"{fault}; {loss}")
