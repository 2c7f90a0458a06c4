"""What `nmt score` shows of sentences: each with its score, or the ones to look at."""

import json
from pathlib import Path

from tests.conftest import call
from tests.scoring.test_commands import HYPOTHESES, OTHER, REFERENCE, sacrebleu_text, write


def shown(output: str) -> list[tuple[str, int]]:
    """The kind and line of the examples."""
    found: list[tuple[str, int]] = []
    kind = ""
    for line in output.splitlines():
        if " sentences by " in line:
            kind = line.split(" sentences by ")[0].split()[-1]
        if line.startswith("line "):
            found.append((kind, int(line.split()[1].rstrip(","))))
    return found


def test_each_sentence_has_the_score_of_the_sacrebleu_command(tmp_path: Path) -> None:
    """--sentences is an object a line, with the text as it stands in the files and sacreBLEU's own sentence scores."""
    hypothesis, *references = write(tmp_path, hyp=HYPOTHESES["loose"], ref=REFERENCE, other=OTHER)
    named = [word for path in references for word in ("-r", path)]
    done = call("score", hypothesis, *named, "--sentences", "--metric", "all")
    assert done.exit_code == 0, done.stderr
    found = [json.loads(line) for line in done.stdout_bytes.splitlines()]
    assert [(one["line"], one["metric"]) for one in found] == [
        (number, metric) for number in (1, 2, 3) for metric in ("BLEU", "chrF2", "TER")
    ]
    for metric in ("bleu", "chrf", "ter"):
        printed = sacrebleu_text(*references, "-i", hypothesis, "-m", metric, "--sentence-level", "-f", "text")
        ours = [one for one in found if one["metric"].lower().startswith(metric)]
        for line, one in zip(printed.splitlines(), ours, strict=True):
            assert line.startswith(f"{one['metric']}|{one['signature']} = {one['score']:.4f}")
    assert all("|eff:yes|" in one["signature"] for one in found if one["metric"] == "BLEU")
    assert [one["hypothesis"] for one in found[::3]] == HYPOTHESES["loose"].splitlines()
    assert found[3]["references"] == [REFERENCE.splitlines()[1], OTHER.splitlines()[1]]
    assert {one["system"] for one in found} == {str(hypothesis)}


def test_sentences_of_several_systems(tmp_path: Path) -> None:
    """First all of the first system, then all of the second."""
    close, loose, reference = write(tmp_path, close=HYPOTHESES["close"], loose=HYPOTHESES["loose"], ref=REFERENCE)
    lines = call("score", close, loose, "-r", reference, "--sentences").stdout_bytes.splitlines()
    found = [(one["system"], one["line"]) for one in map(json.loads, lines)]
    assert found == [(str(path), number) for path in (close, loose) for number in (1, 2, 3)]


def test_examples_are_the_worst_and_the_best(tmp_path: Path) -> None:
    """N of each with their texts, after the score; by TER the worst is the highest; ties go by line number."""
    texts = ["eins zwei drei vier fünf", "eins zwei drei vier", "ganz etwas anderes hier", "eins zwei drei vier"]
    reference = "eins zwei drei vier\n" * 4
    hypothesis, expected = write(tmp_path, hyp="\n".join(texts), ref=reference)
    for metric in ("bleu", "chrf", "ter"):
        done = call("score", hypothesis, "-r", expected, "--metric", metric, "--examples", "2")
        assert shown(done.stdout) == [("worst", 3), ("worst", 1), ("best", 2), ("best", 4)]
        assert done.stdout.startswith(call("score", hypothesis, "-r", expected, "--metric", metric).stdout)
    assert (
        "line 1, TER 25.00\n  reference   eins zwei drei vier\n  hypothesis  eins zwei drei vier fünf\n" in done.stdout
    )


def test_no_example_is_shown_twice(tmp_path: Path) -> None:
    """Where there are fewer than twice as many lines, each is shown once; of equal ones the first are worst."""
    hypothesis, reference, one = write(tmp_path, hyp="a b c d\n" * 3, ref="a b c d\n" * 3, one="a\n")
    done = call("score", hypothesis, "-r", reference, "--examples", "50")
    assert shown(done.stdout) == [("worst", 1), ("worst", 2), ("best", 3)]
    assert shown(call("score", one, "-r", one, "--examples", "1").stdout) == [("worst", 1)]


def test_lines_that_are_blank_as_they_should_be_are_no_examples(tmp_path: Path) -> None:
    """The blank lines of a document would be the worst of all; one that should not be blank is."""
    hypothesis, reference = write(tmp_path, hyp="\na b c d\n \n\n", ref="\na b c d\n\ne f g h\n")
    assert shown(call("score", hypothesis, "-r", reference, "--examples", "9").stdout) == [("worst", 4), ("best", 2)]


def test_examples_of_several_systems_go_by_the_first_metric(tmp_path: Path) -> None:
    """Each system has its own, named, and all are of BLEU where all metrics are asked for."""
    close, loose, reference = write(tmp_path, close=HYPOTHESES["close"], loose=HYPOTHESES["loose"], ref=REFERENCE)
    done = call("score", close, loose, "-r", reference, "--examples", "1", "--metric", "all")
    heads = [line.split(" nrefs")[0] for line in done.stdout.splitlines() if "sentences by" in line]
    assert heads == [f"{path}: {kind} sentences by BLEU" for path in (close, loose) for kind in ("worst", "best")]


def test_a_sign_that_breaks_lines_stays_on_its_line(tmp_path: Path) -> None:
    """What is shown to a person keeps to one line for a text; JSON has it as it was."""
    text = "eins\u2028zwei\x1b[31m drei\tvier\n"
    hypothesis, reference = write(tmp_path, hyp=text, ref=text)
    output = call("score", hypothesis, "-r", reference, "--examples", "1").stdout_bytes.decode()
    assert output.endswith("  hypothesis  eins zwei [31m drei vier\n")
    [line] = call("score", hypothesis, "-r", reference, "--sentences").stdout_bytes.decode().rstrip("\n").split("\n")
    assert json.loads(line)["hypothesis"] + "\n" == text
