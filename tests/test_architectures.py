"""Every command with every architecture: it trains, resumes, translates and scores as the Transformer does, or is refused."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from nmt.config import PRESETS, ModelConfig
from nmt.description import VocabularyFile
from nmt.saved_model import SavedModel
from nmt.sizes import parameters
from tests.conftest import call, refusal
from tests.runs import last_error, of, outcome, signalled, train

Run = tuple[Path, dict[str, object]]

KINDS: dict[str, dict[str, object]] = {
    "like gpt2": {"norm": "pre", "positions": "learned", "activation": "gelu", "initialisation": "gpt2"},
    "prefix": {"architecture": "decoder-only"},
    "causal": {"architecture": "decoder-only", "mask": "causal", "source_loss": True},
    "rnn": {"architecture": "rnn"},
}


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of each kind, to be read only, and its settings."""
    model = tmp_path_factory.mktemp("kind") / "model"
    done = train(model, corpus, **KINDS[request.param])
    assert done.exit_code == 0, done.stderr
    return model, KINDS[request.param]


def test_a_resumed_run_is_the_same_to_the_bit(run: Run, corpus: Path, tmp_path: Path) -> None:
    model, settings = run
    with signalled(after=11, number=signal.SIGTERM):
        assert train(tmp_path / "model", corpus, **settings).exit_code == 143
    assert train(tmp_path / "model", corpus, **settings).exit_code == 0
    assert outcome(tmp_path / "model") == outcome(model)


def test_every_command_takes_it(run: Run, corpus: Path, tmp_path: Path) -> None:
    """Batches change nothing, scores are those of forced decoding and of the log, and sizes are the network's."""
    model, _ = run
    lines = (corpus / "test.en").read_text()
    together = call("translate", "-m", model, "--n-best", "2", "--format", "json", "--details", stdin=lines.encode())
    assert together.exit_code == 0, together.stderr
    alone = [call("translate", "-m", model, stdin=line.encode()).stdout for line in lines.splitlines(keepends=True)]
    best = [json.loads(line)["hypotheses"][0] for line in together.stdout.splitlines()]
    assert [one["text"] + "\n" for one in best] == alone
    for one in best:
        assert one["log_probability"] == pytest.approx(sum(one["log_probabilities"]), abs=1e-3)

    (tmp_path / "hypotheses").write_text("".join(alone))
    of_file = call("score", tmp_path / "hypotheses", "-r", corpus / "test.de", "--metric", "chrf", "--format", "json")
    of_model = call("score", "-m", model, "--metric", "chrf", "--format", "json")
    assert json.loads(of_file.stdout)[0]["score"] == json.loads(of_model.stdout)[0]["score"] > 0
    facts = json.loads(call("describe", "-m", model, "--format", "json").stdout)
    saved = SavedModel.open(model)
    assert facts["parameters"]["total"] == saved.network().count_parameters()
    assert parameters(saved.description.model, len(saved.vocabulary))["total"] == saved.network().count_parameters()
    assert call("attention", "I have seen it.", "-m", model, "-o", tmp_path / "page.html").exit_code == 0


def test_fine_tuning_starts_from_its_weights(run: Run, corpus: Path, tmp_path: Path) -> None:
    model, _ = run
    done = call("train", "--from", model, "--data", corpus, "-m", tmp_path / "tuned", "--steps", "2", "--precision", "fp32")
    assert done.exit_code == 0, done.stderr
    [before, *_], [*_, last] = of("validation", tmp_path / "tuned"), of("average", model)
    assert before["perplexity"] == pytest.approx(last["perplexity"], rel=1e-3)


