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
from nmt.data.batching import Plan
from nmt.data.cache import Cache
from nmt.data.mixture import load_all, shares
from nmt.data.preparation import JoinedPairs
from nmt.data.variation import Variation
from nmt.errors import EverywhereError, Interrupted, UsageError, stop_signals
from nmt.event_log import EventLog
from nmt.formatting import counted, duration, table
from nmt.lock import locked
from nmt.looks import unlike
from nmt.model.build import build
from nmt.model_directory import ModelDirectory
from nmt.process import this_process
from nmt.reporting import Reporter
from nmt.run_data import RunData, Workspace, prepare
from nmt.session import Session
from nmt.settings import Request, RunPlan
from nmt.training import checkpoint
from nmt.training.checkpoint import Progress
from nmt.training.probe import find_micro_batch
from nmt.training.ranks import Ranks
from nmt.training.trainer import Trainer
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
        mixture = None
        if process.first_on_machine:
            mixture = load_all(options.data, *options.languages, cache, reporter.warn, options.recipe.training.clean)

        def resolve() -> RunPlan:
            assert mixture
            plan = settings.resolve(options, mixture, ranks.count)
            reporter.say(f"{'recipe' if origin else 'preset'} {plan.preset}: {plan.recipe.source}")
            form = origin.description.data.form if origin else mixture.main.form
            for corpus in mixture.corpora:
                if doubt := unlike(corpus.form, form):
                    reporter.warn(f"--data {corpus.name}: {doubt}")
            return plan

        plan = ranks.share(resolve)
        work = Workspace(directory, started, origin, cache, ranks, reporter)
        data = prepare(plan, mixture, work)
        trainer = _trainer(plan, data, work, options.device)
        session = Session(plan, data, work, trainer, started_at)
        if trainer.done():
            session.renew()
            done, more = trainer.progress.update, "steps" if trainer.progress.update >= trainer.config.steps else "patience"
            reporter.say(f"{path}: this run is finished ({counted(done, 'update')}); train on with a larger --{more}")
            return
        _announce(session)
        with _signals(reporter, ranks) as signals, reporter:
            session.train(lambda: bool(signals))
        _conclude(session, signals)


def _trainer(plan: RunPlan, data: RunData, work: Workspace, device: torch.device) -> Trainer:
    """The trainer, on every rank where rank 0's newest checkpoint has left off, or at a common beginning."""
    config, ranks, log = plan.recipe.training, work.ranks, EventLog(work.directory.metrics_path)
    torch.manual_seed(config.seed)
    model = build(plan.recipe.model, len(data.vocabulary)).to(device)
    updates = _updates(plan, data)
    compiled = devices.can_compile(device, work.reporter.warn)
    trainer = Trainer(model, updates, config, device, config.precision, ranks, compiled)
    progress = ranks.share(lambda: _load_checkpoint(plan, data, work, trainer))
    ranks.broadcast(model.state_dict().values())
    ranks.broadcast(moments for state in trainer.optimizer.state.values() for moments in state.values())
    trainer.begin(progress)
    if ranks.first:
        validated = [update for update, _ in progress.validations]
        log.truncate(progress.update, [0, *validated] if progress.update else [], trainer.done())
    fitted_to = f"{ranks.count} x {devices.name(device)}, {config.micro_batch_tokens or 'any'} tokens"
    if ranks.any(progress.fitted_to != fitted_to):  # otherwise the size stays, whether it was halved or not
        size = config.micro_batch_tokens or plan.recipe.micro_batch_tokens
        if not config.micro_batch_tokens and device.type != "cpu":
            largest = round(config.tokens_per_update * PADDED / ranks.count)
            size = min(ranks.gather(find_micro_batch(trainer, largest)))
        progress.micro_batch_tokens = size
    progress.fitted_to = ranks.from_first(fitted_to)
    return trainer


def _updates(plan: RunPlan, data: RunData) -> Plan:
    """The updates of all epochs, each with its share of every corpus."""
    config, variation = plan.recipe.training, Variation.of(data.vocabulary, plan.recipe.training)
    tokens = [int(pairs.targets.sum()) for pairs in data.pairs]
    found = shares(plan.corpora, tokens, config.synthetic_share)
    parts = [(len(pairs), share) for pairs, share in zip(data.pairs, found, strict=True)]
    pairs = JoinedPairs(data.pairs) if len(data.pairs) > 1 else data.pairs[0]
    return Plan(pairs, config.tokens_per_update, config.seed, variation, parts)


