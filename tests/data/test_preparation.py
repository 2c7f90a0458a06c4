"""A corpus as ids on disk: as in memory, on one core as on three, for exactly these settings, whatever stops a run."""

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmt.config import TrainingConfig
from nmt.data import preparation
from nmt.data import prepared as module
from nmt.data.cache import Cache
from nmt.data.cleaning import CleaningReport
from nmt.data.corpus import load
from nmt.data.preparation import data_description, learn_vocabulary, prepare_corpus
from nmt.data.prepared import Encoder, prepare
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError
from tests.data.conftest import same_pairs, usable

CONFIG = TrainingConfig(vocab_size=500)


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
    encoder = Encoder(vocabulary, config.max_pieces, config.max_ratio)
    expected = prepare(usable(corpus.train, config, report), encoder, report)
    monkeypatch.setattr(preparation, "cores", lambda: cores)
    monkeypatch.setattr(module, "CHUNK", chunk)
    prepared = prepare_corpus(corpus, vocabulary, config, cache)
    assert same_pairs(prepared.pairs, expected)
    assert prepared.report == report
    assert prepared.report.kept == len(prepared.pairs) > 0
    with pytest.raises(ValueError, match="read-only"):
        prepared.pairs.source.ids[0] = 1
    # config.json gets what was read, kept and dropped, by filter with its share, and the notes.
    description = json.loads(json.dumps(data_description(corpus, prepared)))
    assert description["read"] == corpus.train.count
    assert description["read"] - description["kept"] == sum(each["pairs"] for each in description["dropped"].values())
    assert description["dropped"]["with an empty source"]["share"] == pytest.approx(2 / description["read"], abs=1e-6)
    assert "held out of train" in description["notes"][0]


def test_long_lines_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: no chunk holds many more characters than its limit, and no pair is lost."""
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", 100)
    pairs = [("a" * length, "b" * length) for length in (1, 200, 10, 10, 10, 10, 60, 1, 1)]
    chunks = list(module.chunks_of(iter(pairs)))
    assert [len(chunk) for chunk in chunks] == [2, 5, 2]
    assert [pair for chunk in chunks for pair in chunk] == pairs


def test_other_settings_are_other_entries(data: Path, cache: Cache, vocabulary: Vocabulary) -> None:
    """Vocabulary and each filter are in the key; seed, steps and the like are not."""
    corpus = load(str(data), "en", "de", cache)
    filters = [{}, {"max_pieces": 20}, {"max_ratio": 2.0}, {"drop_duplicates": True}, {"drop_identical": True}]
    cases = [(vocabulary, settings) for settings in ({"seed": 2, "steps": 7, "vocab_size": 99}, *filters)]
    cases.append((learn_vocabulary(corpus, CONFIG, cache), {}))
    folders = [prepare_corpus(corpus, v, TrainingConfig.model_validate(s), cache).folder for v, s in cases]
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
print(prepared.report)
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
