"""`nmt train --from`: what a run takes over from a trained model, what it reports on old and new text, what it refuses."""

import hashlib
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import Result

from nmt.errors import UsageError
from nmt.lines import read_lines
from nmt.model_directory import ModelDirectory
from nmt.scoring import metrics
from nmt.settings import Request
from nmt.training.schedule import learning_rate
from tests.conftest import call, small_corpus, write_corpus
from tests.runs import (
    Death,
    Pairs,
    after_update,
    events,
    files,
    outcome,
    recipe,
    refusal_after_notes,
    signalled,
    train,
)

SHORT = ("--steps", "24", "--validate-every", "8", "--average", "2", "--precision", "fp32")


def tune(origin: Path, data: Path, model: Path, *options: str | Path) -> Result:
    """`nmt train --from` inside this process."""
    return call("train", "--from", origin, "--data", data, "-m", model, *options)


def bleu(model: Path, heldout: Path, split: str) -> float:
    """Of a model's translations of a split in this held-out folder."""
    done = call("translate", "-m", model, heldout / f"{split}.en.gz")
    assert done.exit_code == 0, done.stderr
    return metrics.bleu(
        done.stdout_bytes.decode().split("\n")[:-1], [list(read_lines(heldout / f"{split}.de.gz"))]
    ).value


def of(kind: str, model: Path) -> list[dict[str, Any]]:
    return [event for event in events(model) if event["event"] == kind]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fine-tuning")


@pytest.fixture(scope="module")
def new(folder: Path, demo_pairs: Pairs) -> Path:
    """60 pairs to go on with."""
    return write_corpus(folder / "new", train=demo_pairs[200:260], valid=demo_pairs[260:264], test=demo_pairs[264:266])


@pytest.fixture(scope="module")
def origin(folder: Path, demo_pairs: Pairs) -> Path:
    """A model that has seen little, quick to begin from."""
    done = train(folder / "origin", small_corpus(folder / "old", demo_pairs))
    assert done.exit_code == 0, done.stderr
    return folder / "origin"


@pytest.fixture(scope="module")
def uninterrupted(folder: Path, origin: Path, new: Path) -> tuple[Path, Result]:
    """A fine-tuning run from its beginning to its end, and what it said."""
    done = tune(origin, new, folder / "uninterrupted", *SHORT)
    assert done.exit_code == 0, done.stderr
    assert done.stdout_bytes == b""
    return folder / "uninterrupted", done


@pytest.fixture
def tuned(uninterrupted: tuple[Path, Result], tmp_path: Path) -> Path:
    """A copy of it to go on with."""
    return Path(shutil.copytree(uninterrupted[0], tmp_path / "tuned"))


@pytest.fixture(scope="module")
def learned(folder: Path, overfitted: Path, demo_pairs: Pairs) -> Path:
    """A model that knew its first 200 pairs by heart, taught 100 others, which are its validation text too."""
    pairs = demo_pairs[1_000:1_100]
    data = write_corpus(folder / "others", train=pairs, valid=pairs[:50], test=pairs[50:])
    (folder / "faster.toml").write_text("[training]\nfactor = 0.5\nwarmup = 20\n")
    faster, options = folder / "faster.toml", ("--steps", "80", "--validate-every", "40", "--average", "1")
    done = tune(overfitted, data, folder / "learned", "--config", faster, *options)
    assert done.exit_code == 0, done.stderr
    return folder / "learned"


# What a run begins from, and what it comes to.


def test_a_run_begins_as_good_as_its_origin(learned: Path, overfitted: Path) -> None:
    """Before the first update, BLEU on either text is the origin's own, and the vocabulary is the origin's file."""
    assert (learned / "tokenizer.model").read_bytes() == (overfitted / "tokenizer.model").read_bytes()
    first = of("validation", learned)[0]
    assert first["step"] == 0
    assert first["before"]["bleu"] == bleu(overfitted, overfitted / "heldout", "valid") > 90
    assert first["bleu"] == bleu(overfitted, learned / "heldout", "valid") < 20