def _load_checkpoint(plan: RunPlan, data: RunData, work: Workspace, trainer: Trainer) -> Progress:
    """Load the newest checkpoint, or for a new run the weights it starts from, and return its progress."""
    directory, kind = work.directory, data.saved.description.kind
    resumed, damaged = checkpoint.resume(directory.checkpoints, trainer.model, trainer.optimizer, kind)
    for fault in damaged:
        work.reporter.warn(f"{fault}; resuming from the checkpoint before it")
    if resumed:
        return resumed
    events = EventLog(directory.metrics_path).read()
    if any(event["event"] == "validation" and event["step"] for event in events):
        raise UsageError(f"{directory.path}: its checkpoints are gone, so training cannot resume; --restart starts over")
    if plan.origin:
        trainer.model.load_state_dict(load_weights(directory.weights_path, kind))
    return Progress()


def _announce(session: Session) -> None:
    """Say what is trained, on what, for how long, and from where."""
    trainer, config, progress, reporter = session.trainer, session.config, session.progress, session.reporter
    if not session.ranks.first:  # only rank 0's machine has the directory
        return
    place = devices.describe(trainer.device, trainer.precision)
    if session.ranks.count > 1:
        place = f"{session.ranks.count} ranks, each on {place}"
    folder = session.directory.checkpoints  # may be a link to another disk
    free = shutil.disk_usage(folder if folder.exists() else session.directory.path).free
    needed = checkpoint.size(trainer.model, config.average)
    reporter.say(
        f"model: {trainer.model.count_parameters():,} parameters on {place}; "
        f"micro-batches of {progress.micro_batch_tokens:,} tokens; seed {config.seed}; "
        f"checkpoints take up to {needed / 2**20:,.0f} MiB"
    )
    if needed > free and not progress.update:
        reporter.warn(f"{folder}: only {free / 2**20:,.0f} MiB are free there")
    tokens = int(trainer.plan.pairs.targets.sum())
    epoch = counted(max(1, round(tokens / config.tokens_per_update)), "update")
    reporter.say(
        f"updates: {config.steps:,} of about {config.tokens_per_update:,} target tokens; "
        f"an epoch has {tokens:,} tokens, or {epoch}"
    )
    epochs = round(config.steps * config.tokens_per_update / tokens)
    if epochs > MANY_EPOCHS and not config.patience:
        reporter.warn(
            f"that is {epochs:,} times through the corpus; try fewer --steps, or --patience 3 if there is validation text"
        )
    if config.patience and not session.validators:
        reporter.warn("--patience has no effect: there is no validation text, and so no BLEU")
    if progress.update:
        last = "" if progress.last_loss is None else f", last loss {progress.last_loss:.3f}"
        reporter.say(f"resuming after update {progress.update:,}, rate {trainer.learning_rate():.2e}{last}")


def _conclude(session: Session, signals: list[int]) -> None:
    """Finish the run and say what to do next. Raises NmtError where the run has not reached its end."""
    update, here = session.progress.update, session.directory.path
    if not session.safe:  # on a full disk
        raise EverywhereError(
            f"update {update:,} or its validation could not be saved; the same command resumes after update "
            f"{session.saved_at:,}, once there is room"
        )
    if not session.trainer.done():
        number = signals[0] if signals else signal.SIGTERM  # another rank received it
        raise Interrupted(f"stopped after update {update:,} and saved; the same command resumes there", number)
    session.finish()
    steps = [
        ("see how it went", f"{session.directory.report_path} in a browser"),
        ("translate", f"nmt translate -m {here} FILE"),
    ]
    if session.description.data.lines.get("test"):
        steps.insert(1, ("score the held-out test set", f"nmt score -m {here}"))
    session.reporter.say(f"done after {duration(60 * session.progress.minutes)}. Next:\n{table(steps)}")


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
            with suppress(OSError):  # written directly, because this may have interrupted the reporter
                os.write(2, b"stopping after this update; once more to stop at once, and lose what is not saved\n")
        received.append(number)

    numbers = stop_signals() + [signal.SIGINT] * (signal.getsignal(signal.SIGINT) != signal.SIG_IGN)
    previous: dict[int, Any] = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
