"""Public faults of scoring, each as its user met it: blank references, texts too short to be sure of, TER that takes long."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from nmt.scoring import commands
from nmt.scoring.metrics import FEWEST, Evaluation, Score, corpus_scores
from tests.conftest import call, shown_on, write_corpus
from tests.runs import train
from tests.scoring.test_commands import LINES, TEXT, damaged, sacrebleu, scores, write


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


OTHERS = damaged(5, 2).splitlines()
BLANK = {3: "", 7: " \t", 20: "\u200b", 59: ""}  # by place; all are blank to a reader
SPARSE = [BLANK.get(place, line) for place, line in enumerate(OTHERS)]
FILLED = [LINES[place] if place in BLANK else line for place, line in enumerate(OTHERS)]
# Too short, where one reference is blank: its length of 0 would be the nearest, and the translation too long.
SHORT = [LINES[place].split()[0] if place in BLANK else line for place, line in enumerate(damaged(7).splitlines())]


# References.


@pytest.mark.parametrize("sparse_first", [False, True])
def test_a_blank_line_of_one_reference_is_no_reference(tmp_path: Path, sparse_first: bool) -> None:
    """N23: Which of two has it does not matter. The scores are those of the `sacrebleu` command where the blank lines of one
    are filled with the other's, and of its Python interface with None for them, signatures too; of each sentence likewise.
    """
    hypothesis, full, sparse, filled = write(
        tmp_path, hyp=text(SHORT), full=TEXT, sparse=text(SPARSE), filled=text(FILLED)
    )
    given = [word for path in ((sparse, full) if sparse_first else (full, sparse)) for word in ("-r", path)]
    ours = scores(hypothesis, *given, "--metric", "all")
    theirs = sacrebleu(full, filled, "-i", hypothesis)
    assert [f"{one['score']:.6f}" for one in ours] == [f"{one['score']:.6f}" for one in theirs]
    streams = [LINES, [None if place in BLANK else line for place, line in enumerate(OTHERS)]]
    for one, metric in zip(ours, (BLEU(), CHRF(), TER()), strict=True):
        assert one["score"] == pytest.approx(metric.corpus_score(SHORT, streams).score, abs=1e-9)
        assert one["signature"] == str(metric.get_signature())
        assert "nrefs:var|" in one["signature"]
    done = call("score", hypothesis, *given, "--metric", "ter", "--sentences")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    alone = call("score", hypothesis, "-r", full, "--metric", "ter", "--sentences").stdout.splitlines()
    for place in BLANK:
        assert found[place]["score"] == json.loads(alone[place])["score"]
        assert found[place]["signature"].startswith("nrefs:1|")
    [warning] = done.stderr.splitlines()
    assert warning == (
        f"warning: {sparse}: 4 of 60 lines are blank (lines 4, 8, 21, 60); it is no reference of these, and they are scored "
        "against the others alone"
    )
    assert {(one["references"], one["fewer_references"], one["blank_references"]) for one in ours} == {(2, 4, 0)}


def test_a_blank_line_of_one_reference_is_none_for_the_bootstrap_either(tmp_path: Path) -> None:
    """N23: Mean, interval and p are those of the filled reference, resample by resample."""
    first, second, full, sparse, filled = write(
        tmp_path, first=text(SHORT), second=damaged(7, 3), full=TEXT, sparse=text(SPARSE), filled=text(FILLED)
    )
    ours, same = (
        scores(first, second, "-r", full, "-r", path, "--confidence", "--metric", "all") for path in (sparse, filled)
    )
    for one, other in zip(ours, same, strict=True):
        assert one["confidence"] == pytest.approx(other["confidence"])
        assert one["p_value"] == other["p_value"]


def test_the_paper_s_metric_takes_a_blank_line_for_no_reference_too(tmp_path: Path) -> None:
    """N23: And names it."""
    pytest.importorskip("sacremoses")
    hypothesis, full, sparse, filled = write(
        tmp_path, **{"hyp": text(SHORT), "a.de": TEXT, "b.de": text(SPARSE), "c.de": text(FILLED)}
    )
    [one], [same] = (scores(hypothesis, "-r", full, "-r", path, "--metric", "paper") for path in (sparse, filled))
    assert one["score"] == pytest.approx(same["score"])
    assert one["fewer_references"] == 4


def test_lines_without_any_reference_are_told_of(tmp_path: Path) -> None:
    """F4: One warning with their count and the first of their numbers, their count in JSON; the score stays sacreBLEU's."""
    blank = ["" if place % 4 == 1 else line for place, line in enumerate(LINES)]
    hypothesis, reference = write(tmp_path, hyp=damaged(7), ref=text(blank))
    done = call("score", hypothesis, "-r", reference, "--format", "json")
    assert done.stderr == (
        f"warning: {reference}: 15 of 60 lines are blank (lines 2, 6, 10, 14, 18, 22, 26, 30, 34, 38 and 5 more); there is "
        "nothing to compare with there, and every word is a wrong one\n"
    )
    [found] = json.loads(done.stdout)
    assert f"{found['score']:.6f}" == f"{sacrebleu(reference, '-i', hypothesis)[0]['score']:.6f}"
    assert (found["blank_references"], found["fewer_references"], found["blank_lines"]) == (15, 0, 0)
    assert scores(reference, "-r", reference)[0]["blank_lines"] == 15
    two = call("score", hypothesis, "-r", reference, "-r", reference)
    assert f"warning: {reference}, {reference}: 15 of 60 lines" in two.stderr
    assert two.stderr.count("\n") == 1, "what is missing everywhere is no matter of one of them"


