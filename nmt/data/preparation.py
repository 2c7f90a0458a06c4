"""From a corpus to everything that training needs from it, kept in the cache: the vocabulary, and the pairs as ids."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.config import TrainingConfig
from nmt.cores import cores
from nmt.data.cache import Cache, key_of
from nmt.data.cleaning import CleaningReport, dropping
from nmt.data.corpus import Corpus
from nmt.data.overlap import Overlap, newstest2012, overlap_note
from nmt.data.prepared import Encoded, Encoder, PreparedPairs, write_pairs
from nmt.data.splits import Pair
from nmt.data.vocabulary import SAMPLE, Vocabulary, learn
from nmt.formatting import counted

TOKENIZER = "tokenizer.model"
PROGRESS_INTERVAL = 30.0  # seconds


@dataclass(frozen=True)
class Prepared:
    """The training pairs of a corpus as ids on disk, and what was found while encoding them."""

    folder: Path  # other processes of this machine can open it with `PreparedPairs.open`
    pairs: PreparedPairs
    report: CleaningReport  # on all filters
    overlap: dict[str, Any]  # by held-out set, see `Overlap.counts`
    notes: tuple[str, ...]  # sentences for the user


def learn_vocabulary(corpus: Corpus, config: TrainingConfig, cache: Cache) -> Vocabulary:
    """The shared BPE of a corpus, from the cache or learned from a bounded sample of its usable pairs.

    Raises UsageError if the corpus holds no text, or `vocab_size` is below the size of its alphabet.
    """
    drops, size, seed, version = dropping(config), config.vocab_size, config.seed, sentencepiece.__version__
    key = key_of(corpus=corpus.key, drops=drops, size=size, seed=seed, sample=SAMPLE, sentencepiece=version)

    def fill(folder: Path) -> dict[str, Any]:
        learn(corpus.usable(config), corpus.clean(config).kept, size, seed).save(folder / TOKENIZER)
        return {}

    entry = cache.get(f"vocabulary-{key}") or cache.put(f"vocabulary-{key}", fill)
    return Vocabulary((entry.folder / TOKENIZER).read_bytes())


def prepare_corpus(corpus: Corpus, vocabulary: Vocabulary, config: TrainingConfig, cache: Cache) -> Prepared:
    """The training pairs as ids, from the cache or encoded on all cores.

    Memory does not grow with the corpus, and the result does not depend on the number of cores. Raises NmtError if the ids
    cannot be written anywhere, UsageError if the files have changed since the corpus was loaded.
    """
    filters = {"drops": dropping(config), "max_pieces": config.max_pieces, "max_ratio": config.max_ratio}
    with_2012 = corpus.with_newstest2012
    key = key_of(corpus=corpus.key, vocabulary=vocabulary.sha256, newstest2012=with_2012, **filters)

    def fill(folder: Path) -> dict[str, Any]:
        return _encode(folder, corpus, vocabulary, config, cache.say)

    entry = cache.get(f"pairs-{key}") or cache.put(f"pairs-{key}", fill)
    report, overlap, notes = (entry.manifest[name] for name in ("report", "overlap", "notes"))
    report = CleaningReport(**report | {"dropped": Counter(report["dropped"])})
    return Prepared(entry.folder, PreparedPairs.open(entry.folder), report, overlap, tuple(notes))


def _encode(
    folder: Path, corpus: Corpus, vocabulary: Vocabulary, config: TrainingConfig, say: Callable[[str], None]
) -> dict[str, Any]:
    """Write the ids of all usable pairs into the folder, and return the manifest."""
    held_out: dict[str, Iterable[Pair]] = {name: split for name, split in corpus.splits.items() if name != "train"}
    notes = []
    if corpus.with_newstest2012:
        fetched = newstest2012(corpus.source, corpus.target)
        if isinstance(fetched, str):
            notes.append(f"newstest2012 was not compared with the training text, for it is not available: {fetched}")
        else:
            held_out["newstest2012"] = fetched
    overlap, report = Overlap(held_out), corpus.clean(config)
    usable, done = report.kept, 0
    began = said = time.monotonic()

    def note(chunk: Encoded) -> None:
        nonlocal done, said
        overlap.search(chunk.pairs)
        report.dropped.update(chunk.dropped)
        done += len(chunk.pairs) + chunk.dropped.total()
        if (now := time.monotonic()) - said > PROGRESS_INTERVAL:
            said, left = now, (now - began) * (usable - done) / done
            say(f"encoded {done:,} of {counted(usable, 'pair')}, {left / 60:.0f} min left")

    encoder = Encoder(vocabulary, config.max_pieces, config.max_ratio, cores())
    manifest = write_pairs(folder, corpus.usable(config), encoder, note)
    found = overlap.counts()
    notes = [*(overlap_note(name, **counts) for name, counts in found.items()), *notes]
    return manifest | {"report": vars(report), "overlap": found, "notes": notes}


def data_description(corpus: Corpus, prepared: Prepared) -> dict[str, Any]:
    """What config.json records about the data, apart from its name, line counts and SHA-256."""
    report = prepared.report
    dropped = {name: {"pairs": n, "share": round(n / report.read, 6)} for name, n in report.dropped.items()}
    return {
        "read": report.read,
        "kept": report.kept,
        "dropped": dropped,
        "control_characters": report.control_characters,
        "overlap": prepared.overlap,
        "form": corpus.form,
        "notes": [*corpus.notes, *prepared.notes],
    }
