"""Where sentence pairs come from: a folder of text, a table, a data set in the hub's layout, or the embedded demo.

Every source becomes a Corpus of three splits. A split is read anew each time it is iterated, so that a corpus of any size
passes through without being held. All that takes a look at every line (counts, fingerprints, faults of the files, what
is held out, what cleaning will drop) is found in one or two passes, and kept in the cache under the files' own bytes.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config import TrainingConfig
from nmt.data import holdout
from nmt.data.cache import Cache, key_of
from nmt.data.cleaning import CleaningReport, digest_of, dropping, facts_of, mark_repeated, report_of
from nmt.data.folders import overlooked, read_sides, text_files
from nmt.data.hub import read_dataset
from nmt.data.splits import Pair, Reader, Split, fingerprint, hash_files
from nmt.data.tables import format_of, read_table, table_files
from nmt.errors import NmtError, UsageError
from nmt.formatting import counted
from nmt.looks import Sample, doubts, form_of

WMT14 = ("wmt/wmt14", "de-en")
WMT14_COUNTS = {"train": 4_508_785, "valid": 3_000, "test": 3_003}
Say = Callable[[str], None]  # told of what is perhaps not as it was meant
FACTS = "facts"  # the file of a cache entry that holds a byte for each training pair


@dataclass(frozen=True)
class Corpus:
    """Parallel text from `source` to `target` (language codes). `valid` and `test` are None where there is none."""

    name: str
    source: str
    target: str
    train: Split
    valid: Split | None
    test: Split | None
    notes: tuple[str, ...] = ()  # what a person should know of how the splits came about
    facts: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8), repr=False)  # uint8, of the training pairs
    key: str = ""  # a name for the text of all splits, from the bytes of their files
    content: Callable[[], str] = field(default=lambda: "", repr=False)  # the key as the files are now
    form: str = ""  # the Unicode form of the training text's source side, see looks.py
    with_newstest2012: bool = False  # whether training text is to be compared with that test set too

    def check(self) -> None:
        """Raises UsageError where the files are no longer those that were loaded."""
        if self.content() != self.key:
            raise UsageError(f"--data {self.name}: changed while it was read; start again once it is whole")

    def clean(self, settings: TrainingConfig) -> CleaningReport:
        """What the filters of text keep and drop, without reading any text."""
        return report_of(self.facts, dropping(settings))

    def usable(self, settings: TrainingConfig) -> Iterator[Pair]:
        """The training pairs that pass the filters of text, as many as `clean` says.

        Raises UsageError where the files are no longer those that were loaded.
        """
        dropped = (self.facts & np.uint8(dropping(settings))).data
        for reason, pair in zip(dropped, self.train, strict=False):  # where the number differs, the bytes do too
            if not reason:
                yield pair
        self.check()


def load(data: str, source: str, target: str, cache: Cache | None = None, warn: Say = lambda text: None) -> Corpus:
    """The corpus that `--data` names: `wmt14`, `demo`, an existing path, or `owner/name[:config]` on the hub.

    With a cache, text that was loaded before is not read again. Raises UsageError for what does not exist, does not hold
    the languages, has sides of different length or lines that cannot be read; NmtError where the hub cannot be reached.
    """
    if source == target:
        raise UsageError(f"--source {source} and --target {target} are the same language")
    name, readers = _find(data, source, target, warn)
    corpus = _assemble(name, source, target, readers, cache, warn)
    if data == "wmt14":
        for split, expected in WMT14_COUNTS.items():
            found = getattr(corpus, split)
            if found is None or found.count != expected:
                raise NmtError(
                    f"wmt14: {split} holds {found.count if found else 0:,} pairs instead of {expected:,}; "
                    "the download is not the WMT14 data, so clear it from the Hugging Face cache and fetch it again"
                )
        corpus = replace(corpus, with_newstest2012=True)
    return corpus


def demo_folder() -> Path:
    """The embedded corpus: beside this module in an installed wheel, at the top of a checkout."""
    installed = Path(__file__).parent / "demo"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "data" / "demo"


def _find(data: str, source: str, target: str, warn: Say) -> tuple[str, dict[str, Reader]]:
    """The name and the readers of a corpus."""
    if data in ("demo", "wmt14"):
        if os.path.isdir(data):
            warn(
                f"--data {data}: the corpus of that name, and not the folder that is here; write ./{data} for the folder"
            )
        if data == "demo":
            return "demo", _read_folder(demo_folder(), source, target, warn)
        return "wmt14", read_dataset(*WMT14, source, target)
    path, _, config = data.partition(":")
    if os.path.exists(data):  # unlike Path.exists, false for a name too long to be one
        path, config = data, ""
    if path and os.path.isdir(path):
        readers = {} if config else _read_folder(Path(path), source, target, warn)
        try:
            return Path(path).resolve().name, readers or read_dataset(path, config, source, target)
        except UsageError as error:
            unused = overlooked(Path(path), (source, target), ())
            raise UsageError(f"{error}; {unused}" if unused else str(error)) from None
    if os.path.exists(path):
        if not format_of(Path(path)):
            raise UsageError(
                f"--data {data}: a file that is no .tsv or .jsonl; "
                f"name the folder that holds train.{source} and train.{target}"
            )
        return Path(path).name, {"train": read_table(Path(path), source, target)}
    if path.count("/") != 1 or path.startswith((".", "/", "~")):
        raise UsageError(f"--data {data}: no such folder (nor 'wmt14', 'demo', or owner/name of a data set on the hub)")
    warn(f"--data {data}: no such folder here; asking the Hugging Face hub for a data set of that name")
    return data, read_dataset(path, config, source, target, "no such folder here, and ")


def _read_folder(folder: Path, source: str, target: str, warn: Say) -> dict[str, Reader]:
    """The readers of a folder's text files and tables; none where it holds neither."""
    tables = table_files(folder)
    texts = text_files(folder, (source, target), tables)
    for split, table in tables.items():
        if split in texts:
            other = next(iter(texts[split].values()))
            raise UsageError(f"{folder}: {other.name} and {table.name} are the same split in two formats; remove one")
    if not (texts or tables):
        return {}
    found = {f"{split}.{language}" for split, files in texts.items() for language in files}
    found |= {*tables, *(split for split, files in texts.items() if {source, target} <= {*files})}
    unused = overlooked(folder, (source, target), found)
    if "train" not in tables:
        languages = sorted(texts.get("train", {}))
        for option, language in (("--source", source), ("--target", target)):
            if language not in languages:
                raise UsageError(
                    f"{folder}: no training text train.{language} for {option} {language}; "
                    f"languages found: {', '.join(languages) or 'none'}" + (unused and f"; {unused}")
                )
    if unused:
        warn(f"{folder}: {unused}")
    readers = {split: read_table(table, source, target) for split, table in tables.items()}
    for split, sides in texts.items():
        if reader := read_sides(folder, sides, source, target):
            readers[split] = reader
    return readers


