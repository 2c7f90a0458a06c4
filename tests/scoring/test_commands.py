"""`nmt score` gives the numbers of sacreBLEU's own command, and no number for files that do not line up."""

import gzip
import json
import re
import subprocess
import sys
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from nmt.data.corpus import demo_folder
from nmt.lines import read_lines
from tests.conftest import call, refusal

SIGNATURE = r"nrefs:\d\|case:\w+\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+"

REFERENCE = "Das Haus ist alt.\nEr sagte: „Halt!“ und ging um 15.30 Uhr.\nDer Hund schläft unter dem Tisch.\n"
OTHER = "Das Haus ist sehr alt.\nEr sagte „Halt“ und ging halb vier.\nUnter dem Tisch schläft der Hund.\n"
LINES = list(islice(read_lines(demo_folder() / "test.de"), 60))
TEXT = "".join(f"{line}\n" for line in LINES)
HYPOTHESES = {
    "close": 'Das Haus ist alt .\nEr sagte: "Halt!" und ging um 15.30 Uhr.\nDer Hund schläft unter dem Tisch.\n',
    "loose": "das haus war alt.\nEr sagte Halt und ging.\nEin Hund schläft unter dem alten TISCH.\n",
    "poor": "x\n\nDer\n",
    "entities": "Das Haus &amp; ist &quot;alt&quot;.\n100,000.50 $ und <skipped> 3-4\nDer Hund schläft, unter-dem Tisch\n",
}


def write(folder: Path, **texts: str | bytes) -> list[Path]:
    """Writes files of these names and contents."""
    for name, text in texts.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return [folder / name for name in texts]


def damaged(every: int, place: int = 0) -> str:
    """TEXT without every n-th word."""
    numbers = count(1)
    lines = [[word for word in line.split() if next(numbers) % every != place] for line in LINES]
    return "".join(" ".join(words) + "\n" for words in lines)


def sacrebleu_text(*arguments: str | Path) -> str:
    """The output of the `sacrebleu` command, to four digits unless the arguments say otherwise."""
    command = [sys.executable, "-m", "sacrebleu", *map(str, arguments)]
    width = [] if "-w" in arguments else ["-w", "4"]
    return subprocess.run([*command, *width], capture_output=True, check=True, encoding="utf-8").stdout


def sacrebleu(*arguments: str | Path) -> list[dict[str, Any]]:
    """The `sacrebleu` command's BLEU, chrF and TER of one system."""
    results: list[dict[str, Any]] = json.loads(sacrebleu_text(*arguments, "-m", "bleu", "chrf", "ter", "-w", "6"))
    return results


def scores(*arguments: str | Path) -> list[dict[str, Any]]:
    """The JSON of `nmt score`."""
    done = call("score", *arguments, "--format", "json")
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout_bytes)
    return found


def shown_score(output: str) -> str:
    """The two-decimal score in the one line of output."""
    [line] = output.splitlines()
    [score] = re.findall(r"BLEU (\d+\.\d\d) ", line)
    return str(score)


@pytest.mark.parametrize("options", [[], ["--lowercase"]])
@pytest.mark.parametrize("references", [1, 2])
@pytest.mark.parametrize("name", HYPOTHESES)
def test_equals_the_sacrebleu_command(name: str, references: int, options: list[str], tmp_path: Path) -> None:
    """Every metric's score, to six digits, and signature."""
    hypothesis, *paths = write(tmp_path, hyp=HYPOTHESES[name], ref=REFERENCE, other=OTHER)[: 1 + references]
    theirs = sacrebleu(*paths, "-i", hypothesis, *(["-lc", "--chrf-lowercase"] if options else []))
    named = [word for path in paths for word in ("-r", path)]
    ours = scores(hypothesis, *named, "--metric", "all", *options)
    assert [(one["metric"], f"{one['score']:.6f}", one["signature"]) for one in ours] == [
        (one["name"], f"{one['score']:.6f}", one["signature"]) for one in theirs
    ]
    assert {(one["lines"], one["references"]) for one in ours} == {(3, references)}
    line = call("score", hypothesis, *named, *options).stdout_bytes.decode()
    assert f"BLEU {theirs[0]['score']:.2f} (3 lines) {theirs[0]['signature']}\n" in line


def test_significance_equals_the_sacrebleu_command(tmp_path: Path) -> None:
    """Every metric's score, mean, interval and p-value, as in sacreBLEU's paired bootstrap."""
    first, second, reference = write(tmp_path, first=damaged(7), second=damaged(7, 3), ref=TEXT)
    table = sacrebleu_text(reference, "-i", first, second, "--paired-bs", "-m", "bleu", "chrf", "ter", "-f", "text", "-nc")
    theirs = re.findall(r"(\d+\.\d+) \((\d+\.\d+) ± (\d+\.\d+)\)", table)
    p_values = re.findall(r"\(p = (\d\.\d{4})\)", table)
    ours = scores(first, second, "-r", reference, "--metric", "all", "--confidence")
    numbers = [(one["score"], one["confidence"]["mean"], one["confidence"]["interval"]) for one in ours]
    assert [tuple(f"{number:.4f}" for number in row) for row in numbers] == theirs
    assert [one["p_value"] for one in ours[:3]] == [None] * 3
    assert [f"{one['p_value']:.4f}" for one in ours[3:]] == p_values
    assert {one["baseline"] for one in ours} == {str(first)}
    assert all(f" {one['signature']}\n" in table for one in ours)
    [alone] = sacrebleu(reference, "-i", first, "--confidence")[:1]
    interval = f"95% interval {alone['confidence_mean']:.2f} ± {alone['confidence_var']:.2f}"
    line = call("score", first, "-r", reference, "--confidence").stdout
    assert f"BLEU {alone['score']:.2f} (60 lines; {interval}) {alone['signature']}\n" in line


