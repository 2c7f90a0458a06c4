"""Where sentence pairs come from: a folder of text, a data set in the Hugging Face hub's layout, or the embedded demo.

Every source becomes a Corpus of three splits. A split is read anew each time it is iterated, so that a corpus of any size
passes through without being held; only counting, cleaning and the choice of what is held out look at every line.
"""

import hashlib
import heapq
import os
import re
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from nmt.config import TrainingConfig
from nmt.errors import NmtError, UsageError
from nmt.lines import clean, is_blank, read_lines

Pair = tuple[str, str]  # a source line and its translation

NAMES = {"train": ("train",), "valid": ("valid", "validation", "dev"), "test": ("test",)}
WMT14 = ("wmt/wmt14", "de-en")
WMT14_COUNTS = {"train": 4_508_785, "valid": 3_000, "test": 3_003}
HELD_OUT = 1_000  # pairs held out of train where a split is missing, or 5% if that is less
LANGUAGE = re.compile(r"(?!(?:tsv|csv|txt)$)[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")  # en, pt-BR, zh_Hans
PATIENCE = 5  # seconds to wait for the hub
FEWEST = 1_000  # below so many training pairs, none is held out


@dataclass(frozen=True)
class Split:
    """One part of a corpus: its pairs, how many there are, and a fingerprint of their text."""

    read: Callable[[], Iterator[Pair]]
    count: int
    sha256: str

    def __iter__(self) -> Iterator[Pair]:
        return self.read()


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


@dataclass
class CleaningReport:
    """What became of the training pairs, by reason."""

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    control_characters: int = 0  # pairs in which some were replaced by spaces

    @property
    def kept(self) -> int:
        return self.read - self.dropped.total()

    def __str__(self) -> str:
        reasons = "".join(f", {n:,} {reason}" for reason, n in self.dropped.most_common())
        text = f"read {self.read:,} pairs, kept {self.kept:,}, dropped {self.dropped.total():,}{reasons and ':' + reasons[1:]}"
        if self.control_characters:
            text += f"; control characters became spaces in {self.control_characters:,}"
        return text


def load(data: str, source: str, target: str) -> Corpus:
    """The corpus that `--data` names: `wmt14`, `demo`, an existing path, or `owner/name[:config]` on the hub.

    Raises UsageError for what does not exist, does not hold the languages, or has sides of different length; NmtError
    where the hub cannot be reached.
    """
    if data == "demo":
        return _assemble("demo", source, target, _folder(demo_folder(), source, target))
    if data == "wmt14":
        corpus = _assemble("wmt14", source, target, _hub(*WMT14, source, target))
        for name, expected in WMT14_COUNTS.items():
            split = getattr(corpus, name)
            if split is None or split.count != expected:
                raise NmtError(
                    f"wmt14: {name} holds {split.count if split else 0:,} pairs instead of {expected:,}; "
                    "the download is not the WMT14 data, so clear it from the Hugging Face cache and fetch it again"
                )
        return corpus
    path, _, config = data.partition(":")
    if os.path.exists(data):  # unlike Path.exists, false for a name too long to be one
        path, config = data, ""
    if path and os.path.isdir(path):
        of_text = any(_text_files(Path(path)))
        if not of_text and os.path.exists(table := os.path.join(path, "train.tsv")):
            raise UsageError(f"{table}: tables are not read; make train.{source} and train.{target} of its columns")
        readers = _folder(Path(path), source, target) if of_text else _hub(path, config, source, target)
        return _assemble(Path(path).resolve().name, source, target, readers)
    if os.path.exists(path):
        raise UsageError(f"--data {data}: a file; name the folder that holds train.{source} and train.{target}")
    if path.count("/") != 1 or path.startswith((".", "/")):
        raise UsageError(f"--data {data}: no such folder (nor 'wmt14', 'demo', or owner/name of a data set on the hub)")
    return _assemble(data, source, target, _hub(path, config, source, target))


def demo_folder() -> Path:
    """The embedded corpus: beside this module in an installed wheel, at the top of a checkout."""
    installed = Path(__file__).parent / "demo"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "data" / "demo"