def _assemble(
    name: str, source: str, target: str, readers: dict[str, Reader], cache: Cache | None, warn: Say
) -> Corpus:
    def content() -> str:
        return _key_of_content(readers, source, target)

    key = content()
    entry = cache.get(f"corpus-{key}") if cache else None
    if entry:
        manifest, facts = entry.manifest, np.frombuffer((entry.folder / FACTS).read_bytes(), np.uint8)
    else:
        manifest, facts = _measure(readers, (source, target))
    for doubt in manifest["doubts"]:
        warn(f"--data {name}: {doubt}")
    held = {split: [(left, right) for left, right in pairs] for split, pairs in manifest["held_out"].items()}
    reads = {split: reader.read for split, reader in readers.items()} | {
        split: pairs.__iter__ for split, pairs in held.items()
    }
    if held:
        reads["train"] = holdout.HeldOut(held, frozenset(manifest["held_out_sources"])).rest_of(readers["train"]).read
    splits = {split: Split(reads[split], *measured) for split, measured in manifest["splits"].items()}
    corpus = Corpus(
        name,
        source,
        target,
        splits["train"],
        splits.get("valid"),
        splits.get("test"),
        tuple(manifest["notes"]),
        facts,
        key,
        content,
        manifest["form"],
    )
    if cache and not entry:
        corpus.check()
        cache.put(f"corpus-{key}", lambda folder: _write_facts(folder, manifest, facts))
    return corpus


def _key_of_content(readers: dict[str, Reader], source: str, target: str) -> str:
    """A name for the text of all splits, from the bytes of their files."""
    digests = iter(hash_files([path for reader in readers.values() for path in reader.files]))
    text = {split: [reader.form, *(next(digests) for _ in reader.files)] for split, reader in readers.items()}
    return key_of(source=source, target=target, text=text)


def _measure(readers: dict[str, Reader], languages: tuple[str, str]) -> tuple[dict[str, Any], np.ndarray]:
    """Read all text: what the corpus's cache entry says of it, and the facts of its training pairs.

    Every fault of the files is found here, before any work begins.
    """
    missing = [split for split in ("valid", "test") if split not in readers]
    train, notes = readers["train"], []
    samples = {split: Sample() for split in readers}
    splits = {
        split: fingerprint(reader.read(), samples[split].add) for split, reader in readers.items() if split != "train"
    }
    held = holdout.hold_out(train, missing) if missing else None
    if held:
        train = held.rest_of(train)
        splits |= {split: fingerprint(pairs) for split, pairs in held.pairs.items()}
        share = len(held.pairs[missing[0]])
        notes.append(
            f"held out of train, for want of a file: {counted(share, 'pair')} each for {' and '.join(missing)}"
        )
    elif missing:
        fewest = f"below {holdout.FEWEST:,} training pairs none is held out for it"
        notes.append(f"no {' or '.join(missing)} text, and {fewest}")
    facts, digests = bytearray(), bytearray()

    def note(left: str, right: str, text: bytes) -> None:
        facts.append(facts_of(left, right))
        digests.extend(digest_of(text))
        samples["train"].add(left, right)

    splits["train"] = fingerprint(train.read(), note)
    judged = np.frombuffer(facts, np.uint8)
    mark_repeated(judged, np.frombuffer(digests, np.uint64))
    sides = [
        {f"{split}.{language}": [pair[side] for pair in sample.pairs] for split, sample in samples.items()}
        for side, language in enumerate(languages)
    ]
    manifest = {
        "splits": splits,
        "doubts": [doubt for texts in sides for doubt in doubts(texts, "a model learns to read and write such text")],
        "form": form_of(sides[0][f"train.{languages[0]}"]),
        "held_out": held.pairs if held else {},
        "held_out_sources": sorted(held.sources) if held else [],
        "notes": notes,
    }
    return manifest, judged


def _write_facts(folder: Path, manifest: dict[str, Any], facts: np.ndarray) -> dict[str, Any]:
    (folder / FACTS).write_bytes(facts.data)
    return manifest
