"""Scores: published ones are reproduced, frozen ones stay, and unequal texts have none."""

import csv
import math
import os
from pathlib import Path

import pytest

from nmt.lines import read_lines
from nmt.scoring.metrics import Evaluation, Score, corpus_scores, make_metric

WMT21 = Path(os.environ.get("NMT_WMT21") or Path(__file__).parents[3] / "shared" / "data" / "wmt21-scores")


def score(metric: str, hypotheses: list[str], *references: list[str], lowercase: bool = False) -> Score:
    named = [(f"reference {number}", lines) for number, lines in enumerate(references)]
    [found] = corpus_scores(Evaluation([("system", hypotheses)], named), make_metric(metric, named, lowercase))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not WMT21.is_dir(), reason="needs the outputs and references of WMT 2021 (NMT_WMT21 names the folder)")
def test_published_scores_of_wmt21_are_reproduced() -> None:
    """BLEU and chrF of six English-German systems, against each reference and all of them, to 0.005."""
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
        ("ter", False, 300 / 11),  # 3 edits of 11 words: TER ignores case by default
        ("ter", True, 300 / 11),
    ],
)
def test_frozen_scores(metric: str, lowercase: bool, value: float) -> None:
    """Of two sentences, counted by hand."""
    hypotheses = ["Der Hund schläft unter dem Tisch.", "das Haus ist alt"]
    references = ["Der Hund schläft unter dem Bett.", "Das Haus ist sehr alt."]
    assert score(metric, hypotheses, references, lowercase=lowercase).value == pytest.approx(value, abs=1e-9)
