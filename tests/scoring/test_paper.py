"""`--metric paper`: the number that the paper's 27.3 is one of, and nothing that could be taken for BLEU."""

import math
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from nmt.scoring.metrics import Evaluation, bleu
from nmt.scoring.paper import paper_scores, split_compounds
from tests.conftest import call, refusal
from tests.scoring.test_commands import LINES, REFERENCE, damaged, scores, write

SIGNATURE = r"nrefs:1\|case:mixed\|eff:no\|tok:moses-de\+split\|sacremoses:[\d.]+\|smooth:none\|version:[\d.]+"

# Text, and the words that Moses' tokenizer and the split of compounds make of it, written out by hand.
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
    "Das kostet 5.000,50 $ & etwas mehr [siehe unten] | usw.": (
        "Das kostet 5.000,50 $ & etwas mehr [ siehe unten ] | usw."
    ),
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
    """The score of German text."""
    evaluation = Evaluation([("system", hypotheses)], [("reference", lines) for lines in references])
    [score] = paper_scores(evaluation, "de", lowercase, confidence=False)
    return score.value


def test_equals_multi_bleu_of_text_prepared_by_hand() -> None:
    """Raw text scores what multi-bleu's formula gives for its words, cased, and lower-cased as sacreBLEU lower-cases."""
    expected = multi_bleu(list(HYPOTHESIS.values()), list(REFERENCES.values()))
    assert 40 < expected < 90
    assert paper(list(HYPOTHESIS), list(REFERENCES)) == pytest.approx(expected, abs=1e-9)
    shouted = [line.upper() for line in HYPOTHESIS]
    assert paper(shouted, list(REFERENCES)) < 20
    lower = [[words.replace("##AT##", "at").lower() for words in text.values()] for text in (HYPOTHESIS, REFERENCES)]
    assert paper(list(HYPOTHESIS), list(REFERENCES), lowercase=True) == pytest.approx(multi_bleu(*lower), abs=1e-9)


def test_equals_multi_bleu_with_several_references() -> None:
    """Of two references the closer length counts, and the n-grams of both; the demo corpus needs no tokens but its marks."""
    texts = [damaged(7).splitlines(), damaged(5).splitlines(), LINES]
    words = [[re.sub(r"([,.?!])", r" \1", line) for line in lines] for lines in texts]
    expected = multi_bleu(*words)
    assert multi_bleu(words[0], words[2]) < expected < 95
    assert paper(*texts) == pytest.approx(expected, abs=1e-9)


def test_nothing_is_smoothed() -> None:
    """Without four right words in a row it is 0, where BLEU is smoothed; empty text is 0 too."""
    assert paper(["eins zwei drei fünf"], ["eins zwei drei vier"]) == 0
    assert bleu(["eins zwei drei fünf"], [["eins zwei drei vier"]]).value > 0
    assert paper(["", ""], ["eins zwei drei vier", ""]) == paper(["eins"], [""]) == 0


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("a well-known fact", "a well ##AT##-##AT## known fact"),
        ("x-y-z", "x ##AT##-##AT## y-z"),  # as of perl's s///g: y cannot be part of two matches
        ("one-two-three", "one ##AT##-##AT## two ##AT##-##AT## three"),
        ("ü-ä -- 3-4 - -x y-", "ü ##AT##-##AT## ä -- 3 ##AT##-##AT## 4 - -x y-"),
    ],
)
def test_compounds_are_split_as_by_perl(line: str, split: str) -> None:
    """The very strings that `perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'` prints."""
    assert split_compounds(line) == split


def test_it_is_not_called_bleu_and_tells_what_it_is(tmp_path: Path) -> None:
    """Name and signature are its own, the language is the reference file's; no other metric brings it along."""
    hypothesis, german, french = write(
        tmp_path, **{"hyp": "\n".join(HYPOTHESIS), "ref.de": "\n".join(REFERENCES), "ref.fr": "\n".join(REFERENCES)}
    )
    [line] = call("score", hypothesis, "-r", german, "--metric", "paper").stdout.splitlines()
    value = paper(list(HYPOTHESIS), list(REFERENCES))
    assert re.fullmatch(rf".* against ref\.de: BLEU-tokenised-split {value:.2f} \(3 lines\) {SIGNATURE}", line)
    [other] = scores(hypothesis, "-r", french, "--metric", "paper")
    assert "|tok:moses-fr+split|" in other["signature"]
    assert "split" not in call("score", hypothesis, "-r", german, "--metric", "all").stdout


def test_confidence_is_of_the_same_number(tmp_path: Path) -> None:
    """With --confidence the score stays, and the signature tells of the resampling as well."""
    first, second, reference = write(tmp_path, **{"a": damaged(7), "b": damaged(7, 3), "r.de": "\n".join(LINES)})
    plain, sure = (
        scores(first, second, "-r", reference, "--metric", "paper", *more) for more in ([], ["--confidence"])
    )
    assert [one["score"] for one in plain] == [one["score"] for one in sure]
    assert "|bs:1000|seed:12345|" in sure[0]["signature"]
    assert 0 < sure[1]["p_value"] < 1


def test_bare_it_takes_the_language_of_the_model(overfitted: Path) -> None:
    """The model's target language decides how its own test set is tokenised."""
    done = call("score", "-m", overfitted, "--metric", "paper")
    assert re.fullmatch(
        rf"tiny-corpus test, en-de: BLEU-tokenised-split \d+\.\d\d \(100 lines\) {SIGNATURE}\n", done.stdout
    )


@pytest.mark.parametrize("names", [["ref"], ["ref.txt"], ["ref.gz"], ["ref.de", "ref.fr"]])
def test_references_that_tell_no_language_are_refused(names: list[str], tmp_path: Path) -> None:
    """A guess would give another number for the same text: the message says how to name the file."""
    references = write(tmp_path, **dict.fromkeys(names, REFERENCE))
    named = [word for path in references for word in ("-r", path)]
    message = refusal(call("score", references[0], *named, "--metric", "paper"))
    assert str(references[0]) in message
    assert "ref.de" in message


def test_without_sacremoses_the_command_to_install_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, and nothing else needs the package."""
    [path] = write(tmp_path, **{"ref.de": REFERENCE})
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    assert "pip install -e '.[moses]'" in refusal(call("score", path, "-r", path, "--metric", "paper"))
    assert call("score", path, "-r", path, "--metric", "all").exit_code == 0