def test_a_run_learns_the_new_text(learned: Path) -> None:
    """BLEU on the new text rises from next to nothing to nearly all, the last reported is that of the weights to use."""
    first, *_, last = of("validation", learned)
    [end] = of("average", learned)
    assert last["bleu"] > first["bleu"] + 50
    assert last["perplexity"] < first["perplexity"] / 5
    assert end["bleu"] == bleu(learned, learned / "heldout", "valid") > 80
    assert end["before"]["bleu"] == bleu(learned, learned / "heldout", "before")


def test_the_old_text_is_kept_as_it_was(uninterrupted: tuple[Path, Result], origin: Path) -> None:
    """The origin's validation text goes with the model, which needs its origin no longer."""
    for language in ("en", "de"):
        kept = uninterrupted[0] / "heldout" / f"before.{language}.gz"
        assert kept.read_bytes() == (origin / "heldout" / f"valid.{language}.gz").read_bytes()


def test_config_names_the_origin(uninterrupted: tuple[Path, Result], origin: Path) -> None:
    """By its corpus and the SHA-256 of its weights; the architecture is the origin's, the recipe fine-tuning's."""
    found, old = (json.loads((model / "config.json").read_text()) for model in (uninterrupted[0], origin))
    digest = hashlib.sha256((origin / "model.safetensors").read_bytes()).hexdigest()
    assert found["from"] == {"data": "old", "weights": digest}
    assert found["preset"] == "fine-tuning"
    assert found["data"]["lines"] == {"train": 60, "valid": 4, "test": 2, "before": 3}
    assert (found["model"], found["vocabulary"]) == (old["model"], old["vocabulary"])
    assert (found["training"]["warmup"], found["training"]["factor"]) == (200, 0.1)
    assert "from" not in old


def test_the_optimiser_is_fresh_and_the_rate_warms_up(uninterrupted: tuple[Path, Result]) -> None:
    """Adam has made as many steps as the run, not the origin's besides; the rate is the schedule's from update 1 on."""
    moments = torch.load(uninterrupted[0] / "checkpoints" / "step-000024" / "optimizer.pt", weights_only=True)
    assert {float(state["step"]) for state in moments["state"].values()} == {24.0}
    logged = [(event["step"], event["lr"]) for event in of("training", uninterrupted[0])]
    assert logged == [(step, pytest.approx(0.1 * 16**-0.5 * step * 200**-1.5)) for step in (20, 24)]


def test_the_rate_of_the_paper_s_width_peaks_as_documented() -> None:
    rates = {update: learning_rate(update, 512, 200, 0.1) for update in range(1, 400)}
    assert max(rates, key=rates.__getitem__) == 200
    assert rates[200] == pytest.approx(3e-4, rel=0.05)


def test_both_texts_are_reported_throughout(uninterrupted: tuple[Path, Result]) -> None:
    """At the start, at each validation and for the weights to use: in the log, on stderr and in report.html."""
    model, done = uninterrupted
    reported = of("validation", model) + of("average", model)
    assert [(event["event"], event["step"]) for event in reported] == [
        *(("validation", step) for step in (0, 8, 16, 24)), ("average", 24),
    ]  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "BLEU" in line]
    for event, line in zip(reported, said, strict=True):
        assert event["before"].keys() == {"name", "bleu", "perplexity"}
        assert event["before"]["name"] == "old old"
        assert f"BLEU {event['bleu']:.2f} (4 lines" in line
        assert f"BLEU {event['before']['bleu']:.2f} (3 lines" in line
    assert said[0].startswith("before the first update: ")
    assert said[-1].startswith("the weights to use: ")
    html = (model / "report.html").read_text(encoding="utf-8")
    assert "BLEU, old old" in html
    assert "at update 0" in html or "update 0" in html


def test_a_checkpoint_is_an_origin_too(origin: Path, new: Path, tmp_path: Path) -> None:
    """With its own weights, which are not the average."""
    folder = origin / "checkpoints" / "step-000016"
    assert tune(folder, new, tmp_path / "model", *SHORT, "--steps", "1").exit_code == 0
    found = json.loads((tmp_path / "model" / "config.json").read_text())["from"]["weights"]
    assert found == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_fine_tuned_model_is_an_origin_too(tuned: Path, new: Path, tmp_path: Path) -> None:
    """The old text is then that of the model begun from, not of that one's origin."""
    assert tune(tuned, new, tmp_path / "model", *SHORT, "--steps", "1").exit_code == 0
    [first, *_] = of("validation", tmp_path / "model")
    assert first["before"]["name"] == "old new"
    assert first["before"]["bleu"] == of("average", tuned)[0]["bleu"]


