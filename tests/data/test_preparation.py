"""A corpus as ids: what the vocabulary gives, dropped at exact limits; on disk as in memory, whatever stops a run."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nmt.config import TrainingConfig
from nmt.data import preparation
from nmt.data.cache import Cache
from nmt.data.cleaning import CleaningReport
from nmt.data.corpus import load
from nmt.data.preparation import PreparedPairs, encode, learn_vocabulary, prepare_corpus
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError
from tests.data.conftest import usable

CONFIG = TrainingConfig(vocab_size=500)


def prepared(pairs: list[Pair], vocabulary: Vocabulary, max_pieces: int = 256) -> tuple[PreparedPairs, dict[str, int]]:
    """The pairs, and how many were dropped for which reason."""
    ids, _, dropped = encode(pairs, vocabulary, max_pieces, 3.0)
    return ids, dict(dropped)


def of_pieces(count: int) -> str:
    """A text of this many pieces: the mark of a word, and signs of which no corpus here holds two."""
    return "~" * (count - 1)


def test_ids_are_the_vocabularys(vocabulary: Vocabulary, demo_pairs: list[Pair]) -> None:
    """Every sentence is encoded as `encode` does it, in order."""
    texts = [*demo_pairs[:100], ("a\tb\u2028c", "a b c")]
    pairs, dropped = prepared(texts, vocabulary)
    assert (len(pairs), dropped) == (101, {})
    for side, found in enumerate((pairs.source, pairs.target)):
        assert found.ids.tolist() == [id for pair in texts for id in vocabulary.encode(pair[side])]
    assert pairs.source.lengths.tolist() == [len(vocabulary.encode(source)) for source, _ in texts]
    assert pairs.target.starts.tolist() == np.cumsum([0, *pairs.target.lengths]).tolist()


@pytest.mark.parametrize(("more_source", "more_target"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_the_length_limit_is_exact(vocabulary: Vocabulary, more_source: int, more_target: int) -> None:
    """A side of max_pieces pieces is kept whole; with one more on either side the pair is dropped, never cut."""
    limit = 20
    texts = of_pieces(limit + more_source), of_pieces(limit + more_target)
    assert len(vocabulary.encode(texts[0])) == limit + more_source
    pairs, dropped = prepared([texts], vocabulary, limit)
    kept = not (more_source or more_target)
    assert pairs.source.lengths.tolist() == pairs.target.lengths.tolist() == [limit] * kept
    assert dropped == ({} if kept else {f"over {limit} pieces": 1})


@pytest.mark.parametrize(("short", "long", "kept"), [(10, 30, 1), (10, 31, 0), (1, 10, 1), (1, 11, 0)])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_ratio_limit_is_exact(vocabulary: Vocabulary, short: int, long: int, kept: int, swapped: bool) -> None:
    """Three times as long is kept, one piece more is dropped, either way round; up to 10 pieces any ratio is kept."""
    pair = of_pieces(short), of_pieces(long)
    pairs, dropped = prepared([pair[::-1] if swapped else pair], vocabulary)
    assert len(pairs) == kept
    assert dropped == ({} if kept else {"with a length ratio over 3": 1})


def test_dropping_is_of_the_pair(vocabulary: Vocabulary) -> None:
    """D3: after a dropped pair, sources still belong to their own targets. Nothing left is an empty set."""
    pairs, _ = prepared([("a", "b"), (of_pieces(300), "c"), ("d", "e"), ("f", of_pieces(50)), ("g", "h")], vocabulary)
    for side, texts in ((pairs.source, ["a", "d", "g"]), (pairs.target, ["b", "e", "h"])):
        assert [vocabulary.decode(ids.tolist()) for ids in np.split(side.ids, side.starts[1:-1])] == texts
    assert [len(prepared(pairs, vocabulary)[0]) for pairs in ([], [(of_pieces(300), "a")])] == [0, 0]


@pytest.mark.parametrize("settings", [{}, {"drop_duplicates": True, "drop_identical": True}, {"max_pieces": 20}])
@pytest.mark.parametrize(("cores", "chunk"), [(1, 10_000), (3, 7)])
def test_prepared_on_disk_is_prepared_in_memory(
    data: Path, cache: Cache, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, int | bool], cores: int, chunk: int,
) -> None:  # fmt: skip
    """The mapped ids and the report are those of encoding the text in memory, on any number of cores and in any chunks."""
    config = TrainingConfig.model_validate(settings)
    corpus = load(str(data), "en", "de", cache)
    report = CleaningReport()
    expected, kept, dropped = encode(
        list(usable(corpus.train, config, report)), vocabulary, config.max_pieces, config.max_ratio
    )
    report.dropped.update(dropped)
    monkeypatch.setattr(preparation, "cores", lambda: cores)
    monkeypatch.setattr(preparation, "CHUNK", chunk)
    folder, on_disk, description = prepare_corpus(corpus, vocabulary, config, cache)
    found = PreparedPairs.open(folder)
    assert on_disk == report
    assert report.kept == len(found) == len(kept) > 0
    for one, other in ((found.source, expected.source), (found.target, expected.target)):
        assert [one.ids.dtype, *one.ids, *one.starts, *one.lengths] == [
            other.ids.dtype,
            *other.ids,
            *other.starts,
            *other.lengths,
        ]
    with pytest.raises(ValueError, match="read-only"):
        found.source.ids[0] = 1
    # config.json gets what was read, kept and dropped, by filter with its share, and the notes.
    assert description["read"] == corpus.train.count
    assert description["read"] - description["kept"] == sum(each["pairs"] for each in description["dropped"].values())
    assert description["dropped"]["with an empty source"]["share"] == pytest.approx(2 / description["read"], abs=1e-6)
    assert "held out of train" in description["notes"][0]


def test_long_lines_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: no chunk holds many more characters than its limit, and no pair is lost."""
    monkeypatch.setattr(preparation, "CHUNK_CHARACTERS", 100)
    pairs = [("a" * length, "b" * length) for length in (1, 200, 10, 10, 10, 10, 60, 1, 1)]
    chunks = list(preparation.chunks_of(iter(pairs)))
    assert [len(chunk) for chunk in chunks] == [2, 5, 2]
    assert [pair for chunk in chunks for pair in chunk] == pairs


