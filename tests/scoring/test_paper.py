"""`--metric paper`: comparable with the paper's 27.3, and never called BLEU."""

import math
import re
from collections import Counter
from pathlib import Path

import pytest

from nmt.scoring.metrics import Evaluation, bleu
from nmt.scoring.paper import paper_scores
from tests.conftest import call, refusal
from tests.scoring.test_commands import REFERENCE, scores, write

SIGNATURE = r"nrefs:1\|case:mixed\|eff:no\|tok:moses-de\+split\|sacremoses:[\d.]+\|smooth:none\|version:[\d.]+"

# Text, and the same tokenised and split by hand.
HYPOTHESIS = {
    "Ein alt-bekannter Hund, z.B. Rex, geht um 15.30 Uhr aus.": (
        "Ein alt ##AT##-##AT## bekannter Hund , z.B. Rex , geht um 15.30 Uhr aus ."
    ),
    'Sie rief: "Nie wieder!" und ging -- ohne Nord-Süd-Gefälle -- heim.': (
        'Sie rief : " Nie wieder ! " und ging -- ohne Nord ##AT##-##AT## Süd ##AT##-##AT## Gefälle -- heim .'
    ),
    "Das kostet 5.000,50 $ & mehr [siehe oben] | usw.": "Das kostet 5.000,50 $ & mehr [ siehe oben ] | usw.",
}
REFERENCES = {
    "Ein alt-bekannter Hund, z.B. Rex, ging um 15.30 Uhr aus.": (
        "Ein alt ##AT##-##AT## bekannter Hund , z.B. Rex , ging um 15.30 Uhr aus ."
    ),
    'Sie rief: "Nie wieder!" und ging -- ohne Süd-Nord-Gefälle -- heim.': (
        'Sie rief : " Nie wieder ! " und ging -- ohne Süd ##AT##-##AT## Nord ##AT##-##AT## Gefälle -- heim .'
    ),
    "Das kostet 5.000,50 $ & etwas mehr [siehe unten] | usw.": ("Das kostet 5.000,50 $ & etwas mehr [ siehe unten ] | usw."),
}


def ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def multi_bleu(hypotheses: list[str], *references: list[str]) -> float:
    """The formula of multi-bleu.perl: clipped n-grams of words between spaces, brevity penalty, no smoothing."""
    right, counted, length, expected = [0] * 4, [0] * 4, 0, 0
    for hypothesis, *several in zip(hypotheses, *references, strict=True):
        words, others = hypothesis.split(), [reference.split() for reference in several]
        length += len(words)
        expected += min((abs(len(words) - len(other)), len(other)) for other in others)[1]
        for n in range(4):
            allowed: Counter[tuple[str, ...]] = Counter()
            for other in others:
                allowed |= ngrams(other, n + 1)
            found = ngrams(words, n + 1)
            right[n] += (found & allowed).total()
            counted[n] += found.total()
    if not all(right):
        return 0.0
    precisions = math.prod(ours / all_of_them for ours, all_of_them in zip(right, counted, strict=True))
    return 100 * min(1.0, math.exp(1 - expected / length)) * precisions**0.25


def paper(hypotheses: list[str], *references: list[str], lowercase: bool = False) -> float:
    evaluation = Evaluation([("system", hypotheses)], [("reference", lines) for lines in references])
    [score] = paper_scores(evaluation, "de", lowercase, confidence=False)
    return score.value


def test_equals_multi_bleu_of_text_prepared_by_hand() -> None:
    """With case, and lower-cased as sacreBLEU does it."""
    expected = multi_bleu(list(HYPOTHESIS.values()), list(REFERENCES.values()))
    assert 40 < expected < 90
    assert paper(list(HYPOTHESIS), list(REFERENCES)) == pytest.approx(expected, abs=1e-9)
    lower = [[words.replace("##AT##", "at").lower() for words in text.values()] for text in (HYPOTHESIS, REFERENCES)]
    assert paper(list(HYPOTHESIS), list(REFERENCES), lowercase=True) == pytest.approx(multi_bleu(*lower), abs=1e-9)


def test_nothing_is_smoothed() -> None:
    """Without four right words in a row it is 0, where BLEU is smoothed."""
    assert paper(["eins zwei drei fünf"], ["eins zwei drei vier"]) == paper([""], ["eins"]) == 0
    assert bleu(["eins zwei drei fünf"], [["eins zwei drei vier"]]).value > 0


def test_name_and_signature_say_what_it_is(tmp_path: Path) -> None:
    """The language comes from the reference's file name, and no other metric includes it."""
    texts = {"hyp": "\n".join(HYPOTHESIS), "ref.de": "\n".join(REFERENCES), "ref.fr": "\n".join(REFERENCES)}
    hypothesis, german, french = write(tmp_path, **texts)
    line = call("score", hypothesis, "-r", german, "--metric", "paper").stdout
    value = paper(list(HYPOTHESIS), list(REFERENCES))
    assert re.fullmatch(rf".* against ref\.de: BLEU-tokenised-split {value:.2f} \(3 lines\) {SIGNATURE}\n", line)
    assert "|tok:moses-fr+split|" in scores(hypothesis, "-r", french, "--metric", "paper")[0]["signature"]
    assert "split" not in call("score", hypothesis, "-r", german, "--metric", "all").stdout


def test_bare_it_takes_the_language_of_the_model(overfitted: Path) -> None:
    line = call("score", "-m", overfitted, "--metric", "paper").stdout
    assert re.fullmatch(rf".* test, en-de: BLEU-tokenised-split \d+\.\d\d \(100 lines\) {SIGNATURE}\n", line)


@pytest.mark.parametrize("names", [["ref.txt"], ["ref.de", "ref.fr"]])
def test_references_without_a_language_are_refused(names: list[str], tmp_path: Path) -> None:
    references = write(tmp_path, **dict.fromkeys(names, REFERENCE))
    named = [word for path in references for word in ("-r", path)]
    message = refusal(call("score", references[0], *named, "--metric", "paper"))
    assert str(references[0]) in message
    assert "ref.de" in message