def test_an_origin_without_validation_text_will_do(demo_pairs: Pairs, new: Path, tmp_path: Path) -> None:
    """There is nothing old to report on, and the new text is reported on all the same, from the start to the end."""
    data = write_corpus(tmp_path / "old", train=demo_pairs[:120])
    assert train(tmp_path / "origin", data, steps=2).exit_code == 0
    done = tune(tmp_path / "origin", new, tmp_path / "model", *SHORT, "--steps", "8")
    assert done.exit_code == 0, done.stderr
    reported = of("validation", tmp_path / "model") + of("average", tmp_path / "model")
    assert [event["step"] for event in reported if "bleu" in event] == [0, 8, 8]
    assert not [event for event in reported if "before" in event]


def test_new_text_without_validation_text_will_do(origin: Path, demo_pairs: Pairs, tmp_path: Path) -> None:
    """What is known of the old text is reported."""
    data = write_corpus(tmp_path / "new", train=demo_pairs[200:260])
    done = tune(origin, data, tmp_path / "model", *SHORT, "--steps", "8")
    assert done.exit_code == 0, done.stderr
    reported = of("validation", tmp_path / "model") + of("average", tmp_path / "model")
    assert [(event["step"], "bleu" in event, "before" in event) for event in reported] == [
        (0, False, True), (8, False, True), (8, False, True),
    ]  # fmt: skip


# Going on.


def test_interrupted_anywhere_it_ends_the_same(
    uninterrupted: tuple[Path, Result], origin: Path, new: Path, tmp_path: Path
) -> None:
    """Before, at and after a validation: the weights and the log of a run that was not."""
    for update in (3, 8, 13):
        with after_update(update, signalled(signal.SIGINT)):
            assert tune(origin, new, tmp_path / "model", *SHORT).exit_code == 130
    assert tune(origin, new, tmp_path / "model", *SHORT).exit_code == 0
    assert outcome(tmp_path / "model") == outcome(uninterrupted[0])


def die() -> None:
    raise Death


def test_a_sudden_end_before_anything_is_saved_costs_nothing(
    uninterrupted: tuple[Path, Result], origin: Path, new: Path, tmp_path: Path
) -> None:
    """The origin's weights can be used at once; the same command ends in the weights and the log of a run that lived."""
    model = tmp_path / "model"
    with after_update(3, die), pytest.raises(Death):
        tune(origin, new, model, *SHORT)
    assert not (model / "checkpoints").exists()
    text = model / "heldout" / "valid.en.gz"
    mine, origins = (call("translate", "-m", which, text, "--beam", "1") for which in (model, origin))
    assert (mine.exit_code, mine.stdout_bytes) == (0, origins.stdout_bytes)
    assert tune(origin, new, model, *SHORT).exit_code == 0
    assert outcome(model) == outcome(uninterrupted[0])


def test_a_finished_run_goes_on_with_more_steps(tuned: Path, origin: Path, new: Path, tmp_path: Path) -> None:
    """And ends as if it had been asked for them at once."""
    assert tune(origin, new, tuned, *SHORT, "--steps", "32").exit_code == 0
    assert tune(origin, new, tmp_path / "at-once", *SHORT, "--steps", "32").exit_code == 0
    assert outcome(tuned)[:2] == outcome(tmp_path / "at-once")[:2]


def test_another_origin_is_another_run(tuned: Path, origin: Path, new: Path) -> None:
    """Another model's weights, or none: exit 2, --from is named, and nothing is touched."""
    before = files(tuned)
    other = refusal_after_notes(tune(origin / "checkpoints" / "step-000016", new, tuned, *SHORT, "--steps", "32"))
    assert "--from was the weights " in other
    assert other.count(" was ") == 1
    none = refusal_after_notes(call("train", "--data", new, "-m", tuned))
    assert "--from was the weights " in none
    assert "now unset" in none
    assert files(tuned) == before


def test_a_run_from_the_beginning_does_not_become_one_of_fine_tuning(origin: Path, tuned: Path, new: Path) -> None:
    before = files(origin)
    assert "--from was unset, now the weights " in refusal_after_notes(tune(tuned, new, origin, *SHORT))
    assert files(origin) == before