def test_other_settings_are_other_entries(data: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """Vocabulary and each filter are in the key; seed, steps and the like are not."""
    corpus = load(str(data), "en", "de", cache)
    filters = [{}, {"max_pieces": 20}, {"max_ratio": 2.0}, {"drop_duplicates": True}, {"drop_identical": True}]
    cases = [(vocabulary, settings) for settings in ({"seed": 2, "steps": 7, "vocab_size": 99}, *filters)]
    cases.append((learn_vocabulary(corpus, CONFIG, cache), {}))
    folders = [prepare_corpus(corpus, v, TrainingConfig.model_validate(s), cache)[0] for v, s in cases]
    assert folders[0] == folders[1]
    assert len(set(folders)) == 6


def test_a_file_that_changes_before_it_is_encoded_is_refused(data: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """Facts about one text are never applied to another."""
    corpus = load(str(data), "en", "de", cache)
    for path in data.iterdir():
        path.write_text(path.read_text()[:-5] + "word\n")
    with pytest.raises(UsageError, match="changed while it was read"):
        prepare_corpus(corpus, vocabulary, CONFIG, cache)
    assert [path for path in cache.places[0].iterdir() if path.name.startswith("pairs")] == []


PREPARE = """
import sys
from pathlib import Path
from nmt.config import TrainingConfig
from nmt.data import preparation
from nmt.data.cache import Cache
from nmt.data.corpus import load
preparation.cores = lambda: 2
cache = Cache([Path(sys.argv[2])])
config = TrainingConfig(vocab_size=1000)
try:
    corpus = load(sys.argv[1], "en", "de", cache)
    prepared = preparation.prepare_corpus(corpus, preparation.learn_vocabulary(corpus, config, cache), config, cache)
except KeyboardInterrupt:
    raise SystemExit(130)
assert "torch" not in sys.modules
print(prepared[1])
"""


def preparing(tmp_path: Path, count: int) -> list[str]:
    """The command that prepares D5's corpus: a number and four words a line."""
    folder = tmp_path / "data"
    folder.mkdir()
    for language, words in (("en", "some words follow here"), ("de", "hier folgen einige Worte")):
        with (folder / f"train.{language}").open("w") as file:
            file.writelines(f"{number} {words}\n" for number in range(1, count + 1))
    return [sys.executable, "-c", PREPARE, str(folder), str(tmp_path / "cache")]


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Two runs that prepare the same corpus at the same time both end well, with one entry of each kind between them."""
    command = preparing(tmp_path, 2_000)
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0] == said[1]
    kinds = sorted(path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir())
    assert kinds == ["corpus", "pairs", "vocabulary"]


@pytest.mark.slow
def test_two_million_pairs_under_four_gigabytes(tmp_path: Path) -> None:
    """D5: with its address space limited to 4 GB, as by `ulimit -v`, preparation of 2,000,000 pairs finishes."""
    command = preparing(tmp_path, 2_000_000)
    limit = (4 * 10**9, 4 * 10**9)
    done = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit)
    )
    assert done.returncode == 0, done.stderr
    assert "read 1,998,000 pairs, kept 1,998,000" in done.stdout


def test_an_interrupted_preparation_leaves_nothing_behind(tmp_path: Path) -> None:
    """Stopped or killed while it encodes, it says nothing and leaves no entry; the next run ends as ever."""
    command, place = preparing(tmp_path, 52_000), tmp_path / "cache"
    for number in (signal.SIGINT, signal.SIGKILL):
        stopped = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not [*place.glob("pairs-*.part/*/source.ids")]:
            assert stopped.poll() is None
            time.sleep(0.01)
        stopped.send_signal(number)
        assert stopped.communicate(timeout=60) == (b"", b"")
        assert stopped.returncode == (130 if number == signal.SIGINT else -number)
        left = [*place.glob("pairs-*")]
        assert [path.suffix for path in left] == [".part"] * (number == signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "kept 50,000" in done.stdout
