"""From a corpus to everything that training needs from it, kept in the cache: the vocabulary, and the pairs as ids.

Ids are flat arrays that hold any number of sentences compactly, in memory or on disk.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from nmt.config import TrainingConfig
from nmt.cores import cores
from nmt.data.cache import Cache, Entry, key_of
from nmt.data.cleaning import CleaningReport, dropping
from nmt.data.corpus import Corpus
from nmt.data.hub import newstest2012
from nmt.data.mixture import Mixture
from nmt.data.overlap import Overlap, overlap_note
from nmt.data.splits import Pair
from nmt.data.vocabulary import SAMPLE, Vocabulary, learn
from nmt.formatting import counted

TOKENIZER = "tokenizer.model"
CHUNK = 10_000  # pairs encoded at a time
CHUNK_CHARACTERS = 4_000_000  # a chunk of long lines has fewer pairs, so that documents fit into memory too
MIN_RATIO_PIECES = 10  # a pair whose longer side has at most this many pieces may have any length ratio
SIDES = ("source", "target")


@dataclass(frozen=True)
class Side:
    """One language of the training pairs: sentence i is ids[starts[i] : starts[i + 1]], without BOS or EOS."""

    ids: np.ndarray  # uint16 if the vocabulary allows it, else int32
    starts: np.ndarray  # int64 [sentences + 1]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], dtype: str) -> "Side":
        """The ids of these sentences in memory."""
        starts = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        return cls(np.fromiter(chain.from_iterable(sentences), dtype, int(starts[-1])), starts)

    @property
    def lengths(self) -> np.ndarray:
        """Pieces of each sentence: a new int32 array [sentences]."""
        return np.subtract(self.starts[1:], self.starts[:-1], dtype=np.int32, casting="unsafe")

    def take(self, sentences: np.ndarray) -> "Side":
        """These sentences alone, in memory."""
        starts = self.starts[sentences]
        lengths = self.starts[sentences + 1] - starts
        ends = np.cumsum([0, *lengths])
        return Side(self.ids[np.repeat(starts - ends[:-1], lengths) + np.arange(ends[-1])], ends)

    @classmethod
    def joined(cls, sides: Sequence["Side"]) -> "Side":
        """The sentences of all sides, one after another, in memory."""
        lengths = np.concatenate([side.lengths for side in sides])
        return cls(np.concatenate([side.ids for side in sides]), np.cumsum([0, *lengths], dtype=np.int64))

    def sentences(self) -> list[list[int]]:
        """The ids of each sentence."""
        return [ids.tolist() for ids in np.split(self.ids, self.starts[1:-1])]


@dataclass(frozen=True)
class PreparedPairs:
    """The training pairs that passed every filter."""

    source: Side
    target: Side

    def __len__(self) -> int:
        return len(self.source.starts) - 1

    @cached_property
    def sources(self) -> np.ndarray:
        """Source tokens of each pair, with EOS: int32 [pairs]."""
        return self.source.lengths + 1

    @cached_property
    def targets(self) -> np.ndarray:
        """Target tokens to predict of each pair, with EOS: int32 [pairs]."""
        return self.target.lengths + 1

    def take(self, pairs: np.ndarray) -> "PreparedPairs":
        """These pairs alone, in memory."""
        return PreparedPairs(self.source.take(pairs), self.target.take(pairs))

    @classmethod
    def open(cls, folder: Path) -> "PreparedPairs":
        """The pairs that `write_pairs` wrote, at least one, memory-mapped and read-only."""
        dtype = Entry.open(folder).manifest["dtype"]
        return cls(*(Side(_mapped(folder / f"{side}.ids", dtype), _mapped(folder / f"{side}.starts")) for side in SIDES))


class JoinedPairs:
    """The pairs of several corpora, numbered one corpus after another. Their ids stay where they are until they are taken."""

    def __init__(self, parts: Sequence[PreparedPairs]) -> None:
        self.parts = parts
        self.starts = np.cumsum([0, *map(len, parts)])
        self.sources = np.concatenate([part.sources for part in parts])
        self.targets = np.concatenate([part.targets for part in parts])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def take(self, pairs: np.ndarray) -> PreparedPairs:
        """These pairs in memory, those of the first corpus first."""
        taken = [
            part.take(pairs[(pairs >= start) & (pairs < end)] - start)
            for part, start, end in zip(self.parts, self.starts, self.starts[1:], strict=False)
        ]
        return PreparedPairs(Side.joined([part.source for part in taken]), Side.joined([part.target for part in taken]))


Pairs = PreparedPairs | JoinedPairs


def learn_vocabulary(corpus: Corpus | Mixture, config: TrainingConfig, cache: Cache) -> Vocabulary:
    """The shared BPE of one corpus or several, from the cache or learned from a bounded sample of its usable pairs.

    Raises UsageError if the corpus holds no text, or `vocab_size` is below the size of its alphabet.
    """
    drops, size, seed, version = dropping(config), config.vocab_size, config.seed, sentencepiece.__version__
    key = key_of(corpus=corpus.key, drops=drops, size=size, seed=seed, sample=SAMPLE, sentencepiece=version)

    def fill(folder: Path) -> dict[str, Any]:
        learn(corpus.usable(config), corpus.clean(config).kept, size, seed).save(folder / TOKENIZER)
        return {}

    entry = cache.get(f"vocabulary-{key}") or cache.put(f"vocabulary-{key}", fill)
    return Vocabulary((entry.folder / TOKENIZER).read_bytes())


def prepare_corpus(
    corpus: Corpus,
    vocabulary: Vocabulary,
    config: TrainingConfig,
    cache: Cache,
    main: Corpus | None = None,
    marks: Sequence[int] = (),
) -> tuple[Path, CleaningReport, dict[str, Any]]:
    """The training pairs as ids, from the cache or encoded on all cores.

    Returns the folder, which all processes of this machine can open with `PreparedPairs.open`; the report on all filters; and
    what config.json records about the data, apart from its name, line counts and SHA-256. Memory does not grow with the
    corpus, and the result does not depend on the number of cores. The overlap is that with the held-out text of `main`, if
    that is another corpus. Every source begins with the `marks`. Raises NmtError if the ids cannot be written anywhere,
    UsageError if the files have changed since the corpus was loaded.
    """
    filters = {"drops": dropping(config), "max_pieces": config.max_pieces, "max_ratio": config.max_ratio}
    more: dict[str, Any] = ({"main": main.key} if main else {}) | ({"marks": list(marks)} if marks else {})
    key = key_of(corpus=corpus.key, vocabulary=vocabulary.sha256, newstest2012=corpus.with_newstest2012, **filters, **more)

    def fill(folder: Path) -> dict[str, Any]:
        cache.say(f"encoding {counted(corpus.clean(config).kept, 'pair')}")  # takes minutes for a large corpus
        return _encode(folder, corpus, vocabulary, config, main or corpus, marks)

    entry = cache.get(f"pairs-{key}") or cache.put(f"pairs-{key}", fill)
    found = entry.manifest
    report = CleaningReport(**found["report"] | {"dropped": Counter(found["report"]["dropped"])})
    facts = {
        "read": report.read,
        "kept": report.kept,
        "dropped": {name: {"pairs": n, "share": round(n / report.read, 6)} for name, n in report.dropped.items()},
        "control_characters": report.control_characters,
        "overlap": found["overlap"],
        "form": corpus.form,
        "notes": [*corpus.notes, *found["notes"]],
    }
    return entry.folder, report, facts


def _encode(
    folder: Path, corpus: Corpus, vocabulary: Vocabulary, config: TrainingConfig, main: Corpus, marks: Sequence[int]
) -> dict[str, Any]:
    """Write the ids of all usable pairs into the folder, and return the manifest."""
    held_out: dict[str, Iterable[Pair]] = {name: split for name, split in main.splits.items() if name != "train"}
    notes = []
    if corpus.with_newstest2012:
        fetched = newstest2012(corpus.source, corpus.target)
        if isinstance(fetched, str):
            notes.append(f"newstest2012 was not compared with the training text, for it is not available: {fetched}")
        else:
            held_out["newstest2012"] = fetched
    overlap, report, threads = Overlap(held_out), corpus.clean(config), cores()

    def encoded() -> Iterator[PreparedPairs]:
        for chunk in chunks_of(corpus.usable(config)):
            ids, kept, dropped = encode(chunk, vocabulary, config.max_pieces, config.max_ratio, threads, marks)
            overlap.search(kept)
            report.dropped.update(dropped)
            yield ids

    manifest = write_pairs(folder, encoded())
    found = overlap.counts()
    notes = [*(overlap_note(name, **counts) for name, counts in found.items()), *notes]
    return manifest | {"report": vars(report), "overlap": found, "notes": notes}


def encode(
    pairs: Sequence[Pair],
    vocabulary: Vocabulary,
    max_pieces: float = inf,
    max_ratio: float = inf,
    threads: int = 1,
    marks: Sequence[int] = (),
) -> tuple[PreparedPairs, list[Pair], Counter[str]]:
    """The pairs as ids, without those that are too long or too different in length. Nothing is truncated.

    Every source begins with the `marks`, which are no text. Returns the ids and the text of those kept, and the number of the
    others by reason.
    """
    sides = [vocabulary.encode_all([pair[side] for pair in pairs], threads) for side in (0, 1)]
    kept: list[int] = []
    dropped: Counter[str] = Counter()
    sides[0] = [[*marks, *source] for source in sides[0]] if marks else sides[0]
    for number, (source, target) in enumerate(zip(*sides, strict=True)):
        short, long = sorted((len(source), len(target)))
        if long > max_pieces:
            dropped[f"over {max_pieces} pieces"] += 1
        elif long > MIN_RATIO_PIECES and long > max_ratio * short:
            dropped[f"with a length ratio over {max_ratio:g}"] += 1
        else:
            kept.append(number)
    dtype = "<u2" if len(vocabulary) <= 2**16 else "<i4"
    ids = PreparedPairs(*(Side.of([side[number] for number in kept], dtype) for side in sides))
    return ids, [pairs[number] for number in kept], dropped


def write_pairs(folder: Path, chunks: Iterable[PreparedPairs]) -> dict[str, Any]:
    """Write at least one chunk of pairs into files that `PreparedPairs.open` opens, in bounded memory. Returns the manifest."""
    with ExitStack() as stack:
        ids, starts = (
            [stack.enter_context((folder / f"{side}.{kind}").open("wb")) for side in SIDES] for kind in ("ids", "starts")
        )
        ends = [0, 0]
        for file in starts:
            file.write(np.zeros(1, "<i8").data)
        for chunk in chunks:
            for number, side in enumerate((chunk.source, chunk.target)):
                ids[number].write(side.ids.data)
                starts[number].write((ends[number] + side.starts[1:]).data)
                ends[number] += len(side.ids)
    return {"dtype": chunk.source.ids.dtype.str}


def chunks_of(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """At least one list of up to CHUNK pairs, or fewer where their lines are long; the last one may be empty."""
    chunk: list[Pair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == CHUNK or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    yield chunk


def _mapped(path: Path, dtype: str = "<i8") -> np.ndarray:
    return np.memmap(path, dtype, "r").view(np.ndarray)  # slices of a plain array cost less