def test_the_languages_are_those_of_the_origin(origin: Path, new: Path, tmp_path: Path) -> None:
    """Unless others are asked for; without an origin they are English and German."""
    asked = Request(str(new), (None, None), None, None, {}, origin, restart=False, command="nmt")
    assert asked.languages() == ("en", "de")
    german = Path(shutil.copytree(origin, tmp_path / "german"))
    directory = ModelDirectory(german)
    directory.write_config(directory.read_config() | {"source": "de", "target": "fr"})
    assert replace(asked, origin=german).languages() == ("de", "fr")
    assert replace(asked, origin=german, asked_languages=(None, "nl")).languages() == ("de", "nl")
    assert replace(asked, origin=None, asked_languages=("fr", None)).languages() == ("fr", "de")
    with pytest.raises(UsageError, match=r"--target \.\./de: no language's code"):
        replace(asked, asked_languages=("en", "../de")).languages()


# What is refused.


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--source", "de", "--target", "en"], "translates from en to de, not from de to en"),
        (["--preset", "tiny"], "--preset and --from exclude each other"),
        (["--norm", "pre"], "norm is post"),
        (["--vocab-size", "440", "--norm", "pre"], "norm is post, vocab_size is 450"),
    ],
)
def test_what_a_trained_model_cannot_become_is_refused(
    origin: Path, new: Path, tmp_path: Path, options: list[str], named: str
) -> None:
    assert named in refusal_after_notes(tune(origin, new, tmp_path / "model", *options))
    assert not (tmp_path / "model").exists()


def test_another_architecture_in_a_file_is_refused(origin: Path, new: Path, tmp_path: Path) -> None:
    """By each of its settings; dropout is free."""
    done = tune(origin, new, tmp_path / "model", "--config", recipe(tmp_path, layers=2, d_ff=32), "--dropout", "0.3")
    assert refusal_after_notes(done).endswith("in this model layers is 1, d_ff is 16, and stays so")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def swap(path: Path) -> None:
    """The weights of a model of another shape."""
    save_file({name: tensor[:1].contiguous() for name, tensor in load_file(path).items()}, path)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("", shutil.rmtree),
        ("config.json", cut),
        ("tokenizer.model", Path.unlink),
        ("tokenizer.model", cut),
        ("model.safetensors", Path.unlink),
        ("model.safetensors", cut),
        ("model.safetensors", swap),
        ("heldout/valid.en.gz", Path.unlink),
        ("heldout/valid.de.gz", cut),
    ],
)
def test_a_damaged_origin_is_refused(
    origin: Path, tuned: Path, new: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    """In one sentence that names the file; no directory is made, and --restart discards no run for it."""
    broken = Path(shutil.copytree(origin, tmp_path / "broken"))
    damage(broken / name)
    assert str(broken / name) in refusal_after_notes(tune(broken, new, tmp_path / "model", *SHORT))
    assert not (tmp_path / "model").exists()
    before = files(tuned)
    refusal_after_notes(tune(broken, new, tuned, *SHORT, "--restart"))
    assert files(tuned) == before


def test_text_of_which_nothing_is_left_is_refused(origin: Path, tuned: Path, tmp_path: Path) -> None:
    """No directory is made, and --restart discards no run for it."""
    data = write_corpus(tmp_path / "blank", train=[("", "")] * 3)
    assert "no training pair is left" in refusal_after_notes(tune(origin, data, tmp_path / "model"))
    assert not (tmp_path / "model").exists()
    before = files(tuned)
    assert "no training pair is left" in refusal_after_notes(tune(origin, data, tuned, "--restart"))
    assert files(tuned) == before


@pytest.mark.parametrize("options", [[], ["--restart"]])
@pytest.mark.parametrize("place", ["tuned", "link", "tuned/checkpoints/step-000024"])
def test_a_model_is_never_fine_tuned_into_itself(tuned: Path, new: Path, place: str, options: list[str]) -> None:
    """It would have to be discarded first."""
    (tuned.parent / "link").symlink_to(tuned)
    before = files(tuned)
    message = refusal_after_notes(tune(tuned.parent / place, new, tuned, *SHORT, *options))
    assert "--model" in message
    assert files(tuned) == before
