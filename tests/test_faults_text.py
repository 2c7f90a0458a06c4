"""Public faults of text that looks alike and is not: Unicode forms (N14) and text cut into subwords (N35)."""

import json
import unicodedata
from pathlib import Path

from tests.conftest import call, write_corpus
from tests.runs import Pairs, train

GERMAN = ["Ich möchte Öl kaufen.", "Grüße aus Zürich, bis bald.", "Der König fährt über die Brücke.", "Wir hören zu."]
DECOMPOSED = [unicodedata.normalize("NFD", line) for line in GERMAN]
WARNING = "text in decomposed Unicode (NFD), but the model was trained on"


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def test_text_in_another_form_than_the_training_text_is_warned_of(tmp_path: Path, demo_pairs: Pairs) -> None:
    """N14: in translation and in fine-tuning, once; not for a model of before, which does not know its form."""
    model, languages = tmp_path / "model", ["--source", "de", "--target", "en"]
    data = write_corpus(tmp_path / "corpus", train=demo_pairs[:120])
    assert train(model, data, *languages, steps=2, warmup=2, validate_every=2).exit_code == 0
    config = json.loads((model / "config.json").read_text())
    assert config["data"].pop("form") == "NFC"
    assert WARNING not in call("translate", "-m", model, stdin=text(GERMAN)).stderr
    assert call("translate", "-m", model, stdin=text(DECOMPOSED)).stderr.count(WARNING) == 1
    letters = write_corpus(tmp_path / "letters", train=[("See you soon.", line) for line in DECOMPOSED])
    tuned = call("train", "--from", model, "--data", letters, "-m", tmp_path / "tuned", "--steps", "1")
    assert tuned.stderr.count(f"--data letters: {WARNING}") == 1
    (model / "config.json").write_text(json.dumps(config))
    assert WARNING not in call("translate", "-m", model, stdin=text(DECOMPOSED)).stderr


def test_scores_of_equal_text_in_two_forms_are_explained(tmp_path: Path) -> None:
    """N14: the number is low, and a warning says why; in one form it is 100, without a warning."""
    (tmp_path / "hyp").write_bytes(text(DECOMPOSED))
    (tmp_path / "ref").write_bytes(text(GERMAN))
    done = call("score", tmp_path / "hyp", "-r", tmp_path / "ref")
    assert float(done.stdout.split("BLEU ")[1].split()[0]) < 60
    assert f"{tmp_path / 'hyp'} is in decomposed Unicode (NFD), {tmp_path / 'ref'} is in composed" in done.stderr
    same = call("score", tmp_path / "hyp", "-r", tmp_path / "hyp")
    assert ("BLEU 100.00 " in same.stdout, same.stderr) == (True, "")


def test_scoring_text_cut_into_subwords_is_warned_of(tmp_path: Path) -> None:
    """N35: by the name of the file, on stderr."""
    (tmp_path / "hyp").write_bytes(text([line.replace("ü", "ü@@ ") for line in GERMAN]))
    (tmp_path / "ref").write_bytes(text(GERMAN))
    done = call("score", tmp_path / "hyp", "-r", tmp_path / "ref")
    assert done.exit_code == 0
    assert done.stderr.startswith(f"warning: {tmp_path / 'hyp'}: seems cut into subwords")
    assert done.stderr.count("\n") == 1
