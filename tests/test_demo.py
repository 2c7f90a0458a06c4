"""The README's first command: the demonstration from nothing to its score, and what its attention has learned."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from data.demo import generate
from nmt.data.corpus import demo_folder
from nmt.lines import read_lines
from nmt.saved_model import SavedModel
from nmt.translation.alignment import aligning_layer, words
from nmt.translation.attentions import attention_maps

ROOT = Path(__file__).parents[1]
HAVE_AND_BE = {"habe", "hast", "hat", "haben", "bin", "bist", "ist", "sind"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The model that `make demo` trains, and what the command printed."""
    model = tmp_path_factory.mktemp("demo") / "demo-model"
    tools = [f"BIN={Path(sys.executable).parent}", f"DEMO={model}", "--assume-old=.venv/installed"]
    model.mkdir()
    done = subprocess.run(["make", "demo", *tools], cwd=ROOT, capture_output=True, text=True, timeout=1_200, check=False)
    assert done.returncode == 0, done.stderr
    return model, done


@pytest.mark.slow
def test_demo_learns_its_language(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """`make demo` trains, translates four unseen sentences and one through a pipe, and scores above 95 BLEU."""
    _, done = demo
    [score] = re.findall(r"demo test, en-de: BLEU ([\d.]+) \(500 lines\) nrefs:1\|case:mixed", done.stdout)
    assert float(score) > 95
    assert "Ich habe den alten Mann gesehen." in done.stdout.splitlines()


class Perfect(NamedTuple):
    """A sentence in the perfect tense whose German ends with the participle."""

    english: str
    german: str
    verb: int  # place of the English verb among the words, which stand between spaces
    participle: int


def perfect_tense(split: str) -> Iterator[Perfect]:
    """Sentences of the demo corpus: one clause, a German form of have or be, and a single English form of the verb."""
    verbs: dict[str, set[str]] = {}
    for head, text in generate.entries("verbs"):
        verb = generate.parse_verb(head, text)
        verbs.setdefault(verb.participle, set()).update(form.split()[0] for form in verb.en)
    folder = demo_folder()
    for english, german in zip(read_lines(folder / f"{split}.en"), read_lines(folder / f"{split}.de"), strict=True):
        last = german.rstrip(".?").split()[-1]
        if last in verbs and HAVE_AND_BE & set(german.lower().split()) and "," not in german:
            places = [place for place, word in enumerate(english.rstrip(".?").split()) if word in verbs[last]]
            if len(places) == 1:
                yield Perfect(english, german, places[0], len(german.split()) - 1)


@pytest.mark.slow
def test_participles_look_at_their_verbs(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """In 80 of 100 held-out sentences, by the head or mean of heads that does so most often in other sentences.

    The reference is forced; the weights of a word's pieces are added up, and the source's EOS counts as a word.
    """
    model, _ = demo
    saved = SavedModel.open(model)
    network, vocabulary = saved.network(), saved.vocabulary

    def found(case: Perfect) -> np.ndarray:
        """Whether the participle looks most at the verb, for each layer's heads and their mean: [layers, H + 1]."""
        source, target = vocabulary.encode(case.english), vocabulary.encode(case.german)
        _, _, cross = attention_maps(network, source, target)
        heads = np.concatenate([cross, cross.mean(1, keepdims=True)], 1)
        participle = heads[:, :, words(target, vocabulary)[case.participle]].sum(2)
        places = [*words(source, vocabulary), [len(source)]]
        most = np.stack([participle[..., pieces].sum(-1) for pieces in places]).argmax(0)
        return np.equal(most, case.verb)

    chosen = np.mean([found(case) for case in perfect_tense("valid")], 0)
    best = np.unravel_index(chosen.argmax(), chosen.shape)
    held_out = list(perfect_tense("test"))[:100]
    assert len(held_out) == 100
    right = np.sum([found(case) for case in held_out], 0)
    assert right[best] >= 80
    assert right[aligning_layer(2), -1] >= 80  # what the page shows first