def test_equal_systems_do_not_differ(tmp_path: Path) -> None:
    """p is 1 for two files of the same text, where sacreBLEU says 0.001."""
    first, second, reference = write(tmp_path, first=damaged(7), second=damaged(7), ref=TEXT)
    assert scores(first, second, "-r", reference, "--confidence")[1]["p_value"] == 1.0
    assert call("score", first, second, "-r", reference, "--confidence").stdout.splitlines()[4].endswith(" 1.0000")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--metric BLEU", "bleu, chrf, ter, all or paper"),
        ("--sentences --metric paper", "leave out"),
        ("--examples 1 --format json", "leave out"),
    ],
)
def test_impossible_options_are_refused(options: str, words: str, tmp_path: Path) -> None:
    hypothesis, reference = write(tmp_path, **{"hyp": REFERENCE, "ref.de": REFERENCE})
    message = refusal(call("score", hypothesis, "-r", reference, *options.split()))
    assert message.startswith(f"nmt: {options.split()[0]}")
    assert words in message


def test_reads_the_hypothesis_from_stdin(tmp_path: Path) -> None:
    """`-` is scored like the file."""
    hypothesis, reference = write(tmp_path, hyp=HYPOTHESES["loose"], ref=REFERENCE)
    piped = call("score", "-", "-r", reference, stdin=hypothesis.read_bytes())
    assert shown_score(piped.stdout) == shown_score(call("score", hypothesis, "-r", reference).stdout)


@pytest.mark.parametrize(
    ("hypothesis", "references", "counts"),
    [
        ("a b c d e\nf g h i j\n", ["a b c d e\n"], ("2", "1")),
        ("a b c d e\nf g h i j\n", ["a b c d e\nf g h i j\nk l m n o\n"], ("2", "3")),
        ("a\nb\n", ["a\nb\n", "a\n"], ("2", "1")),
        ("", [""], ("no",)),
    ],
)
def test_mismatched_lengths_are_never_scored(
    hypothesis: str, references: list[str], counts: tuple[str, ...], tmp_path: Path
) -> None:
    """E2: the error names the files and both counts, also for stdin."""
    first, *paths = write(tmp_path, hyp=hypothesis, **{f"ref{number}": text for number, text in enumerate(references)})
    options = [word for path in paths for word in ("-r", str(path))]
    message = refusal(call("score", first, *options))
    assert all(re.search(rf"\b{count}\b", message) for count in counts)
    assert str(first) in message
    assert "standard input" in refusal(call("score", "-", *options, stdin=hypothesis.encode()))


def test_foreign_line_ends_change_no_score(tmp_path: Path) -> None:
    """U4: neither do a byte order mark, a missing last newline and gzip."""
    windows = b"\xef\xbb\xbf" + HYPOTHESES["loose"].rstrip("\n").replace("\n", "\r\n").encode()
    *hypotheses, reference = write(tmp_path, a=HYPOTHESES["loose"], b=windows, c=gzip.compress(windows), ref=REFERENCE)
    assert len({shown_score(call("score", path, "-r", reference).stdout) for path in hypotheses}) == 1


def test_bare_it_scores_the_held_out_test_set(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """Without files, it gives the score of `nmt translate` and `nmt score` on the model's test set."""
    hypothesis = tmp_path / "hyp"
    text = "".join(f"{source}\n" for source in sources[100:])
    assert call("translate", "-m", overfitted, "-o", hypothesis, stdin=text.encode()).exit_code == 0
    done = call("score", "-m", overfitted, "--quiet")
    expected = shown_score(call("score", hypothesis, "-r", overfitted / "heldout" / "test.de.gz").stdout)
    assert re.fullmatch(rf"tiny-corpus test, en-de: BLEU {expected} \(100 lines\) {SIGNATURE}\n", done.stdout)
    assert float(expected) > 90
    assert done.stderr == ""


def test_bare_score_takes_a_checkpoint(overfitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It scores the checkpoint's weights on the model's test set, also from within checkpoints/."""
    checkpoint = overfitted / "checkpoints" / "step-000200"
    source, reference = (overfitted / "heldout" / f"test.{language}.gz" for language in ("en", "de"))
    monkeypatch.chdir(checkpoint.parent)
    hypotheses = call("translate", source, "-m", checkpoint).stdout_bytes
    expected = shown_score(call("score", "-", "-r", reference, stdin=hypotheses).stdout)
    assert shown_score(call("score", "-m", checkpoint.name).stdout) == expected


def test_bare_score_needs_a_test_set(overfitted: Path, tmp_path: Path) -> None:
    """A model whose corpus had no test set says how to score files."""
    config = json.loads((overfitted / "config.json").read_text())
    del config["data"]["lines"]["test"], config["data"]["sha256"]["test"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert re.search("no test set.* -r ", refusal(call("score", "-m", tmp_path)))
