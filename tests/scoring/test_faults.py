"""Public faults of scoring: blank references (N23, F4), texts that are too short (N22), TER that takes long (N21)."""

import json
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from nmt.scoring import metrics
from nmt.scoring.metrics import MIN_CONFIDENCE_LINES
from tests.conftest import call, write_corpus
from tests.runs import train
from tests.scoring.test_commands import LINES, TEXT, damaged, sacrebleu, scores, write


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


OTHERS = damaged(5, 2).splitlines()
BLANK = {3: "", 7: " \t", 20: "\u200b", 59: ""}  # by index; a reader sees nothing in any of them
SPARSE = [BLANK.get(index, line) for index, line in enumerate(OTHERS)]
FILLED = [LINES[index] if index in BLANK else line for index, line in enumerate(OTHERS)]
# Too short where one reference is blank: if its length of 0 counted, it would be the nearest, and the translation too long.
SHORT = [LINES[index].split()[0] if index in BLANK else line for index, line in enumerate(damaged(7).splitlines())]


@pytest.mark.parametrize("sparse_first", [False, True])
def test_a_blank_line_of_one_reference_is_no_reference(tmp_path: Path, sparse_first: bool) -> None:
    """N23: scores are those of the `sacrebleu` command with the blank lines filled from the other reference, and of its Python
    interface with None for them, with the same signatures. Sentences are scored against the other reference.
    """
    hypothesis, full, sparse, filled = write(tmp_path, hyp=text(SHORT), full=TEXT, sparse=text(SPARSE), filled=text(FILLED))
    given = [word for path in ((sparse, full) if sparse_first else (full, sparse)) for word in ("-r", path)]
    ours = scores(hypothesis, *given, "--metric", "all")
    theirs = sacrebleu(full, filled, "-i", hypothesis)
    assert [f"{one['score']:.6f}" for one in ours] == [f"{one['score']:.6f}" for one in theirs]
    streams = [LINES, [None if index in BLANK else line for index, line in enumerate(OTHERS)]]
    for one, metric in zip(ours, (BLEU(), CHRF(), TER()), strict=True):
        assert one["score"] == pytest.approx(metric.corpus_score(SHORT, streams).score, abs=1e-9)
        assert one["signature"] == str(metric.get_signature())
        assert "nrefs:var|" in one["signature"]
    assert {(one["references"], one["fewer_references"], one["blank_references"]) for one in ours} == {(2, 4, 0)}
    done = call("score", hypothesis, *given, "--metric", "ter", "--sentences")
    found, alone = (
        [json.loads(line) for line in one.stdout.splitlines()]
        for one in (done, call("score", hypothesis, "-r", full, "--metric", "ter", "--sentences"))
    )
    for index in BLANK:
        assert found[index]["score"] == alone[index]["score"]
        assert found[index]["signature"].startswith("nrefs:1|")
    assert done.stderr.startswith(f"warning: {sparse}: 4 of 60 lines are blank (lines 4, 8, 21, 60); ")
    assert done.stderr.count("\n") == 1


def test_lines_without_any_reference_are_warned_of(tmp_path: Path) -> None:
    """F4: one warning with their count and first numbers, their count in JSON; the score stays sacreBLEU's."""
    blank = ["" if index % 4 == 1 else line for index, line in enumerate(LINES)]
    hypothesis, reference = write(tmp_path, hyp=damaged(7), ref=text(blank))
    done = call("score", hypothesis, "-r", reference, "--format", "json")
    assert done.stderr.startswith(f"warning: {reference}: 15 of 60 lines are blank (lines 2, 6, 10, 14, 18, 22, 26, ")
    [found] = json.loads(done.stdout)
    assert f"{found['score']:.6f}" == f"{sacrebleu(reference, '-i', hypothesis)[0]['score']:.6f}"
    assert (found["blank_references"], found["fewer_references"], found["blank_lines"]) == (15, 0, 0)
    assert scores(reference, "-r", reference)[0]["blank_lines"] == 15


