"""Faults of text and of corpora that were reported in public, each met here as its user met it: by the command."""

import gzip
import json
import shlex
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Literal

import pytest

from tests.conftest import call, write_corpus
from tests.runs import Pairs, train

GERMAN = ["Ich möchte Öl kaufen.", "Grüße aus Zürich, bis bald.", "Der König fährt über die Brücke.", "Wir hören zu."]


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture(scope="module")
def of_german(tmp_path_factory: pytest.TempPathFactory, demo_pairs: Pairs) -> tuple[Path, str]:
    """A model from German in NFC to English that is tokenised and escaped, and what its training told."""
    root = tmp_path_factory.mktemp("german")
    pairs = [(english.replace(".", " ."), german) for english, german in demo_pairs[:120]]
    corpus = write_corpus(root / "corpus", train=pairs, valid=pairs[:5], test=[("He said &quot;no&quot; .", "„Nein.“")])
    done = train(root / "model", corpus, "--source", "de", "--target", "en", steps=2, warmup=2, validate_every=2)
    assert done.exit_code == 0
    return root / "model", done.stderr


def test_text_from_windows_and_packed_text_come_through_a_pipe(overfitted: Path, sources: list[str]) -> None:
    """N3: UTF-16 without a byte order mark, packed by gzip, is translated and scored as the plain text is."""
    plain = call("translate", "-m", overfitted, stdin=text(sources[:3])).stdout_bytes
    nmt = shlex.join([sys.executable, "-m", "nmt"])
    source = gzip.compress("".join(f"{line}\r\n" for line in sources[:3]).encode("utf-16-le"))
    command = f"{nmt} translate -m {shlex.quote(str(overfitted))}"
    done = subprocess.run(["bash", "-c", command], input=source, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (plain, b"")


def test_training_on_tokenised_text_is_warned_of(of_german: tuple[Path, str]) -> None:
    """N35: once, in one line, of the side that is; not of single lines that hold escapes."""
    [warning] = [line for line in of_german[1].splitlines() if "seems" in line]
    assert warning.startswith("warning: --data corpus: train.en: seems tokenised (spaces before full stops")


def test_text_in_another_form_than_the_training_text_is_warned_of(of_german: tuple[Path, str], tmp_path: Path) -> None:
    """N14: the model knows the form; a model of before does not, and nothing is said."""
    model = Path(shutil.copytree(of_german[0], tmp_path / "model"))
    config = model / "config.json"
    assert json.loads(config.read_text())["data"]["form"] == "NFC"
    decomposed = unicodedata.normalize("NFD", "Grüße aus Zürich.\n").encode()
    assert call("translate", "-m", model, stdin=text(GERMAN[1:2])).stderr.count("decomposed") == 0
    assert call("translate", "-m", model, stdin=decomposed).stderr.count("decomposed Unicode (NFD)") == 1
    before = json.loads(config.read_text())
    del before["data"]["form"]
    config.write_text(json.dumps(before))
    assert call("translate", "-m", model, stdin=decomposed).stderr.count("decomposed") == 0


def test_fine_tuning_on_text_in_another_form_is_warned_of(of_german: tuple[Path, str], tmp_path: Path) -> None:
    """N14: its words are other ones to the model that is begun from."""
    pairs = [("See you soon.", unicodedata.normalize("NFD", line)) for line in GERMAN]
    corpus = write_corpus(tmp_path / "letters", train=pairs)
    done = call("train", "--from", of_german[0], "--data", corpus, "-m", tmp_path / "model", "--steps", "1")
    assert done.exit_code == 0
    assert done.stderr.count("warning: --data letters: text in decomposed Unicode (NFD), where the model was ") == 1


def test_scores_of_equal_text_in_two_forms_are_explained(tmp_path: Path) -> None:
    """N14: the number is low, and a warning tells why; in one form it is 100, without a word."""
    forms: dict[str, Literal["NFD", "NFC"]] = {"hyp": "NFD", "ref": "NFC"}
    for name, form in forms.items():
        (tmp_path / name).write_bytes(text([unicodedata.normalize(form, line) for line in GERMAN]))
    done = call("score", tmp_path / "hyp", "-r", tmp_path / "ref")
    assert float(done.stdout.split("BLEU ")[1].split()[0]) < 60
    assert f"{tmp_path / 'hyp'} is in decomposed Unicode (NFD), {tmp_path / 'ref'} is in composed" in done.stderr
    same = call("score", tmp_path / "hyp", "-r", tmp_path / "hyp")
    assert ("BLEU 100.00 " in same.stdout, same.stderr) == (True, "")


@pytest.mark.parametrize("cut", ["hyp", "ref", "both"])
def test_scoring_text_cut_into_subwords_is_warned_of(tmp_path: Path, cut: str) -> None:
    """N35: on either side, by name, on stderr; the score is what it is."""
    for name in ("hyp", "ref"):
        lines = [line.replace("ü", "ü@@ ") for line in GERMAN] if cut in (name, "both") else GERMAN
        (tmp_path / name).write_bytes(text(lines))
    done = call("score", tmp_path / "hyp", "-r", tmp_path / "ref")
    names = ", ".join(str(tmp_path / name) for name in ("hyp", "ref") if cut in (name, "both"))
    assert done.exit_code == 0
    assert done.stderr.startswith(f"warning: {names}: seems cut into subwords (@@); ")
    assert done.stderr.count("\n") == 1