def test_an_export_translates_the_same_or_is_refused(run: Run, corpus: Path, tmp_path: Path) -> None:
    model, settings = run
    copied = Path(shutil.copytree(model, tmp_path / "model"))
    done = call("export", "-m", copied)
    if settings.get("architecture") == "rnn" or settings == KINDS["prefix"]:
        assert "format cannot carry" in refusal(done)
        return
    assert done.exit_code == 0, done.stderr
    by_engine = [
        call("translate", "-m", copied, "--engine", engine, corpus / "test.en").stdout for engine in ("torch", "ctranslate2")
    ]
    assert by_engine[0] == by_engine[1] != ""


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"positions": "learned", "max_positions": 300}, "max_positions = 300"),
        ({"architecture": "decoder-only", "positions": "learned", "max_positions": 500}, "that takes 563"),
        ({"source_loss": True}, "source_loss"),
        ({"architecture": "decoder-only", "source_loss": True}, "source_loss"),
        ({"architecture": "rnn", "layers": 2}, "one layer"),
        ({"architecture": "lstm"}, "'transformer', 'decoder-only' or 'rnn'"),
    ],
)
def test_contradictions_are_refused_before_any_work(
    settings: dict[str, object], named: str, corpus: Path, tmp_path: Path
) -> None:
    done = train(tmp_path / "model", corpus, **settings)
    assert named in refusal(done)
    assert not (tmp_path / "model").exists()


def test_learned_positions_end_with_a_sentence_that_says_so(corpus: Path, tmp_path: Path) -> None:
    """A validation line or a forced pair that is longer is refused; a line to translate is cut into parts."""
    short: dict[str, object] = {"positions": "learned", "max_positions": 131, "max_pieces": 80, "steps": 8}
    data = Path(shutil.copytree(corpus, tmp_path / "corpus"))
    model = tmp_path / "model"
    assert train(model, data, **short).exit_code == 0
    long = "the old man has seen a house and " * 30
    translated = call("translate", "-m", model, "--format", "json", stdin=long.encode())
    assert "cut" in json.loads(translated.stdout)["hypotheses"][0]["flags"]
    (tmp_path / "long.en").write_text(long + "\n")
    forced = call("score", "-m", model, "--force-decode", tmp_path / "long.en", tmp_path / "long.en")
    assert "long.en, line 1: has more pieces than the model has positions (131)" in refusal(forced)
    for language in ("en", "de"):
        with (data / f"valid.{language}").open("a") as file:
            file.write(long + "\n")
    assert "line 4: " in last_error(train(tmp_path / "second", data, **short))


def test_architecture_is_part_of_a_runs_identity(finished: Path, corpus: Path, tmp_path: Path) -> None:
    assert "architecture was transformer, now rnn" in last_error(train(finished, corpus, architecture="rnn"))
    other = call("train", "--from", finished, "--data", corpus, "-m", tmp_path / "other", "--architecture", "decoder-only")
    assert "architecture was transformer, now decoder-only" in last_error(other)


def test_a_preset_in_another_architecture_has_about_as_many_parameters(corpus: Path, tmp_path: Path) -> None:
    """One stack takes the layers of both; the flag alone suffices."""
    words: list[str | Path] = ["--data", corpus, "--preset", "demo", "--architecture", "decoder-only", "--steps", "1"]
    done = call("train", *words, "-m", tmp_path / "m")
    assert done.exit_code == 0, done.stderr
    model = SavedModel.open(tmp_path / "m").description.model
    own = PRESETS["demo"].model
    assert (model.layers, model.d_model) == (2 * own.layers, own.d_model)
    assert parameters(model, 2_000)["total"] == pytest.approx(parameters(own, 2_000)["total"], rel=0.15)


def test_digests_of_the_first_version_still_hold(finished: Path) -> None:
    """Frozen: weights of before are recognised. A new setting counts only where it differs from its default."""
    described = SavedModel.open(finished).description
    first = described.model_copy(update={"model": ModelConfig(), "vocabulary": VocabularyFile(size=9, sha256="0" * 64)})
    assert first.kind == "fafb4f4004b0f86627c71fa05ceb5b6772baffaf00c1730cb5d158c4340e38d5"
    changed = [{"positions": "learned"}, {"activation": "gelu"}, {"initialisation": "gpt2"}, {"architecture": "decoder-only"}]
    assert len({first.kind, *(first.model_copy(update={"model": ModelConfig(**one)}).kind for one in changed)}) == 5
