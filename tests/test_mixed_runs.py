"""`nmt train` on several corpora and on text whose sources a machine wrote."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest

from nmt.data.batching import Plan
from nmt.ids import SYNTHETIC
from tests.conftest import call, write_corpus
from tests.runs import Pairs, last_error, of, outcome, signalled, train


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory, demo_pairs: Pairs) -> Path:
    """300 pairs of training text alone."""
    return write_corpus(tmp_path_factory.mktemp("more") / "letters", train=demo_pairs[400:700])


def test_a_mixture_is_reported_recorded_and_resumed(corpus: Path, more: Path, tmp_path: Path) -> None:
    """Each corpus has its own counts; a stop anywhere changes nothing; another weight is another run."""
    options = ("--data", f"{more}=0.25")
    done = train(tmp_path / "straight", corpus, *options)
    assert done.exit_code == 0, done.stderr
    assert re.search(r"^corpus: read 120 pairs", done.stderr, re.M)
    assert re.search(r"^letters: read 300 pairs", done.stderr, re.M)
    with signalled(13, signal.SIGINT):
        assert train(tmp_path / "model", corpus, *options).exit_code == 130
    assert train(tmp_path / "model", corpus, *options).exit_code == 0
    assert outcome(tmp_path / "model") == outcome(tmp_path / "straight")
    data = json.loads((tmp_path / "model" / "config.json").read_text())["data"]
    assert (data["name"], data["weight"], data["lines"]["train"]) == ("corpus", 1.0, 120)
    [other] = data["others"]
    assert (other["name"], other["weight"], other["lines"], other["kept"]) == ("letters", 0.25, {"train": 300}, 300)
    again = last_error(train(tmp_path / "model", corpus, "--data", f"{more}=0.5", "--steps", "30"))
    assert "the weight of letters was 0.25, now 0.5" in again
    assert "the text of letters was" in last_error(train(tmp_path / "model", corpus, "--steps", "30"))


def test_synthetic_sources_are_marked_and_have_their_share(
    corpus: Path, more: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every source of the synthetic text begins with the mark and no other; the share is that of the target tokens."""
    tokens = {True: 0, False: 0}
    take = Plan.take

    def counted(plan: Plan, *planned: object) -> object:
        pairs = take(plan, *planned)  # type: ignore[arg-type]
        for ids, target in zip(pairs.source.sentences(), pairs.targets.tolist(), strict=True):
            assert SYNTHETIC not in ids[1:]
            tokens[ids[0] == SYNTHETIC] += target
        return pairs

    monkeypatch.setattr(Plan, "take", counted)
    options = ("--synthetic", more)
    done = train(tmp_path / "model", corpus, *options, synthetic_share=0.3, tokens_per_update=600, bpe_dropout=0.1)
    assert done.exit_code == 0, done.stderr
    assert tokens[True] / (tokens[True] + tokens[False]) == pytest.approx(0.3, abs=0.05)
    [other] = json.loads((tmp_path / "model" / "config.json").read_text())["data"]["others"]
    assert other["synthetic"] is True
    assert of("average", tmp_path / "model")
    translated = call("translate", "-m", tmp_path / "model", "--beam", "1", stdin=b"Hello.\n")
    assert (translated.exit_code, translated.stdout_bytes.count(b"\n")) == (0, 1)


def test_what_cannot_be_mixed_is_refused(corpus: Path, more: Path, tmp_path: Path) -> None:
    """In one sentence, before any work."""
    model = tmp_path / "model"
    assert "a number above 0" in last_error(train(model, corpus, "--data", f"{more}=none"))
    assert "named twice" in last_error(train(model, corpus, "--data", corpus))
    assert "nowhere" in last_error(train(model, corpus, "--synthetic", tmp_path / "nowhere"))
    french = shutil.copytree(more, tmp_path / "french")
    (french / "train.de").rename(french / "train.fr")
    assert "train.de" in last_error(train(model, corpus, "--data", french))
    assert not model.exists()