def test_blank_held_out_lines_are_told_of_as_a_run_begins(
    tmp_path: Path, corpus: Path, demo_pairs: list[tuple[str, str]]
) -> None:
    """F4: Of validation and test text, blank on either side, once: not again as the run goes on; and bare score tells."""
    pairs = demo_pairs[120:126]
    valid = [pairs[0], ("", pairs[1][1]), (pairs[2][0], "")]
    data = write_corpus(
        tmp_path / "corpus", train=demo_pairs[:120], valid=valid, test=[*pairs[3:5], (pairs[5][0], " ")]
    )
    done = train(tmp_path / "model", data, steps=2)
    assert [line for line in done.stderr.splitlines() if " blank (line" in line] == [
        "warning: the valid text: 2 of 3 lines are blank (lines 2, 3), on one side or both; BLEU counts them too",
        "warning: the test text: 1 of 3 lines is blank (line 3), on one side or both; BLEU counts them too",
    ]
    assert " blank (line" not in train(tmp_path / "model", data, "--steps", "3").stderr
    assert " blank (line" not in train(tmp_path / "other", corpus, steps=2).stderr
    scored = call("score", "-m", tmp_path / "model", "--quiet")
    assert scored.stderr.startswith(
        "warning: the test set: 1 of 3 lines is blank (line 3); there is nothing to compare"
    )


# Texts that are too short.


@pytest.mark.parametrize("count", [1, FEWEST - 1, FEWEST])
def test_a_text_too_short_has_no_interval_and_no_p(tmp_path: Path, count: int) -> None:
    """N22: Below 30 lines the score is all that there is, the reason is said, and JSON has null; from 30 on all is there."""
    first, second, reference = write(
        tmp_path,
        **{
            name: text(lines.splitlines()[:count])
            for name, lines in (("a", damaged(7)), ("b", damaged(7, 3)), ("r", TEXT))
        },
    )
    enough = count >= FEWEST
    both = scores(first, second, "-r", reference, "--confidence")
    assert [(one["confidence"] is not None, one["p_value"] is not None) for one in both] == [
        (enough, False),
        (enough, enough),
    ]
    assert [one["score"] for one in both] == [one["score"] for one in scores(first, second, "-r", reference)]
    assert ("bs:1000" in both[0]["signature"]) == enough
    assert "confidence" not in scores(first, "-r", reference)[0]
    done = call("score", first, second, "-r", reference, "--confidence")
    lines = "1 line" if count == 1 else f"{count} lines"
    reason = (
        f"warning: --confidence: no interval and no p of {lines}; that takes 30, for resamples of fewer are too alike to tell "
        "what other text would score\n"
    )
    assert done.stderr == ("" if enough else reason)
    assert ("±" in done.stdout, "\np: " in done.stdout) == (enough, enough)
    alone = call("score", first, "-r", reference, "--confidence")
    assert ("±" in alone.stdout, "no interval of" in alone.stderr, " p " in alone.stderr) == (enough, not enough, False)


