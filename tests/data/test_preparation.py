"""A corpus made ready: the same from the cache as without it, by one core as by two, and never from a damaged or old file."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config import TrainingConfig
from nmt.data import corpus as corpora
from nmt.data import overlap, preparation
from nmt.data import prepared as module
from nmt.data.cache import Cache
from nmt.data.cleaning import CleaningReport, usable
from nmt.data.corpus import Corpus, Pair, load
from nmt.data.preparation import Prepared, describe, learn_vocabulary, prepare_corpus
from nmt.data.prepared import PreparedPairs, prepare
from nmt.data.vocabulary import Vocabulary
from nmt.errors import NmtError, UsageError
from tests.conftest import write_corpus

CONFIG = TrainingConfig(vocab_size=500)
NOISE: list[Pair] = [
    ("", "x"),
    ("y", " "),
    ("x", "word " * 20),
    ("Same .", "Same ."),
    ("w " * 300, "W " * 300),
    ("a\tb", "c"),
]


@pytest.fixture
def pairs(demo_pairs: list[Pair]) -> list[Pair]:
    """1,212 pairs, some of which each filter drops, and some more than once."""
    return [*demo_pairs[:600], *NOISE, *demo_pairs[300:900], *NOISE]


@pytest.fixture
def data(tmp_path: Path, pairs: list[Pair]) -> Path:
    return write_corpus(tmp_path / "data", train=pairs)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache([tmp_path / "cache"])


def text(corpus: Corpus) -> list[list[Pair]]:
    return [list(split) if split else [] for split in (corpus.train, corpus.valid, corpus.test)]


def same_corpus(one: Corpus, other: Corpus) -> bool:
    splits = [[(split.count, split.sha256) for split in (c.train, c.valid, c.test) if split] for c in (one, other)]
    return (
        splits[0] == splits[1]
        and text(one) == text(other)
        and (one.name, one.notes, one.key) == (other.name, other.notes, other.key)
        and np.array_equal(one.facts, other.facts)
    )


def same_pairs(one: PreparedPairs, other: PreparedPairs) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) and getattr(a, name).dtype == getattr(b, name).dtype
        for a, b in ((one.source, other.source), (one.target, other.target))
        for name in ("ids", "starts", "lengths")
    )


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, a pass over the training text is a failure."""

    def read(*_: Any) -> Any:
        raise AssertionError("the text was read")

    monkeypatch.setattr(corpora, "_measure", read)
    monkeypatch.setattr(Corpus, "usable", read)
    monkeypatch.setattr(preparation, "learn", read)


# The corpus itself.


@pytest.mark.parametrize("given", [False, True])
def test_a_cached_corpus_is_the_corpus(tmp_path: Path, data: Path, cache: Cache, given: bool) -> None:
    """Loaded from the cache it has the same splits, counts, fingerprints, notes and facts, held out or given."""
    if given:
        write_corpus(data, valid=NOISE, test=[("t", "T")])
    plain, first, again = (
        load(str(data), "en", "de"),
        load(str(data), "en", "de", cache),
        load(str(data), "en", "de", cache),
    )
    assert same_corpus(plain, first)
    assert same_corpus(plain, again)
    assert plain.valid is not None
    assert plain.valid.count == (len(NOISE) if given else 60)


