"""`nmt train --from`: what a run takes over from a trained model, what it reports on old and new text, what it refuses."""

import hashlib
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from nmt.lines import read_lines
from nmt.scoring import metrics
from tests.conftest import call, write_corpus
from tests.runs import Pairs, after_updates, files, last_error, of, outcome, signalled

SHORT = ("--steps", "24", "--validate-every", "8", "--average", "2", "--precision", "fp32")


def tune(origin: Path, data: Path, model: Path, *options: str | Path) -> Result:
    """Run `nmt train --from` inside this process."""
    return call("train", "--from", origin, "--data", data, "-m", model, *options)


def bleu(model: Path, heldout: Path, split: str) -> float:
    """The score of a model's translations of a split in this held-out folder."""
    done = call("translate", "-m", model, heldout / f"{split}.en.gz")
    assert done.exit_code == 0, done.stderr
    hypotheses = done.stdout_bytes.decode().split("\n")[:-1]
    return metrics.bleu(hypotheses, [list(read_lines(heldout / f"{split}.de.gz"))]).value


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory, demo_pairs: Pairs) -> Path:
    """60 pairs to go on with."""
    folder = tmp_path_factory.mktemp("fine-tuning") / "new"
    return write_corpus(folder, train=demo_pairs[200:260], valid=demo_pairs[260:264], test=demo_pairs[264:266])


@pytest.fixture(scope="module")
def uninterrupted(straight: Path, new: Path) -> tuple[Path, Result]:
    """A fine-tuning run from its beginning to its end, and what it said."""
    model = new.with_name("uninterrupted")
    done = tune(straight, new, model, *SHORT)
    assert (done.exit_code, done.stdout_bytes) == (0, b""), done.stderr
    return model, done


@pytest.fixture
def tuned(uninterrupted: tuple[Path, Result], tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(uninterrupted[0], tmp_path / "tuned"))


# What a run begins from, and what it comes to.


def test_a_model_learns_new_text_and_forgets_the_old(overfitted: Path, demo_pairs: Pairs, tmp_path: Path) -> None:
    """A model that knows 200 pairs by heart is taught 100 others. All BLEU is that of `nmt translate`."""
    pairs, model = demo_pairs[1_000:1_100], tmp_path / "model"
    data = write_corpus(tmp_path / "others", train=pairs, valid=pairs[:50], test=pairs[50:])
    (tmp_path / "faster.toml").write_text("[training]\nfactor = 0.5\nwarmup = 20\n")
    options = ("--config", tmp_path / "faster.toml", "--steps", "80", "--validate-every", "80")
    assert tune(overfitted, data, model, *options).exit_code == 0
    assert (model / "tokenizer.model").read_bytes() == (overfitted / "tokenizer.model").read_bytes()
    first, last = of("validation", model)
    assert first["step"] == 0
    assert first["before"]["bleu"] == bleu(overfitted, overfitted / "heldout", "valid") > 90
    assert first["bleu"] == bleu(overfitted, model / "heldout", "valid") < 20
    assert last["bleu"] > first["bleu"] + 50
    assert last["perplexity"] < first["perplexity"] / 5
    [end] = of("average", model)
    assert end["bleu"] == bleu(model, model / "heldout", "valid") > 80
    assert end["before"]["bleu"] == bleu(model, model / "heldout", "before")


def test_config_names_the_origin(uninterrupted: tuple[Path, Result], straight: Path) -> None:
    """By its corpus and the SHA-256 of its weights; architecture and validation text are kept, the recipe is another."""
    found, old = (json.loads((model / "config.json").read_text()) for model in (uninterrupted[0], straight))
    digest = hashlib.sha256((straight / "model.safetensors").read_bytes()).hexdigest()
    assert found["from"] == {"data": "corpus", "weights": digest}
    assert found["preset"] == "fine-tuning"
    assert found["data"]["lines"] == {"train": 60, "valid": 4, "test": 2, "before": 3}
    assert (found["model"], found["vocabulary"]) == (old["model"], old["vocabulary"])
    assert (found["training"]["warmup"], found["training"]["factor"]) == (200, 0.1)
    assert "from" not in old
    for language in ("en", "de"):
        kept = uninterrupted[0] / "heldout" / f"before.{language}.gz"
        assert kept.read_bytes() == (straight / "heldout" / f"valid.{language}.gz").read_bytes()