def test_a_text_without_four_words_in_a_row_is_told_of(tmp_path: Path) -> None:
    """N22: Its BLEU is 0 even of equal lines, and that is said, with the way out; where one line has four, nothing is."""
    short, long, chinese = write(tmp_path, short="Ja.\nDas Haus.\n", long="Ja.\nDas alte Haus.\n", zh="老房子很旧\n")
    done = call("score", short, "-r", short, "--format", "json")
    assert json.loads(done.stdout)[0]["score"] == 0
    assert done.stderr == (
        "warning: no line of the reference has four words in a row, which BLEU counts: it is 0 even where all is right; use "
        "--metric chrf\n"
    )
    assert call("score", short, "-r", short, "--metric", "chrf").stderr == ""
    assert call("score", short, "-r", short, "--sentences").stderr == "", "a sentence has no longer words to miss"
    for path in (long, chinese):
        done = call("score", path, "-r", path)
        assert (done.stderr, "BLEU 100.00" in done.stdout) == ("", True)


# TER.


@pytest.mark.parametrize("options", [[], ["--sentences"], ["--confidence"], ["--examples", "1"]])
@pytest.mark.parametrize(("lines", "words", "said"), [(1_000, 27, True), (1, 800, True), (10, 27, False)])
def test_ter_that_takes_long_says_so_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, words: int, said: bool, options: list[str]
) -> None:
    """N21: Of a text whose TER takes a minute one line on stderr tells what is waited for; of one that takes none, nothing is
    told, nor of other metrics or of equal lines. (What takes so long is left out here.)
    """
    forwards, backwards = [f"w{number}" for number in range(words)], [f"w{number}" for number in range(words)][::-1]
    hypothesis, reference = write(
        tmp_path, hyp=text([" ".join(forwards)] * lines), ref=text([" ".join(backwards)] * lines)
    )
    monkeypatch.setattr(commands, "corpus_scores", lambda evaluation, *_: [Score("TER", 0.0, "", evaluation.lines)])
    monkeypatch.setattr(
        commands, "sentence_scores", lambda hypotheses, *_: [Score("TER", 0.0, "", 1)] * len(hypotheses)
    )

    def told(metric: str, *against: Path) -> list[str]:
        done = call("score", *against[:1], "-r", against[1], "--metric", metric, *options)
        assert done.exit_code == 0, done.stderr
        return [line for line in done.stderr.splitlines() if "TER" in line]

    counted = "1,000 lines" if lines > 1 else "1 line"
    expected = [f"TER of {counted}: tries every shift of words, which takes long for these"] * said
    assert told("ter", hypothesis, reference) == told("all", hypothesis, reference) == expected
    assert told("bleu", hypothesis, reference) == told("chrf", hypothesis, reference) == []
    assert told("ter", reference, reference) == []


def test_ter_that_takes_long_shows_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N21: What is scored hands its lines out one by one, in their order and all of them, and the scores are the same."""
    hypothesis, reference = write(tmp_path, hyp=damaged(7), ref=damaged(5))
    alike = scores(hypothesis, "-r", reference, "--metric", "all")
    sentences = call("score", hypothesis, "-r", reference, "--metric", "ter", "--sentences").stdout
    monkeypatch.setattr(commands, "LONG", 0)
    watched: list[list[int]] = []

    def watching(evaluation: Evaluation, metric: Any, confidence: bool) -> list[Score]:
        [(_, lines)] = evaluation.systems
        counts: list[int] = []
        lines.tell = counts.append  # type: ignore[attr-defined]
        watched.append(counts)
        return corpus_scores(evaluation, metric, confidence)

    with monkeypatch.context() as patch:
        patch.setattr(commands, "corpus_scores", watching)
        assert scores(hypothesis, "-r", reference, "--metric", "all") == alike
    assert len(watched) == 3
    assert all(counts[-60:] == [*range(60)] for counts in watched)
    assert call("score", hypothesis, "-r", reference, "--metric", "ter", "--sentences").stdout == sentences


def test_on_a_terminal_ter_has_a_bar(tmp_path: Path) -> None:
    """N21: And stdout the score alone."""
    hypothesis, reference = write(tmp_path, hyp=damaged(7), ref=damaged(5))
    script = "from nmt.scoring import commands\ncommands.LONG = 0\nfrom nmt.__main__ import main\nmain()"
    words = ["score", str(hypothesis), "-r", str(reference), "--metric", "ter"]
    master, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.PIPE, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        shown = shown_on(master)
        output, _ = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == 0
    assert b"scoring" in shown
    assert b"/60" in shown
    assert output.decode() == call(*words).stdout
