"""Prepare the data of a planned run: vocabulary, ids and held-out text. A new run's directory is written here."""

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sacrebleu
import sentencepiece
import torch

import nmt
from nmt.data.cache import Cache
from nmt.data.cleaning import copies_letterless
from nmt.data.corpus import Corpus
from nmt.data.preparation import data_description, learn_vocabulary, prepare_corpus
from nmt.data.prepared import PreparedPairs
from nmt.data.vocabulary import SAMPLE, Vocabulary
from nmt.description import kind_of
from nmt.errors import UsageError
from nmt.formatting import blank_lines, counted
from nmt.lines import is_blank
from nmt.model_directory import BEFORE, ModelDirectory
from nmt.reporting import Reporter
from nmt.saved_model import SavedModel, Text
from nmt.settings import RunPlan
from nmt.storage import remove
from nmt.training.ranks import Ranks
from nmt.weights import save_weights


@dataclass(frozen=True)
class Workspace:
    """Where a run reads and writes, and whom it talks to. Only rank 0 uses the directory."""

    directory: ModelDirectory
    started: SavedModel | None  # the run in the directory, if one is to be resumed
    origin: SavedModel | None  # the model to fine-tune
    cache: Cache
    ranks: Ranks
    reporter: Reporter


@dataclass(frozen=True)
class HeldOut:
    """What rank 0 reads from the model directory for all ranks."""

    valid: Text | None
    before: Text | None  # validation text of the model that this one started from
    copies_letterless: bool  # whether lines without a letter are copied and not translated
    kind: str  # of the weights, see description.py
    has_test: bool


@dataclass(frozen=True)
class RunData:
    """Everything training reads, the same on every rank."""

    vocabulary: Vocabulary
    pairs: PreparedPairs
    heldout: HeldOut


def prepare(plan: RunPlan, corpus: Corpus | None, work: Workspace) -> RunData:
    """The data of the run. `corpus` is None on all ranks but the first of each machine.

    Raises UsageError where the run in the directory is another one, or no training pair is left.
    """

    def learn() -> Vocabulary:
        assert corpus
        return _vocabulary(plan, corpus, work)

    def encode() -> tuple[Path, dict[str, Any]]:
        assert corpus
        return _encode(plan, corpus, vocabulary, work)

    def settle() -> HeldOut:
        assert corpus
        return _resume(plan, work.started, work) if work.started else _start(plan, corpus, vocabulary, facts, work)

    vocabulary = work.ranks.share(learn)
    folder, facts = work.ranks.share(encode, on_each_machine=True)
    return RunData(vocabulary, PreparedPairs.open(folder), work.ranks.share(settle))


def _vocabulary(plan: RunPlan, corpus: Corpus, work: Workspace) -> Vocabulary:
    """The vocabulary of the run in the directory, which must be this one; or of the origin; or learned from the corpus."""
    say, training = work.reporter.say, plan.recipe.training
    if work.started:
        before = work.started.description.model_dump(by_alias=True)
        if differences := plan.differences(before):
            raise UsageError(
                f"{work.directory.path} holds another run: " + "; ".join(differences) + ". "
                "Name another directory with --model, give the settings it had, or discard it with --restart"
            )
        for change in plan.runtime_changes(before):
            say(f"{change}: the same updates, but not to the last bit")
        return work.started.vocabulary
    if work.origin:
        return work.origin.vocabulary
    vocabulary = learn_vocabulary(corpus, training, work.cache)
    short = len(vocabulary) < training.vocab_size
    fewer = f" instead of {training.vocab_size:,}, for the corpus yields no more" if short else ""
    pairs = counted(min(corpus.clean(training).kept, SAMPLE), "pair")
    say(f"vocabulary: {counted(len(vocabulary), 'piece')}{fewer}, learned from {pairs}")
    return vocabulary


def _encode(plan: RunPlan, corpus: Corpus, vocabulary: Vocabulary, work: Workspace) -> tuple[Path, dict[str, Any]]:
    """The folder with this machine's ids, encoded now or before, and what config.json says about cleaning and overlap."""
    if {split: text.sha256 for split, text in corpus.splits.items()} != plan.data["sha256"]:
        raise UsageError(f"--data {corpus.name}: the text on this machine differs from rank 0's; copy it here")
    prepared = prepare_corpus(corpus, vocabulary, plan.recipe.training, work.cache)
    if not len(prepared.pairs):
        raise UsageError(f"--data {corpus.name}: no training pair is left after cleaning: {prepared.report}")
    for line in (f"{corpus.name}: {prepared.report}", *prepared.notes, f"ids: {prepared.folder}"):
        work.reporter.say(line)
    return prepared.folder, data_description(corpus, prepared)


def _resume(plan: RunPlan, started: SavedModel, work: Workspace) -> HeldOut:
    """Note runtime changes in config.json."""
    config = {key: value for key, value in started.config.items() if key != "format"}
    work.directory.write_config(config | {"training": plan.recipe.training.model_dump(), "ranks": plan.ranks})
    data, kind = started.description.data, started.description.kind
    has_test = bool(data.lines.get("test"))
    return HeldOut(started.heldout("valid"), started.heldout(BEFORE), data.copies_letterless, kind, has_test)


def _start(plan: RunPlan, corpus: Corpus, vocabulary: Vocabulary, facts: dict[str, Any], work: Workspace) -> HeldOut:
    """Write the directory of a new run: config.json last, which makes it a run's."""
    origin, directory, reporter = work.origin, work.directory, work.reporter
    copies = copies_letterless(corpus.facts)
    if copies is None:
        copies = origin.description.data.copies_letterless if origin else True
    if not copies:
        reporter.say("lines without a letter are translated, as in the training text, and not copied")
    kind = kind_of(plan.languages, plan.recipe.model, vocabulary.sha256)
    # Read before anything is deleted: a damaged origin must not cost the run that --restart discards.
    weights = origin.network().state_dict() if origin else None
    before = origin.heldout("valid") if origin else None
    for path in directory.files():
        if path.is_symlink():
            reporter.say(f"{path}: this link is removed; {path.resolve()}, where it leads, stays")
        remove(path)
    if origin and weights:
        save_weights(directory.weights_path, weights, kind)
        reporter.say(f"from {origin.directory.path}: its vocabulary and weights, a fresh optimiser")
    if before:
        directory.write_heldout(BEFORE, plan.languages, list(zip(*before, strict=True)))
    vocabulary.save(directory.tokenizer_path)
    heldout = {split: list(text) for split, text in corpus.splits.items() if split != "train" and text.count}
    for split, pairs in heldout.items():
        directory.write_heldout(split, plan.languages, pairs)
        if blank := [number for number, pair in enumerate(pairs, 1) if any(map(is_blank, pair))]:
            reporter.warn(f"the {split} text: {blank_lines(blank, len(pairs))}, on one side or both; BLEU counts them too")
    identity = plan.identity()
    identity["data"] = plan.data | facts | {"copies_letterless": copies}
    directory.write_config(
        {
            "nmt": nmt.__version__,
            "begun": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": plan.command,
            "preset": plan.preset,
        }
        | identity
        | {
            "vocabulary": {"size": len(vocabulary), "sha256": vocabulary.sha256},
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "sentencepiece": sentencepiece.__version__,
                "sacrebleu": sacrebleu.__version__,
            },
        }
    )
    valid = heldout.get("valid")
    text = ([source for source, _ in valid], [target for _, target in valid]) if valid else None
    return HeldOut(text, before, copies, kind, "test" in heldout)
