"""The numbers: published ones reproduced, frozen ones kept, and what no number may be made of."""

import csv
import math
import os
from pathlib import Path

import pytest

from nmt.errors import UsageError
from nmt.lines import read_lines
from nmt.scoring.metrics import METRICS, Evaluation, Score, bleu, corpus_scores, create, sentence_scores
from tests.scoring.test_commands import LINES, damaged

WMT21 = Path(os.environ.get("NMT_WMT21") or Path(__file__).parents[3] / "shared" / "data" / "wmt21-scores")


def score(metric: str, hypotheses: list[str], *references: list[str], lowercase: bool = False) -> Score:
    """One system's."""
    named = [(f"reference {number}", lines) for number, lines in enumerate(references)]
    [found] = corpus_scores(Evaluation([("system", hypotheses)], named), create(metric, named, lowercase))
    return found


@pytest.mark.slow
@pytest.mark.skipif(
    not WMT21.is_dir(), reason="needs the outputs and references of WMT 2021 (NMT_WMT21 names the folder)"
)
def test_published_scores_of_wmt21_are_reproduced() -> None:
    """BLEU and chrF of six English-German systems of WMT 2021, against each reference and all of them, to 0.005."""
    with (WMT21 / "published-scores.tsv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    lines = {path.stem: list(read_lines(path)) for path in WMT21.glob("*.de")}
    assert len(rows) == 48
    for row in rows:
        metric, against = row["metric"].split("-")
        references = [lines[f"ref{name}"] for name in ("ACD" if against == "all" else against)]
        found = score(metric, lines[row["system"]], *references)
        assert found.value == pytest.approx(float(row["score"]), abs=0.005, rel=0), row
        assert found.lines == 1002


@pytest.mark.parametrize(
    ("metric", "lowercase", "value"),
    [
        ("bleu", False, 100 * math.exp(1 - 13 / 11) * (9 / 11 * 5 / 9 * 3 / 7 * 2 / 5) ** 0.25),
        ("bleu", True, 100 * math.exp(1 - 13 / 11) * (10 / 11 * 6 / 9 * 4 / 7 * 2 / 5) ** 0.25),
        ("chrf", False, 68.78119358735513),
        ("chrf", True, 71.72896048022817),
        ("ter", False, 300 / 11),  # 3 edits of 11 words: TER ignores case by default
        ("ter", True, 300 / 11),
    ],
)
def test_frozen_scores(metric: str, lowercase: bool, value: float) -> None:
    """Of two sentences BLEU and TER can be counted by hand; chrF is what it was when this was written."""
    hypotheses = ["Der Hund schläft unter dem Tisch.", "das Haus ist alt"]
    references = ["Der Hund schläft unter dem Bett.", "Das Haus ist sehr alt."]
    assert score(metric, hypotheses, references, lowercase=lowercase).value == pytest.approx(value, abs=1e-9)


def test_frozen_scores_of_the_demo_corpus() -> None:
    """The first 60 test lines without each seventh word, against the text: numbers that changed would be seen."""
    found = [score(metric, damaged(7).splitlines(), LINES) for metric in METRICS]
    assert [f"{one.metric} {one.value:.4f}" for one in found] == ["BLEU 68.3545", "chrF2 82.3631", "TER 14.1256"]


def test_sentences_are_scored_with_effective_order() -> None:
    """A sentence of three right words has no 4-gram to miss: as a sentence it is 100, as a corpus 0."""
    named = [("reference", ["eins zwei drei"])]
    [sentence] = sentence_scores(["eins zwei drei"], named, create("bleu", named, of_sentences=True))
    assert sentence.value == pytest.approx(100)
    assert "|eff:yes|" in sentence.signature
    assert score("bleu", ["eins zwei drei"], ["eins zwei drei"]).value == 0


@pytest.mark.parametrize("wrong", [["a b c"], ["a b c", "d e f", "g h i"]])
def test_the_function_counts_too(wrong: list[str]) -> None:
    """`bleu`, which validation uses, refuses what sacreBLEU's Python interface would score with 100."""
    with pytest.raises(UsageError, match=str(len(wrong))):
        bleu(["a b c", "d e f"], [wrong])
    with pytest.raises(UsageError, match="reference 2"):
        bleu(["a b c", "d e f"], [["a b c", "d e f"], wrong])


@pytest.mark.parametrize(
    ("hypotheses", "references", "expected"),
    [
        (["", ""], ["eins zwei drei vier fünf", "x"], {"bleu": 0, "chrf": 0, "ter": 100}),
        (["eins zwei", "drei"], ["", ""], {"bleu": 0, "chrf": 0, "ter": 100}),
        (["", ""], ["", ""], {"bleu": 0, "chrf": 0, "ter": 0}),
        (["eins zwei drei vier", ""], ["eins zwei drei vier", ""], {"bleu": 100, "chrf": 100, "ter": 0}),
        (["eins zwei drei"], ["eins zwei drei"], {"bleu": 0, "chrf": 100, "ter": 0}),
        (["eins zwei drei vier", "fünf"], ["", "eins zwei drei vier fünf"], {"ter": 160}),
    ],
)
def test_empty_and_short_lines(hypotheses: list[str], references: list[str], expected: dict[str, float]) -> None:
    """Lines without words, and texts without four words in a row (whose BLEU is 0), have a score and crash nothing."""
    found = {metric: score(metric, hypotheses, references).value for metric in expected}
    assert found == pytest.approx(expected, abs=1e-6)