def test_both_texts_are_reported_throughout(uninterrupted: tuple[Path, Result]) -> None:
    """At the start, at each validation and for the weights to use: in the log, on stderr and in report.html."""
    model, done = uninterrupted
    events = of("validation", model) + of("average", model)
    assert [event["step"] for event in events] == [0, 8, 16, 24, 24]
    said = [line for line in done.stderr.splitlines() if "BLEU" in line]
    for event, line in zip(events, said, strict=True):
        assert event["before"].keys() == {"name", "bleu", "perplexity"}
        assert f"BLEU {event['bleu']:.2f} (4 lines" in line
        assert f"; old corpus perplexity {event['before']['perplexity']:.2f}, BLEU " in line
    assert "old corpus" in (model / "report.html").read_text(encoding="utf-8")


def test_checkpoints_and_fine_tuned_models_are_origins_too(straight: Path, tuned: Path, new: Path, tmp_path: Path) -> None:
    """A checkpoint gives its own weights, not the average; the old text is that of the origin, not of the origin's origin."""
    folder = straight / "checkpoints" / "step-000016"
    assert tune(folder, new, tmp_path / "one", *SHORT, "--steps", "1").exit_code == 0
    found = json.loads((tmp_path / "one" / "config.json").read_text())["from"]["weights"]
    assert found == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert tune(tuned, new, tmp_path / "other", *SHORT, "--steps", "1").exit_code == 0
    first = of("validation", tmp_path / "other")[0]["before"]
    assert (first["name"], first["bleu"]) == ("old new", of("average", tuned)[0]["bleu"])


# Going on.


class Death(BaseException):
    """A sudden end."""


def test_stopped_anywhere_it_ends_the_same(
    uninterrupted: tuple[Path, Result], straight: Path, new: Path, tmp_path: Path
) -> None:
    """After a kill before anything is saved, the origin's weights can be used; then it is stopped twice more."""
    model = tmp_path / "model"

    def die(update: int) -> None:
        if update == 3:
            raise Death

    with after_updates(die), pytest.raises(Death):
        tune(straight, new, model, *SHORT)
    assert not (model / "checkpoints").exists()
    text = model / "heldout" / "valid.en.gz"
    mine, origins = (call("translate", "-m", which, text, "--beam", "1") for which in (model, straight))
    assert (mine.exit_code, mine.stdout_bytes) == (0, origins.stdout_bytes)
    for update in (8, 13):
        with signalled(update, signal.SIGINT):
            assert tune(straight, new, model, *SHORT).exit_code == 130
    assert tune(straight, new, model, *SHORT).exit_code == 0
    assert outcome(model) == outcome(uninterrupted[0])


def test_another_origin_is_another_run(tuned: Path, straight: Path, finished: Path, new: Path) -> None:
    """Another model's weights, or none, exit with 2 and name --from; nothing is touched."""
    before = files(tuned), files(finished)
    assert "--from was the weights " in last_error(tune(straight / "checkpoints" / "step-000016", new, tuned, *SHORT))
    assert "now unset" in last_error(call("train", "--data", new, "-m", tuned))
    assert "--from was unset, now the weights " in last_error(tune(tuned, new, finished, *SHORT))
    assert (files(tuned), files(finished)) == before


# What is refused: no directory is made, and --restart discards no run.


@pytest.fixture
def refused(tuned: Path, tmp_path: Path) -> Callable[..., str]:
    """The error of a fine-tuning run that leaves everything as it was."""
    before = files(tuned)

    def run(origin: Path, data: Path, *options: str | Path) -> str:
        message = last_error(tune(origin, data, tmp_path / "begun", *options))
        assert not (tmp_path / "begun").exists()
        last_error(tune(origin, data, tuned, *options, "--restart"))
        assert files(tuned) == before
        return message

    return run


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--source", "de", "--target", "en"], "source was en, now de; target was de, now en; a trained model keeps these"),
        (["--preset", "tiny"], "--preset and --from exclude each other"),
        (["--vocab-size", "440", "--norm", "pre"], "vocab_size was 450, now 440; norm was post, now pre"),
    ],
)
def test_what_a_trained_model_cannot_become_is_refused(
    straight: Path, new: Path, options: list[str], named: str, refused: Callable[..., str]
) -> None:
    assert named in refused(straight, new, *options)


@pytest.mark.parametrize("name", ["tokenizer.model", "model.safetensors", "heldout/valid.de.gz"])
def test_a_damaged_origin_is_refused(finished: Path, new: Path, name: str, refused: Callable[..., str]) -> None:
    """In one sentence that names the file, of which only the first half is left."""
    file = finished / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert str(file) in refused(finished, new)


def test_a_model_is_never_fine_tuned_into_itself(tuned: Path, new: Path) -> None:
    """It would have to be discarded first."""
    before = files(tuned)
    for origin in (tuned, tuned / "checkpoints" / "step-000024"):
        assert "--model" in last_error(tune(origin, new, tuned, *SHORT, "--restart"))
    assert files(tuned) == before