def test_blank_held_out_lines_are_warned_of_as_a_run_begins(
    tmp_path: Path, corpus: Path, demo_pairs: list[tuple[str, str]]
) -> None:
    """F4: of validation and test text, blank on either side, and not again when the run is resumed; bare score warns too."""
    pairs = demo_pairs[120:126]
    valid = [pairs[0], ("", pairs[1][1]), (pairs[2][0], "")]
    test = [*pairs[3:5], (pairs[5][0], " ")]
    data = write_corpus(tmp_path / "corpus", train=demo_pairs[:120], valid=valid, test=test)
    warnings = [line for line in train(tmp_path / "model", data, steps=2).stderr.splitlines() if " blank (line" in line]
    assert [line.split(";")[0] for line in warnings] == [
        "warning: the valid text: 2 of 3 lines are blank (lines 2, 3), on one side or both",
        "warning: the test text: 1 of 3 lines is blank (line 3), on one side or both",
    ]
    assert " blank (line" not in train(tmp_path / "model", data, "--steps", "3").stderr
    assert " blank (line" not in train(tmp_path / "other", corpus, steps=2).stderr
    scored = call("score", "-m", tmp_path / "model", "--quiet")
    assert scored.stderr.startswith("warning: the test set: 1 of 3 lines is blank (line 3); ")


@pytest.mark.parametrize("count", [MIN_CONFIDENCE_LINES - 1, MIN_CONFIDENCE_LINES])
def test_a_text_too_short_has_no_interval_and_no_p(tmp_path: Path, count: int) -> None:
    """N22: below 30 lines there is only the score, a warning says why, and JSON has null."""
    texts = {"a": damaged(7), "b": damaged(7, 3), "r": TEXT}
    first, second, reference = write(tmp_path, **{name: text(lines.splitlines()[:count]) for name, lines in texts.items()})
    enough = count == MIN_CONFIDENCE_LINES == 30
    both = scores(first, second, "-r", reference, "--confidence")
    shown = [(one["confidence"] is not None, one["p_value"] is not None) for one in both]
    assert shown == [(enough, False), (enough, enough)]
    assert [one["score"] for one in both] == [one["score"] for one in scores(first, second, "-r", reference)]
    assert ("bs:1000" in both[0]["signature"]) == enough
    done = call("score", first, second, "-r", reference, "--confidence")
    assert ("±" in done.stdout, "\np: " in done.stdout) == (enough, enough)
    assert ("warning: --confidence: no interval and no p" in done.stderr) == (not enough)


def test_a_text_without_four_words_in_a_row_is_warned_of(tmp_path: Path) -> None:
    """N22: its BLEU is 0 even for equal lines; not where one line has four words, nor for other metrics and sentences."""
    short, long, chinese = write(tmp_path, short="Ja.\nDas Haus.\n", long="Ja.\nDas alte Haus.\n", zh="老房子很旧\n")
    done = call("score", short, "-r", short, "--format", "json")
    assert json.loads(done.stdout)[0]["score"] == 0
    assert "--metric chrf" in done.stderr
    assert call("score", short, "-r", short, "--metric", "chrf").stderr == ""
    for path in (long, chinese):
        done = call("score", path, "-r", path)
        assert (done.stderr, "BLEU 100.00" in done.stdout) == ("", True)


@pytest.mark.parametrize(("lines", "slow"), [(1_000, True), (10, False)])
def test_ter_that_takes_long_says_so_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, slow: bool) -> None:
    """N21: on stderr, and only for TER of much text. (What takes so long is left out here.)"""
    line = [f"w{number}" for number in range(27)]
    hypothesis, reference = write(tmp_path, hyp=text([" ".join(line)] * lines), ref=text([" ".join(reversed(line))] * lines))
    monkeypatch.setattr(metrics, "corpus_scores", lambda *_: [metrics.Score("TER", 0.0, "", lines)])
    for metric, warns in (("ter", slow), ("bleu", False)):
        done = call("score", hypothesis, "-r", reference, "--metric", metric)
        assert (done.exit_code, "takes long" in done.stderr) == (0, warns)