def test_a_cached_corpus_is_not_read(data: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the cache, a run gets to its ids and to its held-out text without a pass over the training text."""
    corpus = load(str(data), "en", "de", cache)
    vocabulary = learn_vocabulary(corpus, CONFIG, cache)
    first = prepare_corpus(corpus, vocabulary, CONFIG, cache)
    forbid_reading(monkeypatch)
    again = load(str(data), "en", "de", cache)
    assert again.clean(CONFIG) == corpus.clean(CONFIG)
    assert [list(split) for split in (again.valid, again.test) if split] == text(corpus)[1:]
    assert learn_vocabulary(again, CONFIG, cache).model == vocabulary.model
    found = prepare_corpus(again, vocabulary, CONFIG, cache)
    assert same_pairs(found.pairs, first.pairs)
    assert (found.report, found.overlap, found.notes) == (first.report, first.overlap, first.notes)


def test_changed_bytes_are_another_corpus(data: Path, cache: Cache) -> None:
    """A file rewritten with other text of the same size and time is read anew; the old text is found again, too."""
    path = data / "train.de"
    before, times = path.read_text(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    first = load(str(data), "en", "de", cache)
    train = list(first.train)
    path.write_text(before.swapcase())
    os.utime(path, ns=times)
    changed = load(str(data), "en", "de", cache)
    assert changed.key != first.key
    assert list(changed.train) == [(source, target.swapcase()) for source, target in train]
    path.write_text(before)
    again = load(str(data), "en", "de", cache)
    assert (again.key, list(again.train)) == (first.key, train)


def test_a_moved_folder_is_the_same_corpus(
    tmp_path: Path, data: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is of bytes and not of names of folders or of times."""
    first = load(str(data), "en", "de", cache)
    shutil.copytree(data, tmp_path / "moved", copy_function=shutil.copy)
    shutil.rmtree(data)
    forbid_reading(monkeypatch)
    moved = load(str(tmp_path / "moved"), "en", "de", cache)
    assert (moved.key, moved.name) == (first.key, "moved")
    assert len(list(moved.train)) == first.train.count


def test_direction_form_and_split_are_in_the_key(tmp_path: Path) -> None:
    """The same bytes read in the other direction, as another format or as another split are another corpus."""
    one, two = [("a", "A")], [("b", "B")]
    write_corpus(tmp_path / "plain", train=one, valid=two, test=one)
    write_corpus(tmp_path / "other", train=one, valid=one, test=two)
    (tmp_path / "x.tsv").write_text("{}\t{}\n")
    (tmp_path / "x.jsonl").write_text('{"en": "a", "de": "b"}\n')
    (tmp_path / "y.tsv").write_text('{"en": "a", "de": "b"}\tx\n')
    keys = {
        load(str(tmp_path / name), *languages).key
        for name in ("plain", "other", "x.tsv", "x.jsonl", "y.tsv")
        for languages in (("en", "de"), ("de", "en"))
    }
    assert len(keys) == 10


def test_a_file_that_changes_while_it_is_read_is_not_cached(
    data: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text that still arrives, as from a download, is refused instead of being kept under a name that is not its own."""
    measure = corpora._measure

    def slow(readers: Any) -> Any:
        found = measure(readers)
        for language in ("en", "de"):
            with (data / f"train.{language}").open("a") as file:
                file.write("more\n")
        return found

    monkeypatch.setattr(corpora, "_measure", slow)
    with pytest.raises(UsageError, match="changed while it was read"):
        load(str(data), "en", "de", cache)
    assert not cache.places[0].exists()


@pytest.mark.parametrize("change", ["shorter", "longer", "other"])
def test_a_file_that_changes_before_it_is_encoded_is_refused(
    data: Path, cache: Cache, vocabulary: Vocabulary, change: str
) -> None:
    """Facts of one text are never applied to another."""
    corpus = load(str(data), "en", "de", cache)
    for language in ("en", "de"):
        lines = (data / f"train.{language}").read_text().splitlines(keepends=True)
        lines = {"shorter": lines[:-1], "longer": [*lines, "x\n"], "other": [*lines[:-1], "x\n"]}[change]
        (data / f"train.{language}").write_text("".join(lines))
    with pytest.raises(UsageError, match="changed while it was read"):
        prepare_corpus(corpus, vocabulary, CONFIG, cache)
    assert [path for path in cache.places[0].iterdir() if path.name.startswith("pairs")] == []


# Its pairs as ids.


@pytest.mark.parametrize("settings", [{}, {"drop_duplicates": True, "drop_identical": True}, {"max_pieces": 20}])
def test_prepared_on_disk_is_prepared_in_memory(
    data: Path, cache: Cache, vocabulary: Vocabulary, settings: dict[str, int | bool]
) -> None:
    """The mapped ids and the report are those of encoding the text in memory, for any settings."""
    config = TrainingConfig.model_validate(settings)
    corpus = load(str(data), "en", "de", cache)
    prepared = prepare_corpus(corpus, vocabulary, config, cache)
    report = CleaningReport()
    expected = prepare(usable(corpus.train, config, report), vocabulary, config, report)
    assert same_pairs(prepared.pairs, expected)
    assert prepared.report == report
    assert prepared.report.kept == len(prepared.pairs) > 0
    assert corpus.clean(config).read == corpus.train.count


@pytest.mark.parametrize("chunk", [7, 100, 10_000])
@pytest.mark.parametrize("cores", [1, 2, 3])
def test_the_number_of_cores_does_not_show(
    data: Path, tmp_path: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, chunk: int, cores: int
) -> None:
    """One process or three, chunks small or large: the same bytes, the same report."""
    corpus = load(str(data), "en", "de")
    expected = prepare_corpus(corpus, vocabulary, CONFIG, Cache([tmp_path / "expected"]))
    monkeypatch.setattr(preparation, "cores", lambda: cores)
    monkeypatch.setattr(preparation, "PER_WORKER", 1)
    monkeypatch.setattr(module, "CHUNK", chunk)
    prepared = prepare_corpus(corpus, vocabulary, CONFIG, Cache([tmp_path / "other"]))
    assert prepared.folder.name == expected.folder.name
    for path in expected.folder.iterdir():
        found = (prepared.folder / path.name).read_bytes()
        if path.suffix == ".json":
            assert json.loads(found) == json.loads(path.read_bytes())
        else:
            assert found == path.read_bytes()


def test_long_lines_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunk holds many more characters than its limit, however long the lines are; no pair is lost."""
    monkeypatch.setattr(module, "CHARACTERS", 100)
    pairs = [("a" * length, "b" * length) for length in (1, 200, 10, 10, 10, 10, 60, 1, 1)]
    chunks = list(module.chunks_of(iter(pairs)))
    assert [len(chunk) for chunk in chunks] == [2, 5, 2]
    assert [pair for chunk in chunks for pair in chunk] == pairs


def test_other_settings_are_other_entries(data: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """Text, vocabulary and each filter are in the key; seed, steps and the like are not."""
    corpus = load(str(data), "en", "de", cache)
    other_vocabulary = learn_vocabulary(corpus, CONFIG, cache)
    folders = [
        prepare_corpus(corpus, with_vocabulary, TrainingConfig.model_validate(settings), cache).folder
        for with_vocabulary, settings in (
            (vocabulary, {}),
            (vocabulary, {"seed": 2, "steps": 7, "vocab_size": 99}),
            (other_vocabulary, {}),
            (vocabulary, {"max_pieces": 20}),
            (vocabulary, {"max_ratio": 2.0}),
            (vocabulary, {"drop_duplicates": True}),
            (vocabulary, {"drop_identical": True}),
        )
    ]
    assert folders[0] == folders[1]
    assert len(set(folders)) == 6


@pytest.mark.parametrize("kind", ["corpus", "vocabulary", "pairs"])
def test_a_damaged_entry_is_made_anew(data: Path, tmp_path: Path, kind: str) -> None:
    """A torn file of any of the three kinds is noticed, said, and made anew with the same content."""
    said: list[str] = []
    cache = Cache([tmp_path / "cache"], said.append)

    def run() -> Prepared:
        corpus = load(str(data), "en", "de", cache)
        return prepare_corpus(corpus, learn_vocabulary(corpus, CONFIG, cache), CONFIG, cache)

    first = [array.copy() for side in (run().pairs.source, run().pairs.target) for array in (side.ids, side.starts)]
    [folder] = (tmp_path / "cache").glob(f"{kind}-*")
    largest = max(folder.iterdir(), key=lambda path: (path.suffix != ".json", path.stat().st_size))
    os.truncate(largest, largest.stat().st_size // 2)
    again = run()
    assert [str(folder) in line and "damaged" in line for line in said] == [True]
    found = [array for side in (again.pairs.source, again.pairs.target) for array in (side.ids, side.starts)]
    assert all(map(np.array_equal, first, found))
    run()
    assert len(said) == 1


def test_another_process_opens_the_folder(data: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """Ranks of the same machine map the same files, read-only."""
    prepared = prepare_corpus(load(str(data), "en", "de", cache), vocabulary, CONFIG, cache)
    opened = PreparedPairs.open(prepared.folder)
    assert same_pairs(opened, prepared.pairs)
    with pytest.raises(ValueError, match="read-only"):
        opened.source.ids[0] = 1
    (prepared.folder / "source.ids").unlink()
    with pytest.raises(NmtError, match="damaged"):
        PreparedPairs.open(prepared.folder)


def test_no_pair_left_is_an_empty_set(tmp_path: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """Where cleaning leaves nothing, there is nothing to map, and that is no error here."""
    corpus = load(str(write_corpus(tmp_path / "none", train=[("x", "word " * 20)] * 3)), "en", "de", cache)
    for _ in range(2):
        prepared = prepare_corpus(corpus, vocabulary, CONFIG, cache)
        assert (len(prepared.pairs), prepared.report.kept) == (0, 0)
        assert describe(corpus, prepared)["dropped"] == {"with a length ratio over 3": {"pairs": 3, "share": 1.0}}


# What is told of it.


def test_overlap_is_counted_and_nothing_is_dropped(tmp_path: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """Held-out lines in the training text are counted by side, case and white space aside, lines and pairs apart."""
    train = [
        ("Hello  World .", "x"),
        ("hello world .", "y"),
        ("a good day .", "GUTEN\u00a0Tag ."),
        ("", "guten tag ."),
        ("z", "Z"),
    ]
    valid = [("hello world .", "Hallo Welt ."), ("HELLO WORLD .", "Hallo ."), ("new", "neu"), ("", "")]
    test = [("good day .", "guten tag .")]
    corpus = load(str(write_corpus(tmp_path / "data", train=train, valid=valid, test=test)), "en", "de", cache)
    prepared = prepare_corpus(corpus, vocabulary, CONFIG, cache)
    assert prepared.overlap == {
        "valid": {"lines": 4, "source": {"lines": 2, "pairs": 2}, "target": {"lines": 0, "pairs": 0}},
        "test": {"lines": 1, "source": {"lines": 0, "pairs": 0}, "target": {"lines": 1, "pairs": 1}},
    }
    assert len(prepared.pairs) == 4
    assert prepared.notes[0].startswith("valid: of its 4 lines 2 sources and 0 targets stand in the training text too")
    assert json.loads(json.dumps(describe(corpus, prepared)))["overlap"] == prepared.overlap


def test_the_description_is_whole(data: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """config.json gets what was read, kept and dropped, by filter with its share, and the notes."""
    corpus = load(str(data), "en", "de", cache)
    prepared = prepare_corpus(corpus, vocabulary, CONFIG, cache)
    told = json.loads(json.dumps(describe(corpus, prepared)))
    assert told["read"] == corpus.train.count
    assert told["read"] - told["kept"] == sum(reason["pairs"] for reason in told["dropped"].values())
    assert told["dropped"]["with an empty source"]["share"] == pytest.approx(2 / told["read"], abs=1e-6)
    assert "held out of train" in told["notes"][0]


def test_newstest2012_is_compared_with_wmt14_alone(
    hub_of_wmt14: Path, data: Path, cache: Cache, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where sacrebleu has the test set it is counted like valid and test; a folder of one's own asks for nothing."""
    asked: list[tuple[str, str]] = []

    def fetched(source: str, target: str) -> list[Pair]:
        asked.append((source, target))
        return [("English 1", "x"), ("unseen", "y")]

    monkeypatch.setattr(preparation, "newstest2012", fetched)
    mine = data.rename(data.with_name("wmt14"))
    prepare_corpus(load(str(mine), "en", "de", cache), vocabulary, CONFIG, cache)
    assert asked == []
    prepared = prepare_corpus(load("wmt14", "en", "de", cache), vocabulary, CONFIG, cache)
    assert asked == [("en", "de")]
    assert prepared.overlap["newstest2012"] == {
        "lines": 2,
        "source": {"lines": 1, "pairs": 1},
        "target": {"lines": 0, "pairs": 0},
    }


def test_without_newstest2012_it_is_said(
    hub_of_wmt14: Path, cache: Cache, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline, the comparison is left out with one line, now and when the pairs come from the cache, and no error."""
    monkeypatch.setattr(preparation, "newstest2012", lambda *_: "<urlopen error>")
    corpus = load("wmt14", "en", "de", cache)
    for _ in range(2):
        prepared = prepare_corpus(corpus, vocabulary, CONFIG, cache)
        assert set(prepared.overlap) == {"valid", "test"}
        assert [note for note in prepared.notes if "newstest2012" in note and "<urlopen error>" in note]


@pytest.mark.parametrize("failure", [OSError("unreachable"), SystemExit(1), None])
def test_newstest2012_never_ends_a_run(monkeypatch: pytest.MonkeyPatch, failure: BaseException | None) -> None:
    """Errors of the network, sacrebleu's own exit and silence are each one reason in words."""
    import sacrebleu.utils

    def get_files(*_: Any) -> list[str]:
        if failure:
            raise failure
        signal.sigtimedwait([], 5)
        return []

    monkeypatch.setattr(sacrebleu.utils, "get_files", get_files)
    monkeypatch.setattr(overlap, "PATIENCE", 0.1)
    said = overlap.newstest2012("en", "de")
    assert isinstance(said, str)
    assert said


def test_newstest2012_is_read_from_sacrebleus_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that sacrebleu names are the pairs, in the run's direction."""
    import sacrebleu.utils

    (tmp_path / "src").write_text("one\ntwo\n")
    (tmp_path / "ref").write_text("eins\nzwei\n")
    asked: list[tuple[str, str]] = []

    def get_files(*names: str) -> list[str]:
        asked.append(names)  # type: ignore[arg-type]
        return [str(tmp_path / "src"), str(tmp_path / "ref"), "more"]

    monkeypatch.setattr(sacrebleu.utils, "get_files", get_files)
    assert overlap.newstest2012("en", "de") == [("one", "eins"), ("two", "zwei")]
    assert asked == [("wmt12", "en-de")]


@pytest.fixture
def hub_of_wmt14(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the hub's exact layout that stands for WMT14: 4 training pairs, 2 valid, 1 test."""
    import datasets

    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "huggingface")
    folder, card = tmp_path / "hub", "---\nconfigs:\n- config_name: de-en\n  data_files:\n"
    features = datasets.Features({"translation": datasets.Translation(["de", "en"])})
    for split, count in (("train", 4), ("validation", 2), ("test", 1)):
        rows = [{"translation": {"de": f"deutsch {n}", "en": f"english {n}"}} for n in range(count)]
        card += f"  - split: {split}\n    path: de-en/{split}-*\n"
        (folder / "de-en").mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_list(rows, features=features).to_parquet(
            folder / "de-en" / f"{split}-00000-of-00001.parquet"
        )
    (folder / "README.md").write_text(card + "---\n")
    monkeypatch.setattr(corpora, "WMT14", (str(folder), "de-en"))
    monkeypatch.setattr(corpora, "WMT14_COUNTS", {"train": 4, "valid": 2, "test": 1})
    return folder


def test_the_hubs_layout_is_cached_by_content(
    hub_of_wmt14: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parquet file rewritten in place, with the same size and time, is another corpus; unchanged, it is not read."""
    import datasets

    first = load("wmt14", "en", "de", cache)
    path = hub_of_wmt14 / "de-en" / "train-00000-of-00001.parquet"
    before, stat = path.read_bytes(), path.stat()
    features = datasets.Features({"translation": datasets.Translation(["de", "en"])})
    rows = [{"translation": {"de": f"DEUTSCH {n}", "en": f"english {n}"}} for n in range(4)]
    datasets.Dataset.from_list(rows, features=features).to_parquet(path)
    assert path.stat().st_size == stat.st_size
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    changed = load("wmt14", "en", "de", cache)
    assert [target for _, target in changed.train] == [f"DEUTSCH {n}" for n in range(4)]
    assert changed.key != first.key
    path.write_bytes(before)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    forbid_reading(monkeypatch)
    assert load("wmt14", "en", "de", cache).key == first.key


def test_a_torn_download_is_refused(hub_of_wmt14: Path, cache: Cache) -> None:
    """A data file of which only a part arrived is one sentence, and nothing is kept of it."""
    path = hub_of_wmt14 / "de-en" / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError) as error:
        load("wmt14", "en", "de", cache)
    assert "\n" not in str(error.value)
    assert not cache.places[0].exists()


def test_a_torn_gz_is_refused(tmp_path: Path, cache: Cache, pairs: list[Pair]) -> None:
    """A packed file of which only a part arrived is named, and nothing is kept of it."""
    folder = write_corpus(tmp_path / "torn", train=pairs)
    packed = gzip.compress((folder / "train.de").read_bytes())
    (folder / "train.de").unlink()
    (folder / "train.de.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UsageError, match=r"train\.de\.gz"):
        load(str(folder), "en", "de", cache)
    assert not cache.places[0].exists()


# The whole of it as a process.

PREPARE = """
import resource, sys
from pathlib import Path
from nmt.config import TrainingConfig
from nmt.data import preparation
from nmt.data.cache import Cache
from nmt.data.corpus import load
from nmt.errors import NmtError
if sys.argv[3] != "0":
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]),) * 2)
preparation.cores = lambda: 2
cache = Cache([Path(sys.argv[2])], lambda text: print(text, file=sys.stderr, flush=True))
config = TrainingConfig(vocab_size=1000)
try:
    corpus = load(sys.argv[1], "en", "de", cache)
    prepared = preparation.prepare_corpus(corpus, preparation.learn_vocabulary(corpus, config, cache), config, cache)
except KeyboardInterrupt:
    raise SystemExit(130)
assert "torch" not in sys.modules
print(prepared.report)
"""


def seq(folder: Path, count: int) -> Path:
    """The public check's corpus: a number and four words a line."""
    folder.mkdir()
    for language, words in (("en", "some words follow here"), ("de", "hier folgen einige Worte")):
        with (folder / f"train.{language}").open("w") as file:
            file.writelines(f"{number} {words}\n" for number in range(1, count + 1))
    return folder


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Two runs that prepare the same corpus at the same time both end well, with one entry of each kind between them."""
    folder = seq(tmp_path / "data", 2_000)
    command = [sys.executable, "-c", PREPARE, str(folder), str(tmp_path / "cache"), "0"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0] == said[1]
    assert sorted(path.name.split("-")[0] for path in (tmp_path / "cache").iterdir()) == [
        "corpus",
        "pairs",
        "vocabulary",
    ]


@pytest.mark.slow
def test_two_million_pairs_under_four_gigabytes(tmp_path: Path) -> None:
    """With its address space held to 4 GB, as by `ulimit -v`, preparation of 2,000,000 pairs finishes."""
    folder = seq(tmp_path / "data", 2_000_000)
    command = [sys.executable, "-c", PREPARE, str(folder), str(tmp_path / "cache"), str(4 * 10**9)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "read 1,998,000 pairs, kept 1,998,000" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_preparation_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    """Stopped while it encodes, it says nothing more, leaves no process and no entry, and the next run ends as ever."""
    command = [sys.executable, "-c", PREPARE, str(seq(tmp_path / "data", 100_000)), str(tmp_path / "cache"), "0"]
    stopped = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert stopped.stderr
    assert stopped.stderr.readline() == b"encoding 98,000 pairs on 2 cores\n"
    stopped.send_signal(number)
    _, said = stopped.communicate(timeout=60)
    assert said == b""  # the pipe is at its end, so no worker holds it either
    assert stopped.returncode == (130 if number == signal.SIGINT else -number)
    left = [path.name for path in (tmp_path / "cache").glob("pairs-*")]
    assert [name for name in left if not name.endswith(".part")] == []
    assert len(left) == (number == signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "kept 98,000" in done.stdout
    assert len(list((tmp_path / "cache").glob("pairs-*"))) == 1
