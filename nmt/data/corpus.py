"""Where sentence pairs come from: a folder of text, a table, a data set in the hub's layout, or the embedded demo.

Every source becomes a Corpus of up to three splits. Each iteration of a split reads its files anew, so that a corpus of any
size passes through without being held in memory. Everything that takes a look at every line (counts, fingerprints, faults in
the files, what is held out, what cleaning drops) is found once and kept in the cache, under a key of the files' bytes.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nmt.config import TrainingConfig
from nmt.data.cache import Cache, key_of
from nmt.data.cleaning import CleaningReport, digest_of, dropping, facts_of, mark_repeated, report_of
from nmt.data.folders import read_folder
from nmt.data.holdout import MIN_TRAINING_PAIRS, hold_out
from nmt.data.hub import read_dataset
from nmt.data.misfits import UNALIGNED, Judge, judged, mark_lengths, misfits_note, pardon_the_usual, unaligned
from nmt.data.splits import NAMES, Pair, Reader, Split, fingerprint, hash_files
from nmt.data.tables import format_of, read_table
from nmt.errors import NmtError, UsageError
from nmt.formatting import counted
from nmt.looks import Sample, doubts, form_of

WMT14 = ("wmt/wmt14", "de-en")
WMT14_COUNTS = {"train": 4_508_785, "valid": 3_000, "test": 3_003}
FACTS = "facts"  # file of a cache entry: two bytes per training pair

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Corpus:
    """Parallel text from `source` to `target` (language codes)."""

    name: str
    source: str
    target: str
    splits: dict[str, Split]  # train, and valid and test if there are any
    notes: tuple[str, ...]  # sentences for the user on how the splits were made
    facts: np.ndarray = field(repr=False)  # uint16 [training pairs], see cleaning.py
    key: str  # a digest of the text of all splits, from the bytes of their files
    form: str  # Unicode form of the training text's source side, see looks.py
    stamps: dict[Path, tuple[int, int]]  # size and modification time of each file before it was read
    with_newstest2012: bool = False  # whether to compare the training text with that test set too

    @property
    def train(self) -> Split:
        return self.splits["train"]

    def clean(self, settings: TrainingConfig) -> CleaningReport:
        """What the filters of text keep and drop, without reading any text."""
        return report_of(self.facts, dropping(settings))

    def usable(self, settings: TrainingConfig) -> Iterator[Pair]:
        """The training pairs that pass the filters of text, as many as `clean` says.

        Raises UsageError if the files have changed since the corpus was loaded.
        """
        dropped = (self.facts & np.uint16(dropping(settings))).data
        for drop, pair in zip(dropped, self.train, strict=False):  # the number of pairs differs only if the files do
            if not drop:
                yield pair
        _refuse_changes(self.name, self.stamps)


def load(
    data: str,
    source: str,
    target: str,
    cache: Cache | None = None,
    warn: Warn = lambda text: None,
    training_only: bool = False,
    clean: bool = False,
) -> Corpus:
    """The corpus that `--data` names: `wmt14`, `demo`, an existing path, or `owner/name[:config]` on the hub.

    With a cache, text that was loaded before is not read again. With `training_only` a corpus has no validation or test text,
    and none is held out. With `clean` it is found out of every pair, not of a sample, whether it looks wrong. Raises UsageError
    if the corpus does not exist, lacks a language, has sides of different length or lines that cannot be read; NmtError if the
    hub cannot be reached.
    """
    if source == target:
        raise UsageError(f"--source {source} and --target {target} are the same language")
    name, readers = _find(data, source, target, warn)
    readers = {"train": readers["train"]} if training_only else readers
    with TemporaryDirectory() as temporary:
        place, needed = cache or Cache([Path(temporary)]), [] if training_only else ["valid", "test"]
        corpus = _assemble(name, (source, target), readers, place, warn, needed, clean)
    counts = {split: text.count for split, text in corpus.splits.items()}
    if data == "wmt14" and not training_only and counts != WMT14_COUNTS:
        raise NmtError(
            f"wmt14: holds other numbers of pairs than published: {counts} instead of {WMT14_COUNTS}; the download is not the "
            "WMT14 data, so clear it from the Hugging Face cache and fetch it again"
        )
    return replace(corpus, with_newstest2012=data == "wmt14")


def demo_folder() -> Path:
    """The embedded corpus: beside this module in an installed wheel, at the top of a checkout."""
    installed = Path(__file__).parent / "demo"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "data" / "demo"


def _find(data: str, source: str, target: str, warn: Warn) -> tuple[str, dict[str, Reader]]:
    """The name of a corpus and the readers of its splits."""
    if data in ("demo", "wmt14"):
        if os.path.isdir(data):
            warn(f"--data {data}: the corpus of that name, not the folder {data} here; write ./{data} for the folder")
        if data == "demo":
            return data, read_folder(demo_folder(), source, target)[0]
        return data, read_dataset(*WMT14, source, target)
    path, config = (data, "") if os.path.exists(data) else data.partition(":")[::2]
    if os.path.isdir(path):
        readers, unused = ({}, "") if config else read_folder(Path(path), source, target)
        if not readers:
            readers = read_dataset(path, config, source, target, unused and f"{unused}; ")
        elif unused:
            warn(f"{path}: {unused}")
        return Path(path).resolve().name, readers
    if os.path.exists(path):
        if format_of(Path(path)):
            return Path(path).name, {"train": read_table(Path(path), source, target)}
        raise UsageError(
            f"--data {data}: a file, but not a .tsv or .jsonl; name the folder that holds train.{source} and train.{target}"
        )
    if path.count("/") != 1 or path.startswith((".", "/", "~")):
        raise UsageError(f"--data {data}: no such folder (nor 'wmt14', 'demo', or owner/name of a data set on the hub)")
    warn(f"--data {data}: no such folder here; asking the Hugging Face hub for a data set of that name")
    return data, read_dataset(path, config, source, target, "no such folder here, and ")


def _assemble(
    name: str, languages: tuple[str, str], readers: dict[str, Reader], cache: Cache, warn: Warn, needed: list[str], clean: bool
) -> Corpus:
    """The corpus of these readers. If their text is not in the cache, all of it is read.

    The splits that are needed and missing are held out of the training text.
    """
    stamps = _stamps(path for reader in readers.values() for path in reader.files)
    text = {split: [reader.form, *hash_files(reader.files)] for split, reader in readers.items()}
    key = key_of(languages=languages, text=text, needed=needed, clean=clean)

    def fill(folder: Path) -> dict[str, Any]:
        manifest = _measure(readers, languages, folder, needed, clean)
        _refuse_changes(name, stamps)
        return manifest

    entry = cache.get(f"corpus-{key}") or cache.put(f"corpus-{key}", fill)
    measured, facts = entry.manifest, np.frombuffer((entry.folder / FACTS).read_bytes(), np.uint16)
    for doubt in measured["doubts"]:
        warn(f"--data {name}: {doubt}")
    reads = {split: reader.read for split, reader in readers.items()}
    reads["train"] = _without(reads["train"], {*measured["held_out_sources"]})
    reads |= {split: [tuple(pair) for pair in pairs].__iter__ for split, pairs in measured["held_out"].items()}
    splits = {split: Split(reads[split], *measured["splits"][split]) for split in NAMES if split in reads}
    return Corpus(name, *languages, splits, tuple(measured["notes"]), facts, key, measured["form"], stamps)


def _stamps(paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Size and modification time of the files that exist."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path.exists()}


def _refuse_changes(name: str, stamps: dict[Path, tuple[int, int]]) -> None:
    """Raises UsageError if a file has changed since its stamp was taken."""
    if stamps != _stamps(stamps):
        raise UsageError(f"--data {name}: changed while it was read; start again when it is complete")


def _without(read: Callable[[], Iterator[Pair]], sources: set[str]) -> Callable[[], Iterator[Pair]]:
    """Reads the same pairs, except those with one of these sources."""
    return (lambda: (pair for pair in read() if pair[0] not in sources)) if sources else read


def _measure(
    readers: dict[str, Reader], languages: tuple[str, str], folder: Path, needed: list[str], clean: bool
) -> dict[str, Any]:
    """Read all text, which also finds every fault of the files before any work begins.

    Writes two bytes of facts per training pair, see cleaning.py, and returns the manifest of the corpus's cache entry.
    """
    samples = {split: Sample() for split in readers}
    facts, lengths, digests, judge = array("H"), array("i"), bytearray(), Judge(*languages)

    def noted(split: str, pairs: Iterable[Pair]) -> Iterator[Pair]:
        for pair in pairs:
            samples[split].add(pair)
            if split == "train":
                facts.append(facts_of(*pair) | (judge.signs_of(*pair) if clean else 0))
                lengths.extend(map(len, pair))
                digests.extend(digest_of(*pair))
            yield pair

    splits = {split: fingerprint(noted(split, readers[split].read())) for split in readers if split != "train"}
    missing = [split for split in needed if split not in readers]
    held_out, sources = hold_out(readers["train"].read(), missing) if missing else ({}, set())
    notes = []
    if held_out:
        share = counted(len(held_out[missing[0]]), "pair")
        notes.append(f"held out of train, for lack of a file: {share} each for {' and '.join(missing)}")
    elif missing:
        named = " or ".join(missing)
        notes.append(f"no {named} text, and below {MIN_TRAINING_PAIRS:,} training pairs none is held out for it")
    splits |= {split: fingerprint(pairs) for split, pairs in held_out.items()}
    splits["train"] = fingerprint(noted("train", _without(readers["train"].read, sources)()))
    found = np.frombuffer(facts, np.uint16)
    mark_repeated(found, np.frombuffer(digests, np.uint64))
    if clean:
        mark_lengths(found, np.frombuffer(lengths, np.int32).reshape(-1, 2))
        notes += [
            f"a fifth of all pairs or more are {reason}, so none is dropped for that" for reason in pardon_the_usual(found)
        ]
    elif note := misfits_note(judged(samples["train"].pairs, *languages)):
        notes.append(note)
    (folder / FACTS).write_bytes(found.tobytes())
    texts = [
        {f"{split}.{language}": [pair[side] for pair in sample.pairs] for split, sample in samples.items()}
        for side, language in enumerate(languages)
    ]
    return {
        "splits": splits,
        "doubts": [
            *(doubt for text in texts for doubt in doubts(text, "a model learns to read and write such text")),
            *(UNALIGNED for _ in [None] if unaligned(samples["train"].pairs)),
        ],
        "form": form_of(texts[0][f"train.{languages[0]}"]),
        "held_out": held_out,
        "held_out_sources": sorted(sources),
        "notes": notes,
    }
