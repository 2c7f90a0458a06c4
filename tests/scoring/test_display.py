"""`nmt score --sentences` and `--examples`."""

import json
from pathlib import Path

from tests.conftest import call
from tests.scoring.test_commands import HYPOTHESES, OTHER, REFERENCE, sacrebleu_text, write


def shown(output: str) -> list[tuple[str, int]]:
    """The kind and line number of each example."""
    found: list[tuple[str, int]] = []
    kind = ""
    for line in output.splitlines():
        if " sentences by " in line:
            kind = line.split(" sentences by ")[0].split()[-1]
        if line.startswith("line "):
            found.append((kind, int(line.split()[1].rstrip(","))))
    return found


def test_each_sentence_has_the_score_of_the_sacrebleu_command(tmp_path: Path) -> None:
    """An object per system, line and metric, with sacreBLEU's own sentence score and the texts."""
    close, loose, _, _, *references = write(tmp_path, **HYPOTHESES, ref=REFERENCE, other=OTHER)
    named = [word for path in references for word in ("-r", path)]
    done = call("score", loose, close, *named, "--sentences", "--metric", "all")
    assert done.exit_code == 0, done.stderr
    found = [json.loads(line) for line in done.stdout_bytes.splitlines()]
    assert [(one["system"], one["line"], one["metric"]) for one in found] == [
        (str(path), number, metric) for path in (loose, close) for number in (1, 2, 3) for metric in ("BLEU", "chrF2", "TER")
    ]
    for metric in ("bleu", "chrf", "ter"):
        printed = sacrebleu_text(*references, "-i", loose, "-m", metric, "--sentence-level", "-f", "text")
        ours = [one for one in found[:9] if one["metric"].lower().startswith(metric)]
        for line, one in zip(printed.splitlines(), ours, strict=True):
            assert line.startswith(f"{one['metric']}|{one['signature']} = {one['score']:.4f}")
    assert [one["hypothesis"] for one in found[:9:3]] == HYPOTHESES["loose"].splitlines()
    assert found[3]["references"] == [REFERENCE.splitlines()[1], OTHER.splitlines()[1]]


def test_examples_are_the_worst_and_the_best(tmp_path: Path) -> None:
    """After the score; by TER the worst is the highest; ties go by line number."""
    texts = ["eins zwei drei vier fünf", "eins zwei drei vier", "ganz etwas anderes hier", "eins zwei drei vier"]
    hypothesis, expected = write(tmp_path, hyp="\n".join(texts), ref="eins zwei drei vier\n" * 4)
    for metric in ("bleu", "chrf", "ter"):
        done = call("score", hypothesis, "-r", expected, "--metric", metric, "--examples", "2")
        assert shown(done.stdout) == [("worst", 3), ("worst", 1), ("best", 2), ("best", 4)]
        assert done.stdout.startswith(call("score", hypothesis, "-r", expected, "--metric", metric).stdout)
    assert "line 1, TER 25.00\n  reference   eins zwei drei vier\n  hypothesis  eins zwei drei vier fünf\n" in done.stdout


def test_a_sign_that_breaks_lines_stays_on_its_line(tmp_path: Path) -> None:
    """D1: text for people shows a space; JSON escapes it, for readers that end a line at U+2028 or U+0085."""
    text = "eins\u2028zwei\x1b[31m drei\x85\tvier"
    [path] = write(tmp_path, ref=f"{text}\n")
    output = call("score", path, "-r", path, "--examples", "1").stdout_bytes.decode()
    assert output.endswith("  hypothesis  eins zwei [31m drei  vier\n")
    [line] = call("score", path, "-r", path, "--sentences").stdout_bytes.decode().splitlines()
    assert json.loads(line)["hypothesis"] == text
