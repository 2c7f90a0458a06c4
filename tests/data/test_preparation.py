"""A corpus as ids on disk: as in memory, by one process as by three, for just these settings, whatever stops a run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.config import TrainingConfig
from nmt.data import preparation
from nmt.data import prepared as module
from nmt.data.cache import Cache
from nmt.data.cleaning import CleaningReport
from nmt.data.corpus import load
from nmt.data.encoding import Encoder
from nmt.data.preparation import describe, learn_vocabulary, prepare_corpus
from nmt.data.prepared import PreparedPairs, prepare
from nmt.data.vocabulary import Vocabulary
from nmt.errors import NmtError, UsageError
from tests.conftest import write_corpus
from tests.data.conftest import same_pairs, usable

CONFIG = TrainingConfig(vocab_size=500)


@pytest.mark.parametrize("settings", [{}, {"drop_duplicates": True, "drop_identical": True}, {"max_pieces": 20}])
def test_prepared_on_disk_is_prepared_in_memory(
    data: Path, cache: Cache, vocabulary: Vocabulary, settings: dict[str, int | bool]
) -> None:
    """The mapped ids and the report are those of encoding the text in memory, for any settings."""
    config = TrainingConfig.model_validate(settings)
    corpus = load(str(data), "en", "de", cache)
    prepared = prepare_corpus(corpus, vocabulary, config, cache)
    report = CleaningReport()
    encoder = Encoder(vocabulary, config.max_pieces, config.max_ratio)
    expected = prepare(usable(corpus.train, config, report), encoder, report)
    assert same_pairs(prepared.pairs, expected)
    assert prepared.report == report
    assert prepared.report.kept == len(prepared.pairs) > 0
    assert corpus.clean(config).read == corpus.train.count


@pytest.mark.parametrize(("cores", "chunk"), [(1, 7), (2, 100), (3, 7), (3, 10_000)])
def test_the_number_of_cores_does_not_show(
    data: Path, tmp_path: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, cores: int, chunk: int
) -> None:
    """One process or three, chunks small or large, where one process with one chunk is usual: the same bytes and report."""
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


def test_damaged_entries_are_made_anew(data: Path, tmp_path: Path) -> None:
    """A torn file of each of the three kinds is noticed, said once, and made anew with the same content."""
    said: list[str] = []
    cache = Cache([tmp_path / "cache"], said.append)

    def run() -> dict[str, tuple[Path, bytes]]:
        """The file that holds the most of each entry, and its bytes."""
        corpus = load(str(data), "en", "de", cache)
        prepare_corpus(corpus, learn_vocabulary(corpus, CONFIG, cache), CONFIG, cache)
        files = {"corpus": "facts", "vocabulary": "tokenizer.model", "pairs": "source.ids"}
        paths = {kind: next((tmp_path / "cache").glob(f"{kind}-*/{name}")) for kind, name in files.items()}
        return {kind: (path, path.read_bytes()) for kind, path in paths.items()}

    first = run()
    for path, content in first.values():
        os.truncate(path, len(content) // 2)
    assert run() == run() == first
    assert len(said) == len(first)
    for (path, _), line in zip(first.values(), said, strict=True):
        assert line.startswith(f"{path.parent} is damaged")


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


def test_the_description_is_whole(data: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """config.json gets what was read, kept and dropped, by filter with its share, and the notes."""
    corpus = load(str(data), "en", "de", cache)
    prepared = prepare_corpus(corpus, vocabulary, CONFIG, cache)
    told = json.loads(json.dumps(describe(corpus, prepared)))
    assert told["read"] == corpus.train.count
    assert told["read"] - told["kept"] == sum(reason["pairs"] for reason in told["dropped"].values())
    assert told["dropped"]["with an empty source"]["share"] == pytest.approx(2 / told["read"], abs=1e-6)
    assert "held out of train" in told["notes"][0]


PREPARE = """
import resource, sys
from pathlib import Path
from nmt.config import TrainingConfig
from nmt.data import preparation
from nmt.data.cache import Cache
from nmt.data.corpus import load
if len(sys.argv) > 3:
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


def numbered_lines(folder: Path, count: int) -> Path:
    """The public check's corpus: a number and four words a line."""
    folder.mkdir()
    for language, words in (("en", "some words follow here"), ("de", "hier folgen einige Worte")):
        with (folder / f"train.{language}").open("w") as file:
            file.writelines(f"{number} {words}\n" for number in range(1, count + 1))
    return folder


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Two runs that prepare the same corpus at the same time both end well, with one entry of each kind between them."""
    folder = numbered_lines(tmp_path / "data", 2_000)
    command = [sys.executable, "-c", PREPARE, str(folder), str(tmp_path / "cache")]
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
    folder = numbered_lines(tmp_path / "data", 2_000_000)
    command = [sys.executable, "-c", PREPARE, str(folder), str(tmp_path / "cache"), str(4 * 10**9)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "read 1,998,000 pairs, kept 1,998,000" in done.stdout


def test_an_interrupted_preparation_leaves_nothing_behind(tmp_path: Path) -> None:
    """Stopped or killed while it encodes, it says nothing more, leaves no process and no entry; the next run ends as ever."""
    folder = numbered_lines(tmp_path / "data", 52_000)
    command = [sys.executable, "-c", PREPARE, str(folder), str(tmp_path / "cache")]
    for number in (signal.SIGINT, signal.SIGKILL):
        stopped = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert stopped.stderr
        assert stopped.stderr.readline() == b"encoding 50,000 pairs on 2 cores\n"
        stopped.send_signal(number)
        _, said = stopped.communicate(timeout=60)
        assert said == b""  # the pipe is at its end, so no worker holds it either
        assert stopped.returncode == (130 if number == signal.SIGINT else -number)
        left = [path.name for path in (tmp_path / "cache").glob("pairs-*")]
        assert [name for name in left if not name.endswith(".part")] == []
        assert len(left) == (number == signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "kept 50,000" in done.stdout
    assert len(list((tmp_path / "cache").glob("pairs-*"))) == 1
