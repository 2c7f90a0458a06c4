"""A training run from request to model directory: resolve what it is, prepare its data, train. It composes all rooms.

Under torchrun every rank runs this. Rank 0 decides and the others follow; it alone writes and speaks.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from nmt import devices, settings
from nmt.data import corpus as corpora
from nmt.data.batching import Plan
from nmt.data.cache import Cache
from nmt.errors import Interrupted, NmtError, UsageError, stop_signals
from nmt.event_log import EventLog
from nmt.formatting import counted, duration, table
from nmt.lines import is_blank
from nmt.lock import locked
from nmt.looks import unlike
from nmt.model.build import build
from nmt.model_directory import ModelDirectory
from nmt.process import this_process
from nmt.reporting import Reporter
from nmt.run_data import RunData, Workspace, prepare
from nmt.saved_model import Text
from nmt.session import Session, write_average
from nmt.settings import Request, RunPlan
from nmt.training import checkpoint
from nmt.training.checkpoint import Progress
from nmt.training.probe import find_micro_batch
from nmt.training.ranks import Ranks
from nmt.training.trainer import Trainer
from nmt.validation import Validator
from nmt.weights import load_weights

MANY_EPOCHS = 400  # after so many a model knows its corpus by heart
PADDED = 1.25  # cells per token of an update that a single micro-batch is to hold


def train(path: Path, request: Request, reporter: Reporter) -> None:
    """Train into the model directory, or resume the run that is there. Raises NmtError and UsageError."""
    started_at = time.perf_counter()
    options = settings.check(request)
    origin = options.origin
    if origin and origin.directory.path.resolve() == path.resolve():
        raise UsageError(f"--from {request.origin}: a model cannot replace itself; name another directory with --model")
    directory, process = ModelDirectory(path), this_process()
    with (
        Ranks.joined(options.device) as ranks,
        locked(directory, request.restart) if process.first else nullcontext() as started,
    ):
        cache = Cache.find(path, reporter.say)
        corpus = None
        if process.first_on_machine:
            corpus = corpora.load(request.data, *options.languages, cache, reporter.warn)

        def resolve() -> RunPlan:
            assert corpus
            plan = settings.resolve(options, corpus, ranks.count)
            reporter.say(f"{'recipe' if origin else 'preset'} {plan.preset}: {plan.recipe.source}")
            if origin and (doubt := unlike(corpus.form, origin.description.data.form)):
                reporter.warn(f"--data {corpus.name}: {doubt}")
            return plan

        plan = ranks.share(resolve)
        work = Workspace(directory, started, origin, cache, ranks, reporter)
        _Run(plan, prepare(plan, corpus, work), work, options.device).run(started_at)


class _Run:
    """One call of `nmt train` on one rank, once plan and data are known."""

    def __init__(self, plan: RunPlan, data: RunData, work: Workspace, device: torch.device) -> None:
        self.plan, self.data, self.config, self.device = plan, data, plan.recipe.training, device
        self.directory, self.ranks, self.reporter = work.directory, work.ranks, work.reporter

    def run(self, started_at: float) -> None:
        """Train from the newest checkpoint, or from the beginning, to the last update."""
        config, reporter, plan = self.config, self.reporter, self.plan
        torch.manual_seed(config.seed)
        model = build(plan.recipe.model, len(self.data.vocabulary)).to(self.device)
        updates = Plan(self.data.pairs, config.tokens_per_update, config.seed)
        compiled = devices.can_compile(self.device, reporter.warn)
        trainer = Trainer(model, updates, config, self.device, config.precision, self.ranks, compiled)
        self._resume(trainer)
        progress, finished = trainer.progress, _finished(trainer)
        averaged = self.ranks.from_first(self._new_average(progress) if finished and self.ranks.first else [])
        if finished and not averaged:
            self._say_finished(progress)
            return
        validator = self._validator("valid", self.data.valid)
        old = self._validator(f"old {plan.origin['data']}", self.data.before) if plan.origin else None
        if not finished:
            self._announce(trainer, validator)
        session = Session(self.directory, self.data.description.kind, trainer, validator, old, reporter, started_at)
        if finished:
            session.averaged = averaged
            session.finish()
            self._say_finished(progress)
            return
        with _signals(reporter, self.ranks) as signals, reporter:
            if plan.origin:
                session.begin()
            session.train(lambda: bool(signals))
        self._conclude(session, trainer, signals)

    def _new_average(self, progress: Progress) -> list[int]:
        """Rewrite the weights to use of a finished run for another --average or --patience, or after a sudden end.

        Returns the updates they are now the mean of. None where they already were, or where a checkpoint is missing: good
        weights stay.
        """
        planned = checkpoint.to_average(progress, self.config)
        events = EventLog(self.directory.metrics_path).read()
        logged = [event.get("updates") for event in events if event["event"] == "average"]
        if not planned or (logged[-1:] == [planned] and self.directory.weights_path.exists()):
            return []
        found = write_average(self.directory, planned, self.data.description.kind, partial=False)
        if found == planned:
            return found
        way_out = f"; --average {len(found)} takes those that are whole" if found else ""
        self.reporter.warn(
            f"the weights to use stay as they are: of an average of {counted(len(planned), 'checkpoint')}, that of update "
            f"{max({*planned} - {*found}):,} is damaged or gone{way_out}"
        )
        return []

    def _say_finished(self, progress: Progress) -> None:
        more = "--patience" if progress.update < self.config.steps else "--steps"
        done = counted(progress.update, "update")
        self.reporter.say(f"{self.directory.path}: this run is finished ({done}); train on with a larger {more}")

    def _conclude(self, session: Session, trainer: Trainer, signals: list[int]) -> None:
        """Say how to continue. Raises NmtError where the run has not reached its end."""
        progress = trainer.progress
        if session.saved_at < progress.update:  # on a full disk
            raise NmtError(
                f"stopped after update {progress.update:,}, which could not be saved; the same command resumes after update "
                f"{session.saved_at:,}, once there is room"
            )
        if not session.recorded and trainer.finished():
            raise NmtError(
                f"the validation of update {progress.update:,} could not be recorded; the same command repeats it, once there "
                "is room"
            )
        if not _finished(trainer):
            number = signals[0] if signals else signal.SIGTERM  # another rank received it
            raise Interrupted(f"stopped after update {progress.update:,} and saved; the same command resumes there", number)
        session.finish()
        here = self.directory.path
        steps = [
            ("see how it went", f"{self.directory.report_path} in a browser"),
            ("translate", f"nmt translate -m {here} FILE"),
        ]
        if self.data.description.data.lines.get("test"):
            steps.insert(1, ("score the held-out test set", f"nmt score -m {here}"))
        self.reporter.say(f"done after {duration(60 * progress.minutes)}. Next:\n{table(steps)}")

    def _validator(self, name: str, text: Text | None) -> Validator | None:
        """The validator of a text, if any of its lines has text on both sides."""
        if text is None or all(is_blank(source) or is_blank(target) for source, target in zip(*text, strict=True)):
            return None
        copies = self.data.description.data.copies_letterless
        return Validator(name, *text, self.plan.languages, self.data.vocabulary, self.config, copies)

    def _resume(self, trainer: Trainer) -> None:
        """Bring the trainer on every rank to rank 0's newest checkpoint, or to a common beginning."""
        config, ranks, model, optimizer = self.config, self.ranks, trainer.model, trainer.optimizer
        progress = ranks.share(lambda: self._load_checkpoint(trainer))
        ranks.broadcast(model.state_dict().values())
        ranks.broadcast(moment for state in optimizer.state.values() for moment in state.values())
        trainer.begin(progress)
        if ranks.first:
            validated = [update for update, _ in progress.validations]
            EventLog(self.directory.metrics_path).truncate(
                progress.update, [0, *validated] if progress.update else [], _finished(trainer)
            )
        fitted_to = f"{ranks.count} x {devices.name(trainer.device)}, {config.micro_batch_tokens or 'any'} tokens"
        if ranks.any(progress.fitted_to != fitted_to):  # otherwise the size stays, whether it was halved or not
            if config.micro_batch_tokens or trainer.device.type == "cpu":
                progress.micro_batch_tokens = config.micro_batch_tokens or self.plan.recipe.micro_batch_tokens
            else:
                largest = round(config.tokens_per_update * PADDED / ranks.count)
                progress.micro_batch_tokens = min(ranks.gather(find_micro_batch(trainer, largest)))
        progress.fitted_to = ranks.from_first(fitted_to)

    def _load_checkpoint(self, trainer: Trainer) -> Progress:
        """Load the newest checkpoint, or for a new run the weights it starts from, and return its progress."""
        directory, kind = self.directory, self.data.description.kind
        resumed, damaged = checkpoint.resume(directory.checkpoints, trainer.model, trainer.optimizer, kind)
        for fault in damaged:
            self.reporter.warn(f"{fault}; resuming from the checkpoint before it")
        if resumed:
            return resumed
        events = EventLog(directory.metrics_path).read()
        if any(event["event"] == "validation" and event["step"] for event in events):
            raise UsageError(
                f"{directory.path}: its checkpoints are gone, so training cannot resume; the model still translates, and "
                "--restart starts over"
            )
        if self.plan.origin:
            trainer.model.load_state_dict(load_weights(directory.weights_path, kind))
        return Progress()

    def _announce(self, trainer: Trainer, validator: Validator | None) -> None:
        """Say what is trained, on what, for how long, and from where."""
        if not self.ranks.first:  # only rank 0's machine has the directory
            return
        config, progress, model = trainer.config, trainer.progress, trainer.model
        each = f"{self.ranks.count} ranks, each on " if self.ranks.count > 1 else ""
        there = self.directory.checkpoints  # may be a link to another disk
        place = there if there.exists() else self.directory.path
        needed, free = checkpoint.size(model, config.average), shutil.disk_usage(place).free
        taken = sum(path.stat().st_size for path in there.rglob("*") if path.is_file())
        self.reporter.say(
            f"model: {model.count_parameters():,} parameters on {each}{devices.describe(trainer.device, trainer.precision)}; "
            f"micro-batches of {progress.micro_batch_tokens:,} tokens; seed {config.seed}; "
            f"checkpoints take up to {needed / 2**20:,.0f} MiB"
        )
        if needed > free + taken:
            self.reporter.warn(f"{place}: only {free / 2**20:,.0f} MiB are free there")
        tokens = int(trainer.plan.targets.sum())
        epoch = counted(max(1, round(tokens / config.tokens_per_update)), "update")
        self.reporter.say(
            f"updates: {config.steps:,} of about {config.tokens_per_update:,} target tokens; "
            f"an epoch has {tokens:,} tokens, or {epoch}"
        )
        epochs = round(config.steps * config.tokens_per_update / tokens)
        sooner = "--patience 3 stops after 3 validations without a better BLEU" if validator else "fewer --steps may do"
        if epochs > MANY_EPOCHS and not config.patience:
            self.reporter.warn(f"that is {epochs:,} times through the corpus; {sooner}")
        if config.patience and not validator and not self.plan.origin:
            self.reporter.warn("--patience has no effect: there is no validation text, and so no BLEU")
        if progress.update:
            last = "" if progress.last_loss is None else f", last loss {progress.last_loss:.3f}"
            self.reporter.say(f"resuming after update {progress.update:,}, rate {trainer.learning_rate():.2e}{last}")


def _finished(trainer: Trainer) -> bool:
    """Whether nothing of the run is left to do, including its last validation."""
    return trainer.finished() and not trainer.validation_due()


@contextmanager
def _signals(reporter: Reporter, ranks: Ranks) -> Iterator[list[int]]:
    """Collect the signals that ask the run to stop, so that the update can be finished. A second one stops at once.

    Under torchrun, which may send one twice, a second one has no effect; torchrun itself kills ranks that take too long.
    """
    received: list[int] = []

    def receive(number: int, _frame: Any) -> None:
        if received and ranks.count == 1:
            raise KeyboardInterrupt
        if not received and not reporter.quiet:
            once_more = "" if ranks.count > 1 else "; once more to stop at once, and lose what is not saved"
            with suppress(OSError):  # written directly, because this may have interrupted the reporter
                os.write(2, f"stopping after this update{once_more}\n".encode())
        received.append(number)

    numbers = stop_signals() + [signal.SIGINT] * (signal.getsignal(signal.SIGINT) != signal.SIG_IGN)
    previous: dict[int, Any] = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
