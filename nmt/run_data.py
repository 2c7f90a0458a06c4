"""Prepare the data of a planned run: vocabulary, ids and held-out text. A new run's directory is written here."""

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import sacrebleu
import sentencepiece
import torch

import nmt
from nmt.data.cache import Cache
from nmt.data.cleaning import copies_letterless
from nmt.data.corpus import Corpus
from nmt.data.mixture import Mixture
from nmt.data.preparation import PreparedPairs, learn_vocabulary, prepare_corpus
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError
from nmt.formatting import blank_lines, counted
from nmt.ids import SYNTHETIC
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
class RunData:
    """Everything training reads, the same on every rank."""

    vocabulary: Vocabulary
    pairs: list[PreparedPairs]  # of each corpus
    saved: SavedModel  # what the model directory says, as read on rank 0, like both texts
    valid: Text | None
    before: Text | None  # validation text of the model that this one started from


def prepare(plan: RunPlan, mixture: Mixture | None, work: Workspace) -> RunData:
    """The data of the run. `mixture` is None on all ranks but the first of each machine.

    Raises UsageError where the run in the directory is another one, or no training pair is left.
    """
    here = cast(Mixture, mixture)  # what follows is called only where there is one
    vocabulary = work.ranks.share(lambda: _vocabulary(plan, here, work))
    folders, facts = work.ranks.share(lambda: _encode(plan, here, vocabulary, work), on_each_machine=True)
    saved, valid, before = work.ranks.share(lambda: _settle(plan, here, vocabulary, facts, work))
    return RunData(vocabulary, list(map(PreparedPairs.open, folders)), saved, valid, before)


def _vocabulary(plan: RunPlan, mixture: Mixture, work: Workspace) -> Vocabulary:
    """The vocabulary of the run in the directory, which must be this one; or of the origin; or learned from the text."""
    say, training = work.reporter.say, plan.recipe.training
    if work.started:
        before = work.started.description.model_dump(by_alias=True)
        differences, changes = plan.changes(before)
        if differences:
            raise UsageError(
                f"{work.directory.path} holds another run: " + "; ".join(differences) + ". "
                "Name another directory with --model, give the settings it had, or discard it with --restart"
            )
        for change in changes:
            say(f"{change}: the same updates, but not to the last bit")
        return work.started.vocabulary
    if work.origin:
        return work.origin.vocabulary
    vocabulary = learn_vocabulary(mixture, training, work.cache)
    most = training.vocab_size
    fewer = f" instead of {most:,}, for the corpus yields no more" if len(vocabulary) < most else ""
    say(f"vocabulary: {counted(len(vocabulary), 'piece')}{fewer}")
    return vocabulary


def _encode(
    plan: RunPlan, mixture: Mixture, vocabulary: Vocabulary, work: Workspace
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Of each corpus the folder with this machine's ids, encoded now or before, and what config.json says about cleaning."""
    folders, all_facts = [], []
    for option, corpus, planned in zip(plan.corpora, mixture.corpora, [plan.data, *plan.data.get("others", [])], strict=True):
        if {split: text.sha256 for split, text in corpus.splits.items()} != planned["sha256"]:
            raise UsageError(f"--data {corpus.name}: the text on this machine differs from rank 0's; copy it here")
        main = None if corpus is mixture.main else mixture.main
        marks = [SYNTHETIC] if option.synthetic else []
        folder, report, facts = prepare_corpus(corpus, vocabulary, plan.recipe.training, work.cache, main, marks)
        if not report.kept:
            raise UsageError(f"--data {corpus.name}: no training pair is left after cleaning: {report}")
        for line in (f"{corpus.name}: {report}", *facts["notes"], f"ids: {folder}"):
            work.reporter.say(line)
        folders.append(folder)
        all_facts.append(facts)
    return folders, all_facts


def _settle(
    plan: RunPlan, mixture: Mixture, vocabulary: Vocabulary, facts: list[dict[str, Any]], work: Workspace
) -> tuple[SavedModel, Text | None, Text | None]:
    """Write the directory of a new run, or what has changed into the config.json of the resumed one. Read what is there."""
    if work.started:
        training = plan.recipe.training.model_dump()
        work.directory.write_config(work.started.config | {"training": training, "ranks": plan.ranks})
    else:
        _start(plan, mixture.main, vocabulary, facts, work)
    saved = SavedModel.open(work.directory.path)
    return saved, saved.heldout("valid"), saved.heldout(BEFORE)


def _start(plan: RunPlan, corpus: Corpus, vocabulary: Vocabulary, facts: list[dict[str, Any]], work: Workspace) -> None:
    """Write the directory of a new run: config.json last, which makes it a run's."""
    origin, directory, reporter = work.origin, work.directory, work.reporter
    copies = copies_letterless(corpus.facts, origin.description.data.copies_letterless if origin else True)
    if not copies:
        reporter.say("lines without a letter are translated, as in the training text, and not copied")
    # Read before anything is deleted: a damaged origin must not cost the run that --restart discards.
    weights = origin.network().state_dict() if origin else None
    before = origin.heldout("valid") if origin else None
    for path in directory.files():
        if path.is_symlink():
            reporter.say(f"{path}: this link is removed; {path.resolve()}, where it leads, stays")
        remove(path)
    if origin and weights:
        save_weights(directory.weights_path, weights, origin.description.kind)  # this run's too
        reporter.say(f"from {origin.directory.path}: its vocabulary and weights, a fresh optimiser")
    if before:
        directory.write_heldout(BEFORE, plan.languages, list(zip(*before, strict=True)))
    vocabulary.save(directory.tokenizer_path)
    for split, text in corpus.splits.items():
        if split != "train" and text.count:
            pairs = list(text)
            directory.write_heldout(split, plan.languages, pairs)
            if blank := [number for number, pair in enumerate(pairs, 1) if any(map(is_blank, pair))]:
                found = blank_lines(blank, len(pairs))
                reporter.warn(f"the {split} text: {found}, on one side or both; BLEU counts them too")
    data = plan.data | facts[0]
    if len(facts) > 1:
        data["others"] = [other | found for other, found in zip(data["others"], facts[1:], strict=True)]
    libraries = {library.__name__: library.__version__ for library in (torch, sentencepiece, sacrebleu)}
    directory.write_config(
        {
            "nmt": nmt.__version__,
            "begun": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": plan.command,
            "preset": plan.preset,
            **plan.identity(),
            "data": data | {"copies_letterless": copies},
            "vocabulary": {"size": len(vocabulary), "sha256": vocabulary.sha256},
            "versions": {"python": platform.python_version(), **libraries},
        }
    )