def usable(pairs: Iterable[Pair], settings: TrainingConfig, report: CleaningReport) -> Iterator[Pair]:
    """The pairs fit for training so far as their text tells; the others are counted in the report."""
    seen: set[bytes] = set()
    for source, target in pairs:
        report.read += 1
        if reason := _unusable(source, target, settings, seen):
            report.dropped[reason] += 1
            continue
        report.control_characters += clean(source) != source or clean(target) != target
        yield source, target


def _unusable(source: str, target: str, settings: TrainingConfig, seen: set[bytes]) -> str | None:
    if is_blank(source):
        return "with an empty source"
    if is_blank(target):
        return "with an empty target"
    if settings.drop_identical and source == target:
        return "with identical sides"
    if settings.drop_duplicates:
        digest = _digest(f"{source}\n{target}")
        if digest in seen:
            return "seen before"
        seen.add(digest)
    return None


# Folders of text: train|valid|test.<language>, any of them packed.


def _text_files(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """(split, language, path) of every file named as a split's side."""
    splits = {name: split for split, names in NAMES.items() for name in names}
    for path in sorted(folder.iterdir()):
        stem, _, language = path.name.removesuffix(".gz").partition(".")
        if stem in splits and LANGUAGE.fullmatch(language):
            yield splits[stem], language, path


def _folder(folder: Path, source: str, target: str) -> dict[str, Callable[[], Iterator[Pair]]]:
    files: dict[tuple[str, str], Path] = {}
    for split, language, path in _text_files(folder):
        if other := files.get((split, language)):
            raise UsageError(f"{folder}: {other.name} and {path.name} are the same side twice; remove one")
        files[split, language] = path
    found = sorted({language for split, language in files if split == "train"})
    for option, language in (("--source", source), ("--target", target)):
        if language not in found:
            raise UsageError(
                f"{folder}: no training text train.{language} for {option} {language}; "
                f"languages found: {', '.join(found) or 'none'}"
            )
    readers = {}
    for split in NAMES:
        sides = files.get((split, source)), files.get((split, target))
        if sides[0] and sides[1]:
            readers[split] = _pair_reader(sides[0], sides[1])
        elif sides[0] or sides[1]:
            raise UsageError(f"{folder}: {(sides[0] or sides[1]).name} has no counterpart in the other language")  # type: ignore[union-attr]
    return readers


def _pair_reader(source: Path, target: Path) -> Callable[[], Iterator[Pair]]:
    def read() -> Iterator[Pair]:
        for number, (left, right) in enumerate(zip_longest(read_lines(source), read_lines(target)), 1):
            if left is None or right is None:
                counts = {path: sum(1 for _ in read_lines(path)) for path in (source, target)}
                raise UsageError(
                    f"{source} has {counts[source]:,} lines but {target} has {counts[target]:,}: "
                    f"line {number:,} has no counterpart; make the files line up"
                )
            yield left, right

    return read


# Data sets in the hub's layout, local or remote, through the `datasets` library.


def _hub(path: str, config: str, source: str, target: str) -> dict[str, Callable[[], Iterator[Pair]]]:
    local = Path(path).is_dir()
    if not local and not _hub_answers(path):
        os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: what was fetched before still loads, without waiting
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import datasets

    label = f"{path}:{config}" if config else path
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        loaded = datasets.load_dataset(path, config or None)
    except ConnectionError:
        raise NmtError(
            f"--data {label}: the Hugging Face hub cannot be reached and the data set is not in its cache; "
            "connect to the network (or set HF_ENDPOINT to a mirror), or use --data demo, which is embedded, "
            "or --data FOLDER with your own train.en and train.de"
        ) from None
    except (datasets.exceptions.DatasetsError, FileNotFoundError, ValueError) as error:
        said = " ".join(str(error).split("Example of usage")[0].split()) or type(error).__name__
        hint = f"; name one as --data {path}:CONFIG" if "Config name is missing" in said else ""
        raise UsageError(f"--data {label}: no data set that can be read here: {said}{hint}") from None
    except Exception as error:  # a transport's own errors, a full disk
        raise NmtError(f"--data {label}: the fetch failed ({error}); the same command tries again") from None
    readers = {}
    for split, names in NAMES.items():
        if name := next((name for name in names if name in loaded), None):
            readers[split] = _row_reader(loaded[name], label, source, target)
    if "train" not in readers:
        raise UsageError(f"--data {label}: no 'train' split; splits found: {', '.join(loaded)}")
    return readers


def _hub_answers(path: str) -> bool:
    """Whether the hub is within reach, found out in seconds: the library by itself retries for half a minute."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    answers: list[bool] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(f"{endpoint}/api/datasets/{path}", timeout=PATIENCE).close()
            answers.append(True)
        except urllib.error.HTTPError:
            answers.append(True)  # it answered; what it said is for the library to report
        except OSError:
            answers.append(False)

    asking = threading.Thread(target=ask, daemon=True)  # a look-up of the name has no time limit of its own
    asking.start()
    asking.join(PATIENCE)
    return answers == [True]


def _row_reader(rows: Any, label: str, source: str, target: str) -> Callable[[], Iterator[Pair]]:
    feature = rows.features.get("translation")
    languages = getattr(feature, "languages", feature)  # Translation, or a mapping of language to text
    nested = isinstance(languages, (list, tuple, dict))
    found = list(languages if nested else rows.column_names)
    if missing := [language for language in (source, target) if language not in found]:
        raise UsageError(f"--data {label}: no text in '{missing[0]}'; languages found: {', '.join(map(str, found))}")

    def read() -> Iterator[Pair]:
        for chunk in rows.iter(1_000):  # a row at a time would be many times slower
            texts = chunk["translation"] if nested else None
            columns = ([row[side] for row in texts] if texts else chunk[side] for side in (source, target))
            for left, right in zip(*columns, strict=True):
                yield (left or "").replace("\n", " "), (right or "").replace("\n", " ")

    return read


# What every source has in common.


def _assemble(name: str, source: str, target: str, readers: dict[str, Callable[[], Iterator[Pair]]]) -> Corpus:
    if source == target:
        raise UsageError(f"--source {source} and --target {target} are the same language")
    splits = {split: _measure(read) for split, read in readers.items()}
    train, missing = splits["train"], [split for split in ("valid", "test") if split not in splits]
    notes = []
    if missing and train.count < FEWEST:
        notes.append(f"no {' or '.join(missing)} text, and below {FEWEST:,} training pairs none is held out for it")
    elif missing:
        share = min(HELD_OUT, train.count // 20)
        chosen = _held_out(train, share * len(missing))
        share = len(chosen) // len(missing)  # less where the same sources recur
        for number, split in enumerate(missing):
            splits[split] = _measure(_held_out_reader(train, set(chosen[number * share : (number + 1) * share])))
        train = _measure(_rest_reader(train, set(chosen)))
        notes.append(f"held out of train, for want of a file: {share:,} pairs each for {' and '.join(missing)}")
    return Corpus(name, source, target, train, splits.get("valid"), splits.get("test"), tuple(notes))


def _measure(read: Callable[[], Iterator[Pair]]) -> Split:
    """Read a split through once: counts, fingerprint, and every fault of its files before any work begins."""
    digest, count = hashlib.sha256(), 0
    for left, right in read():
        digest.update(f"{left}\n{right}\n".encode())
        count += 1
    return Split(read, count, digest.hexdigest())


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


def _held_out(train: Split, count: int) -> list[bytes]:
    """Digests of the sources to hold out: the smallest ones, so that every run on the same text chooses the same.

    At most half of the different sources, for they may be few.
    """
    full = (source for source, target in train if not (is_blank(source) or is_blank(target)))
    digests = set(map(_digest, full))
    return heapq.nsmallest(min(count, len(digests) // 2), digests)


def _held_out_reader(train: Split, chosen: set[bytes]) -> Callable[[], Iterator[Pair]]:
    def read() -> Iterator[Pair]:
        waiting = set(chosen)
        for source, target in train:
            if (digest := _digest(source)) in waiting and not is_blank(target):
                waiting.remove(digest)  # one pair a source; its other translations are in no split
                yield source, target

    return read


def _rest_reader(train: Split, chosen: set[bytes]) -> Callable[[], Iterator[Pair]]:
    return lambda: (pair for pair in train if _digest(pair[0]) not in chosen)
