"""A training run from settings to model directory: the place that composes the rooms.

Under torchrun every rank runs this. Rank 0 settles what is to be done and tells the others; it alone writes and speaks.
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
import torch.distributed as dist

from nmt import devices
from nmt.data import corpus as corpora
from nmt.data.batching import Plan
from nmt.data.cache import Cache
from nmt.data.corpus import Corpus
from nmt.data.preparation import prepare_corpus
from nmt.data.prepared import PreparedPairs
from nmt.data.vocabulary import Vocabulary
from nmt.errors import NmtError, UsageError, stop_signals
from nmt.formatting import counted, duration, table
from nmt.lines import is_blank
from nmt.model.transformer import Transformer
from nmt.model_directory import ModelDirectory
from nmt.reporting import Reporter, one_voice
from nmt.session import Session, to_average, write_average
from nmt.settings import Request, Settings, Settler, Text, describe_data, presets_for
from nmt.training import checkpoint
from nmt.training.checkpoint import Progress
from nmt.training.probe import find_micro_batch
from nmt.training.ranks import Ranks
from nmt.training.trainer import Trainer
from nmt.validation import Validator
from nmt.weights import load_weights

OFTEN = 400  # times through a corpus, by which a model has it by heart
AS_PADDED = 1.25  # times an update's tokens are the cells to make room for, if one micro-batch is to hold it


class Interrupted(NmtError):
    """A signal asked the run to stop; all is saved. Every rank raises it."""

    everywhere = True

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


def train(path: Path, request: Request, reporter: Reporter) -> None:
    """Train into the model directory, or go on with the run that is there. Raises NmtError and UsageError."""
    started = time.perf_counter()
    # Before the ranks have met, those of a machine all fail alike.
    with one_voice(reporter, lambda _: not dist.is_initialized()):
        candidates, config = presets_for(request)
        directory = ModelDirectory(path)
        with (
            Ranks.join(devices.find_device(config.device)) as ranks,
            directory.locked(request.restart) if ranks.first else nullcontext(),
        ):
            cache = Cache.find(path, reporter.say)
            corpus = (
                corpora.load(request.data, *request.languages(), cache, reporter.warn)
                if ranks.on_machine == 0
                else None
            )

            def settle() -> Settings:
                assert corpus is not None, "rank 0 is the first of its machine"
                return Settler(directory, corpus, cache, ranks.count, reporter).settle(request, candidates, config)

            settings = ranks.share(settle)
            _Run(directory, settings, ranks, reporter).go_on(corpus, cache, started)


class _Run:
    """One call of `nmt train` on one directory, on one rank."""

    def __init__(self, directory: ModelDirectory, settings: Settings, ranks: Ranks, reporter: Reporter) -> None:
        self.directory, self.settings, self.ranks, self.reporter = directory, settings, ranks, reporter
        self.config = settings.training
        self.vocabulary = Vocabulary(settings.vocabulary)

    def go_on(self, corpus: Corpus | None, cache: Cache, started: float) -> None:
        """Train from the newest checkpoint, or from the beginning, to the last update.

        The first rank of each machine has the corpus, and makes the ids that all of its ranks map into memory.
        """
        config, reporter, ranks = self.config, self.reporter, self.ranks
        folder = ranks.share(lambda: self._prepare(corpus, cache), each_machine=True)
        pairs = PreparedPairs.open(folder)
        device = devices.find_device(config.device)
        torch.manual_seed(config.seed)
        model = Transformer(self.settings.model, len(self.vocabulary)).to(device)
        plan = Plan(pairs, config.tokens_per_update, config.seed)
        compiled = devices.can_compile(device, reporter.warn)
        trainer = Trainer(model, plan, config, device, config.precision, ranks, compiled)
        self._take_up(trainer)
        progress = trainer.progress
        over = _over(trainer)
        averaged = ranks.hand_out(self._average_anew(progress) if over and ranks.first else [])
        if over and not averaged:
            self._tell_finished(progress)
            return
        validator = self._validator("valid", self.settings.valid)
        before = self._validator(f"old {self.settings.origin}", self.settings.before)
        if not over:
            self._announce(trainer, validator)
        session = Session(self.directory, config, trainer, validator, before, reporter, started)
        if over:
            session.averaged = averaged
            session.finish()
            self._tell_finished(progress)
            return
        with _signals(reporter, ranks) as signals, reporter:
            if self.settings.origin is not None:
                session.begin()
            trainer.run(session.save, session.validate, session.log, lambda: bool(signals))
            session.write_report()
        self._conclude(session, trainer, signals)

    def _average_anew(self, progress: Progress) -> list[int]:
        """Of a finished run, make up for another --average or --patience, or for a sudden end: the updates whose mean the
        weights to use have become. None where they were that before, or where a checkpoint is missing: good weights stay.
        """
        directory, asked = self.directory, to_average(progress, self.config)
        logged = [event.get("updates") for event in directory.events() if event["event"] == "average"]
        if not asked or (logged[-1:] == [asked] and directory.weights_path.exists()):
            return []
        found = write_average(directory, progress, self.config, directory.describe().kind, fewer=False)
        if found == asked:
            return found
        way_out = f"; --average {len(found)} takes those that are whole" if found else ""
        self.reporter.warn(
            f"the weights to use stay as they are: for an average of {counted(len(asked), 'checkpoint')}, that of update "
            f"{max({*asked} - {*found}):,} is damaged or gone{way_out}"
        )
        return []

    def _tell_finished(self, progress: Progress) -> None:
        more = "--patience" if progress.update < self.config.steps else "--steps"
        done = counted(progress.update, "update")
        self.reporter.say(f"{self.directory.path}: this run is finished ({done}); more with {more}")

    def _conclude(self, session: Session, trainer: Trainer, signals: list[int]) -> None:
        """Say how to go on from here. Raises NmtError where the run has not come to its end."""
        progress = trainer.progress
        if session.saved_at < progress.update:  # a full disk: the one before is whole
            raise NmtError(
                f"stopped after update {progress.update:,}, which could not be saved; the same command goes on after "
                f"update {session.saved_at:,}, once there is room"
            )
        if not session.recorded and trainer.finished():
            raise NmtError(
                f"the validation of update {progress.update:,} could not be recorded; the same command does it again, "
                "once there is room"
            )
        if not _over(trainer):
            number = signals[0] if signals else signal.SIGTERM  # noted by another rank, then
            raise Interrupted(
                f"stopped after update {progress.update:,} and saved; the same command goes on from there", number
            )
        session.finish()
        here = self.directory.path
        steps = [
            ("see how it went", f"{self.directory.report_path} in a browser"),
            ("translate", f"nmt translate -m {here} FILE"),
        ]
        # Only the first is sure to have the directory.
        if self.ranks.first and self.directory.describe().data.lines.get("test"):
            steps.insert(1, ("score the held-out test set", f"nmt score -m {here}"))
        self.reporter.say(f"done after {duration(60 * progress.minutes)}. Next:\n{table(steps)}")

    def _prepare(self, corpus: Corpus | None, cache: Cache) -> Path:
        """Where this machine has the training pairs as ids."""
        assert corpus is not None, "the first rank of a machine has loaded it"
        if describe_data(corpus)["sha256"] != self.settings.data["sha256"]:
            raise UsageError(f"--data {corpus.name}: the text on this machine is another than rank 0's; copy it here")
        prepared = prepare_corpus(corpus, self.vocabulary, self.config, cache)
        self.reporter.say(f"{corpus.name}: {prepared.report}")
        for note in prepared.notes:
            self.reporter.say(note)
        self.reporter.say(f"ids: {prepared.folder}")
        return prepared.folder

    def _validator(self, name: str, text: Text | None) -> Validator | None:
        """Of held-out lines, if any of them has text on both sides."""
        if text is None or all(is_blank(source) or is_blank(target) for source, target in zip(*text, strict=True)):
            return None
        settings, config = self.settings, self.config
        return Validator(name, *text, settings.languages, self.vocabulary, config, config.precision, settings.copies)

    def _take_up(self, trainer: Trainer) -> None:
        """Bring the trainer, on every rank, to where rank 0's newest checkpoint stands, or to one beginning for all."""
        config, ranks, model, optimizer = self.config, self.ranks, trainer.model, trainer.optimizer
        progress = Progress()
        if ranks.first:
            kind = self.directory.describe().kind
            resumed, torn = checkpoint.resume(self.directory.checkpoints, model, optimizer, kind)
            for fault in torn:
                self.reporter.warn(f"{fault}; going on from the checkpoint before it")
            if resumed:
                progress = resumed
            elif any(event["event"] == "validation" and event["step"] for event in self.directory.events()):
                raise UsageError(
                    f"{self.directory.path}: its checkpoints are gone, so that training cannot go on; "
                    "the model still translates, and --restart begins anew"
                )
            elif self.settings.origin:
                model.load_state_dict(load_weights(self.directory.weights_path, kind))
        if ranks.count > 1:
            moments = optimizer.state_dict() if progress.update else None
            progress, weights, moments = ranks.hand_out((progress, model.state_dict(), moments))
            if not ranks.first:
                model.load_state_dict(weights)
                if moments:
                    optimizer.load_state_dict(moments)
        trainer.begin(progress)
        if ranks.first:
            validated = [update for update, _ in progress.validations]
            self.directory.cut_log(progress.update, [0, *validated] if progress.update else [], _over(trainer))
        fitted_to = f"{ranks.count} x {devices.name(trainer.device)}, {config.micro_batch_tokens or 'any'} tokens"
        if ranks.any(progress.fitted_to != fitted_to):  # else the size stays, halved or not
            if config.micro_batch_tokens or trainer.device.type == "cpu":
                progress.micro_batch_tokens = config.micro_batch_tokens or self.settings.preset.micro_batch_tokens
            else:
                most = round(config.tokens_per_update * AS_PADDED / ranks.count)
                progress.micro_batch_tokens = min(ranks.gather(find_micro_batch(trainer, most)))
        progress.fitted_to = ranks.hand_out(fitted_to)

    def _announce(self, trainer: Trainer, validator: Validator | None) -> None:
        """Say on what, how much and from where."""
        if not self.ranks.first:  # whose machine may not have the directory
            return
        config, progress, model = trainer.config, trainer.progress, trainer.model
        each = f"{self.ranks.count} ranks, each on " if self.ranks.count > 1 else ""
        there = self.directory.checkpoints  # perhaps a link to another disk
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
        self.reporter.say(
            f"updates: {config.steps:,} of about {config.tokens_per_update:,} target tokens; "
            f"an epoch has {tokens:,} tokens, or {counted(max(1, round(tokens / config.tokens_per_update)), 'update')}"
        )
        passes = round(config.steps * config.tokens_per_update / tokens)
        sooner = "--patience 3 stops after 3 validations without a better BLEU" if validator else "fewer --steps may do"
        if passes > OFTEN and not config.patience:
            self.reporter.warn(f"that is {passes:,} times through the corpus; {sooner}")
        if config.patience and not validator and not self.settings.origin:
            self.reporter.warn("--patience has no effect: there is no validation text, and so no BLEU")
        if progress.update:
            last = "" if progress.last_loss is None else f", last loss {progress.last_loss:.3f}"
            self.reporter.say(f"going on after update {progress.update:,}, rate {trainer.learning_rate():.2e}{last}")


def _over(trainer: Trainer) -> bool:
    """Whether nothing of the run is left to do, its last validation included."""
    return trainer.finished() and not trainer.validation_due()


@contextmanager
def _signals(reporter: Reporter, ranks: Ranks) -> Iterator[list[int]]:
    """Signals that asked the run to stop, noted so that an update can be finished. A second one stops at once.

    Not under torchrun, which may send it more than once, and by itself ends a rank that takes longer than it likes.
    """
    noted: list[int] = []

    def note(number: int, _frame: Any) -> None:
        if noted and ranks.count == 1:
            raise KeyboardInterrupt
        if not noted and ranks.first and not reporter.quiet:
            once_more = "" if ranks.count > 1 else "; once more to stop at once, and lose what is not saved"
            with suppress(OSError):  # not through the reporter, whose writing this may have interrupted
                os.write(2, f"stopping after this update{once_more}\n".encode())
        noted.append(number)

    heard = stop_signals() + [signal.SIGINT] * (signal.getsignal(signal.SIGINT) != signal.SIG_IGN)
    previous: dict[int, Any] = {number: signal.signal(number, note) for number in heard}
    try:
        yield noted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
