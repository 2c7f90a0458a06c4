"""From a corpus to all that training needs of it, kept in the cache: the vocabulary, and the pairs as ids."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.config import TrainingConfig
from nmt.cores import cores
from nmt.data import vocabulary as vocabularies
from nmt.data.cache import Cache, Entry, key_of
from nmt.data.cleaning import CleaningReport, dropping
from nmt.data.corpus import Corpus
from nmt.data.encoding import Encoder
from nmt.data.overlap import HeldOutSets, describe_overlap, newstest2012
from nmt.data.prepared import PreparedPairs, write_pairs
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary, learn
from nmt.data.workers import MOST
from nmt.errors import UsageError
from nmt.formatting import counted

TOKENIZER = "tokenizer.model"
PER_WORKER = 25_000  # pairs; fewer are sooner encoded than a process is started
PROGRESS_EVERY = 60.0  # seconds


@dataclass(frozen=True)
class Prepared:
    """The training pairs of a corpus as ids on disk, and what was found on the way."""

    folder: Path  # for `PreparedPairs.open` in other processes of this machine
    pairs: PreparedPairs
    report: CleaningReport  # of all filters
    overlap: dict[str, Any]  # per held-out set, how much of it stands in the training text: see overlap.py
    notes: tuple[str, ...]  # what a person should know of it

    @classmethod
    def of(cls, entry: Entry) -> "Prepared":
        report = entry.manifest["report"]
        return cls(
            entry.folder,
            PreparedPairs.open(entry.folder),
            CleaningReport(**report | {"dropped": Counter(report["dropped"])}),
            entry.manifest["overlap"],
            tuple(entry.manifest["notes"]),
        )


def learn_vocabulary(corpus: Corpus, config: TrainingConfig, cache: Cache) -> Vocabulary:
    """The shared BPE of a corpus, learned from a bounded sample of its usable pairs, or as it was learned before.

    Raises UsageError for a corpus without text, and where `vocab_size` is below the alphabet.
    """
    key = key_of(
        corpus=corpus.key,
        drops=dropping(config),
        size=config.vocab_size,
        seed=config.seed,
        sample=vocabularies.SAMPLE,
        sentencepiece=sentencepiece.__version__,
    )
    entry = cache.get(f"vocabulary-{key}")
    if entry is None:
        kept = corpus.clean(config).kept
        try:
            learned = learn(corpus.usable(config), kept, config.vocab_size, config.seed)
        except UsageError as error:
            raise UsageError(f"--data {corpus.name}: {error}") from None

        def fill(folder: Path) -> dict[str, Any]:
            learned.save(folder / TOKENIZER)
            return {}

        entry = cache.put(f"vocabulary-{key}", fill)
    return Vocabulary((entry.folder / TOKENIZER).read_bytes())


def prepare_corpus(corpus: Corpus, vocabulary: Vocabulary, config: TrainingConfig, cache: Cache) -> Prepared:
    """The training pairs as ids, encoded by all cores, or as they were prepared before.

    Memory does not grow with the corpus, and the result does not depend on the number of cores. Raises NmtError where
    they can be written nowhere, UsageError where the files have changed since the corpus was loaded.
    """
    key = key_of(
        corpus=corpus.key,
        drops=dropping(config),
        max_pieces=config.max_pieces,
        max_ratio=config.max_ratio,
        vocabulary=vocabulary.sha256,
        newstest2012=corpus.with_newstest2012,
    )
    entry = cache.get(f"pairs-{key}")
    if entry is None:
        entry = cache.put(f"pairs-{key}", lambda folder: _fill(folder, corpus, vocabulary, config, cache.say))
    return Prepared.of(entry)


def _fill(
    folder: Path, corpus: Corpus, vocabulary: Vocabulary, config: TrainingConfig, say: Callable[[str], None]
) -> dict[str, Any]:
    sets: dict[str, Iterable[Pair]] = {}
    sets |= {name: split for name, split in (("valid", corpus.valid), ("test", corpus.test)) if split}
    notes = []
    if corpus.with_newstest2012:
        found = newstest2012(corpus.source, corpus.target)
        if isinstance(found, str):
            notes.append(f"newstest2012 was not compared with the training text, for it could not be had: {found}")
        else:
            sets["newstest2012"] = found
    held_out = HeldOutSets.of(sets)
    report = corpus.clean(config)
    total = report.kept
    workers = min(cores(), MOST, total // PER_WORKER)
    if workers:
        say(f"encoding {total:,} pairs on {counted(workers, 'core')}")
    began = said = time.monotonic()

    def progress(done: int) -> None:
        nonlocal said
        if time.monotonic() - said > PROGRESS_EVERY:
            said = time.monotonic()
            left = (said - began) * (total - done) / done
            say(f"prepared {done:,} of {counted(total, 'pair')}, {left / 60:.0f} min left")

    encoder = Encoder(vocabulary, config.max_pieces, config.max_ratio, held_out.watched)
    manifest, dropped, met = write_pairs(folder, corpus.usable(config), encoder, workers, progress)
    report.dropped.update(dropped)
    overlap = held_out.count(met)
    return manifest | {
        "report": vars(report),  # a Counter is a dict to JSON; dataclasses.asdict would spoil it
        "overlap": overlap,
        "notes": [*describe_overlap(overlap), *notes],
    }


def describe(corpus: Corpus, prepared: Prepared) -> dict[str, Any]:
    """What config.json says of the data beside names, counts and SHA-256: what each filter dropped, the
    overlap, and the Unicode form of the source text."""
    report = prepared.report
    return {
        "read": report.read,
        "kept": report.kept,
        "dropped": {
            reason: {"pairs": count, "share": round(count / report.read, 6)} for reason, count in report.dropped.items()
        },
        "control_characters": report.control_characters,
        "overlap": prepared.overlap,
        "form": corpus.form,
        "notes": [*corpus.notes, *prepared.notes],
    }
