"""`nmt score`: the numbers of sacreBLEU's own command, and never a number where there should be none."""

import gzip
import json
import os
import re
import subprocess
import sys
from itertools import count, dropwhile, islice
from pathlib import Path
from typing import Any

import pytest

from nmt.data.corpus import demo_folder
from nmt.lines import read_lines
from nmt.model_directory import ModelDirectory
from tests.conftest import Nmt, call, refusal

SIGNATURE = re.compile(r"nrefs:\d\|case:\w+\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+")

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
    """Files of these names and contents, in order."""
    for name, text in texts.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return [folder / name for name in texts]


def damaged(every: int, place: int = 0) -> str:
    """The text without one word, at this place, of every so many."""
    numbers = count(1)
    lines = [[word for word in line.split() if next(numbers) % every != place] for line in LINES]
    return "".join(" ".join(words) + "\n" for words in lines)


def sacrebleu_text(*arguments: str | Path) -> str:
    """What the `sacrebleu` command prints with these arguments, to four digits."""
    command = [sys.executable, "-m", "sacrebleu", *map(str, arguments)]
    width = [] if "-w" in arguments else ["-w", "4"]
    return subprocess.run([*command, *width], capture_output=True, check=True, encoding="utf-8").stdout


def sacrebleu(*arguments: str | Path) -> list[dict[str, Any]]:
    """The `sacrebleu` command's BLEU, chrF and TER of one system, each an object."""
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
    """Score and signature are those of the `sacrebleu` command on the same files, to six digits, for every metric."""
    hypothesis, *paths = write(tmp_path, hyp=HYPOTHESES[name], ref=REFERENCE, other=OTHER)[: 1 + references]
    theirs = sacrebleu(*paths, "-i", hypothesis, *(["-lc", "--chrf-lowercase"] if options else []))
    named = [word for path in paths for word in ("-r", path)]
    done = call("score", hypothesis, *named, "--metric", "all", "--format", "json", *options)
    assert (done.exit_code, done.stderr) == (0, "")
    ours = json.loads(done.stdout)
    assert [(one["metric"], f"{one['score']:.6f}", one["signature"]) for one in ours] == [
        (one["name"], f"{one['score']:.6f}", one["signature"]) for one in theirs
    ]
    assert {(one["lines"], one["references"]) for one in ours} == {(3, references)}
    assert f"BLEU {theirs[0]['score']:.2f} (3 lines) {theirs[0]['signature']}\n" in (
        call("score", hypothesis, *named, *options).stdout_bytes.decode()
    )
    assert f"nrefs:{references}|" in theirs[0]["signature"]


def test_confidence_equals_the_sacrebleu_command(tmp_path: Path) -> None:
    """Mean and interval of one system are sacreBLEU's own to four digits, for every metric, beside the plain score."""
    hypothesis, reference = write(tmp_path, hyp=damaged(7), ref=TEXT)
    theirs = sacrebleu(reference, "-i", hypothesis, "--confidence")
    ours = scores(hypothesis, "-r", reference, "--metric", "all", "--confidence")
    assert [
        (one["metric"], one["signature"], f"{one['confidence']['mean']:.4f}", f"{one['confidence']['interval']:.4f}")
        for one in ours
    ] == [
        (one["name"], one["signature"], f"{one['confidence_mean']:.4f}", f"{one['confidence_var']:.4f}")
        for one in theirs
    ]
    assert all("|bs:1000|seed:12345|" in one["signature"] for one in ours)
    plain = scores(hypothesis, "-r", reference, "--metric", "all")
    assert [one["score"] for one in ours] == [one["score"] for one in plain]
    [line] = call("score", hypothesis, "-r", reference, "--confidence").stdout.splitlines()
    mean, interval = (f"{theirs[0][key]:.2f}" for key in ("confidence_mean", "confidence_var"))
    assert (
        f"BLEU {theirs[0]['score']:.2f} (60 lines; 95% interval {mean} ± {interval}) {theirs[0]['signature']}" in line
    )


def test_significance_equals_the_sacrebleu_command(tmp_path: Path) -> None:
    """Of two systems, scores, means, intervals and p-value are those of sacreBLEU's paired bootstrap, digit by digit."""
    first, second, reference = write(tmp_path, first=damaged(7), second=damaged(7, 3), ref=TEXT)
    table = sacrebleu_text(
        reference, "-i", first, second, "--paired-bs", "-m", "bleu", "chrf", "ter", "-f", "text", "-nc"
    )
    theirs = re.findall(r"(\d+\.\d+) \((\d+\.\d+) ± (\d+\.\d+)\)", table)
    p_values = re.findall(r"\(p = (\d\.\d{4})\)", table)
    ours = scores(first, second, "-r", reference, "--metric", "all", "--confidence")
    numbers = [(one["score"], one["confidence"]["mean"], one["confidence"]["interval"]) for one in ours]
    assert [tuple(f"{number:.4f}" for number in row) for row in numbers] == theirs
    assert [one["p_value"] for one in ours[:3]] == [None] * 3
    assert [f"{one['p_value']:.4f}" for one in ours[3:]] == p_values
    assert all(0.001 < float(p_value) < 1 for p_value in p_values), p_values  # or nothing would be compared
    assert {one["baseline"] for one in ours} == {str(first)}
    assert [(one["system"], one["metric"]) for one in ours] == [
        (str(path), metric) for path in (first, second) for metric in ("BLEU", "chrF2", "TER")
    ]
    assert all(f" {one['signature']}\n" in table for one in ours)
    plain = scores(first, second, "-r", reference, "--metric", "all")
    assert [one["score"] for one in ours] == [one["score"] for one in plain]


def test_equal_systems_do_not_differ(tmp_path: Path) -> None:
    """Two files of one text differ with p = 1, where sacreBLEU's own count would call them different with 0.001."""
    first, second, reference = write(tmp_path, first=damaged(7), second=damaged(7), ref=TEXT)
    assert scores(first, second, "-r", reference, "--confidence")[1]["p_value"] == 1.0
    assert call("score", first, second, "-r", reference, "--confidence").stdout.splitlines()[4].endswith(" 1.0000")


def test_every_hypothesis_gets_a_row(tmp_path: Path) -> None:
    """Several systems make a table: a row each, in order, with the score it has alone, and the signature below."""
    close, loose, reference = write(tmp_path, close=HYPOTHESES["close"], loose=HYPOTHESES["loose"], ref=REFERENCE)
    done = call("score", close, loose, "-r", reference)
    title, _, header, *rows, _, signature = done.stdout.splitlines()
    assert title == "against ref (3 lines)"
    assert header.split() == ["BLEU"]
    assert [row.split() for row in rows] == [
        [str(path), shown_score(call("score", path, "-r", reference).stdout)] for path in (close, loose)
    ]
    assert re.fullmatch(f"BLEU  {SIGNATURE.pattern}", signature)
    assert done.stderr == ""


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    """Two rows of one name could not be told apart."""
    hypothesis, reference = write(tmp_path, hyp=REFERENCE, ref=REFERENCE)
    assert str(hypothesis) in refusal(call("score", hypothesis, hypothesis, "-r", reference))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metric", "meteor"], ["--metric", "bleu, chrf, ter, all or paper"]),
        (["--metric", "BLEU"], ["--metric", "bleu, chrf, ter, all or paper"]),
        (["--format", "xml"], ["--format", "text or json"]),
        (["--examples", "-1"], ["--examples", "at least 0"]),
        (["--examples", "2", "--format", "json"], ["--examples", "--format json"]),
        (["--examples", "2", "--sentences"], ["--examples", "--sentences"]),
        (["--sentences", "--confidence"], ["--sentences", "--confidence"]),
        (["--sentences", "--metric", "paper"], ["--sentences", "--metric bleu"]),
        (["--examples", "2", "--metric", "paper"], ["--examples", "--metric bleu"]),
    ],
)
def test_options_that_cannot_be_are_refused(options: list[str], words: list[str], tmp_path: Path) -> None:
    """Values that are none, and options that do not go together, are one sentence with the way out."""
    hypothesis, reference = write(tmp_path, **{"hyp": REFERENCE, "ref.de": REFERENCE})
    message = refusal(call("score", hypothesis, "-r", reference, *options))
    assert all(word in message for word in words)


def test_reads_the_hypothesis_from_stdin(tmp_path: Path) -> None:
    """`-` scores standard input as the file would be; twice is refused."""
    hypothesis, reference = write(tmp_path, hyp=HYPOTHESES["loose"], ref=REFERENCE)
    piped = call("score", "-", "-r", reference, stdin=hypothesis.read_bytes())
    assert shown_score(piped.stdout) == shown_score(call("score", hypothesis, "-r", reference).stdout)
    assert "standard input" in refusal(call("score", "-", "-", "-r", reference, stdin=b"x\n"))


@pytest.mark.parametrize(
    ("hypothesis", "references", "counts"),
    [
        ("a\nb\n", ["a\n"], ("2", "1")),
        ("a b c d e\nf g h i j\n", ["a b c d e\nf g h i j\nk l m n o\n"], ("2", "3")),
        ("a\nb\n", ["a\nb\n", "a\n"], ("2", "1")),
        ("a\nb\n", ["a\nb\n", "a\nb\nc\n"], ("2", "3")),
        ("", ["a\n"], ("0", "1")),
        ("a\n", [""], ("1", "0")),
        ("a\n" * 1_234, ["a\n" * 3_004], ("1,234", "3,004")),
        ("a\n\n", ["a"], ("2", "1")),
    ],
)
def test_mismatched_lengths_are_never_scored(
    hypothesis: str, references: list[str], counts: tuple[str, str], tmp_path: Path
) -> None:
    """Files that do not line up exit with 2, both names and both counts, whichever is shorter, also from stdin."""
    paths = write(tmp_path, hyp=hypothesis, **{f"ref{number}": text for number, text in enumerate(references)})
    options = [word for path in paths[1:] for word in ("-r", str(path))]
    message = refusal(call("score", paths[0], *options))
    assert all(re.search(rf"\b{count}\b", message) for count in counts)
    assert str(paths[0]) in message
    assert str(paths[-1]) in message
    assert "standard input" in refusal(call("score", "-", *options, stdin=hypothesis.encode()))


def test_one_bad_file_of_many_gives_no_score_at_all(tmp_path: Path) -> None:
    """Where the second hypothesis does not line up, the first one's score is not printed either."""
    good, bad, reference = write(tmp_path, good=REFERENCE, bad="x\n", ref=REFERENCE)
    assert "bad" in refusal(call("score", good, bad, "-r", reference))


def test_empty_files_are_an_error_with_their_name(tmp_path: Path) -> None:
    """Nothing to score is no score of 0 or 100 but an error that names the file."""
    hypothesis, reference = write(tmp_path, empty="", ref="")
    assert str(hypothesis) in refusal(call("score", hypothesis, "-r", reference))


def test_foreign_line_ends_change_no_score(tmp_path: Path) -> None:
    """A byte order mark, CR LF and a missing last newline, on either side, packed or not, give the clean score."""
    clean, reference = write(tmp_path, clean=HYPOTHESES["loose"], ref=REFERENCE)
    dressed = b"\xef\xbb\xbf" + HYPOTHESES["loose"].replace("\n", "\r\n").encode()
    other = b"\xef\xbb\xbf" + REFERENCE.rstrip("\n").replace("\n", "\r\n").encode()
    foreign, foreign_reference = write(tmp_path, foreign=dressed, foreign_ref=other)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(dressed))
    expected = shown_score(call("score", clean, "-r", reference).stdout)
    for hypothesis in (foreign, tmp_path / "packed.gz"):
        assert shown_score(call("score", hypothesis, "-r", foreign_reference).stdout) == expected


@pytest.mark.parametrize("bad", ["hyp", "ref"])
def test_invalid_utf8_names_file_and_line(bad: str, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, on either side, are an error with the file and the line."""
    texts = {"hyp": b"one\ntwo\n", "ref": b"one\ntwo\n"} | {bad: b"one\ncaf\xe9\n"}
    hypothesis, reference = write(tmp_path, **texts)
    assert f"{tmp_path / bad}, line 2:" in refusal(call("score", hypothesis, "-r", reference))


def test_bare_it_scores_the_held_out_test_set(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """Without files, the model's test set is translated and scored: what translate and score give on the same text.

    A model trained on 200 pairs knows the hundred of them by heart, and does not answer all alike.
    """
    reference = overfitted / "heldout" / "test.de.gz"
    hypothesis = tmp_path / "hyp"
    text = "".join(f"{source}\n" for source in sources[100:])
    assert call("translate", "-m", overfitted, "-o", hypothesis, stdin=text.encode()).exit_code == 0
    done = call("score", "-m", overfitted, "--quiet")
    assert shown_score(done.stdout) == shown_score(call("score", hypothesis, "-r", reference).stdout)
    assert float(shown_score(done.stdout)) > 90
    assert len({*hypothesis.read_text(encoding="utf-8").splitlines()}) > 75
    assert re.fullmatch(rf"tiny-corpus test, en-de: BLEU \d+\.\d\d \(100 lines\) {SIGNATURE.pattern}\n", done.stdout)
    assert done.stderr == ""


def test_bare_score_takes_a_checkpoint(overfitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint folder as the model scores its weights on its model's test set, also where its path is one name."""
    checkpoint = overfitted / "checkpoints" / "step-000200"
    source, reference = (overfitted / "heldout" / f"test.{language}.gz" for language in ("en", "de"))
    monkeypatch.chdir(checkpoint.parent)
    hypotheses = call("translate", source, "-m", checkpoint).stdout_bytes
    expected = shown_score(call("score", "-", "-r", reference, stdin=hypotheses).stdout)
    assert shown_score(call("score", "-m", checkpoint.name).stdout) == expected


def test_bare_it_takes_all_options(overfitted: Path, sources: list[str]) -> None:
    """Several metrics of the model's own test set, as JSON, or as a table and examples with their source."""
    found = scores("-m", overfitted, "--metric", "all")
    assert [(one["system"], one["metric"], one["lines"]) for one in found] == [
        (str(overfitted), metric, 100) for metric in ("BLEU", "chrF2", "TER")
    ]
    lines = call("score", "-m", overfitted, "--metric", "all", "--examples", "1").stdout.splitlines()
    assert lines[0] == "tiny-corpus test, en-de (100 lines)"
    assert lines[3].split() == [str(overfitted), *(f"{one['score']:.2f}" for one in found)]
    worst = [*dropwhile(lambda line: not line.startswith("line "), lines)]
    assert [line.split()[0] for line in worst[:4]] == ["line", "source", "reference", "hypothesis"]
    number = int(worst[0].split()[1].rstrip(","))
    reference = [*read_lines(overfitted / "heldout" / "test.de.gz")][number - 1]
    assert worst[1:3] == [f"  source      {sources[99 + number]}", f"  reference   {reference}"]


def test_bare_score_needs_a_test_set(overfitted: Path, tmp_path: Path) -> None:
    """A model whose corpus had no test set says so, and how to score files."""
    heldout = {path.name: path.read_bytes() for path in (overfitted / "heldout").iterdir() if "valid" in path.name}
    directory = ModelDirectory(tmp_path / "model")
    directory.heldout.mkdir(parents=True)
    for name, content in heldout.items():
        (directory.heldout / name).write_bytes(content)
    for name in ("tokenizer.model", "model.safetensors"):
        (directory.path / name).symlink_to(overfitted / name)
    config = json.loads((overfitted / "config.json").read_text())
    del config["data"]["lines"]["test"], config["data"]["sha256"]["test"]
    directory.write_config(config)
    message = refusal(call("score", "-m", directory.path))
    assert "no test set" in message
    assert "-r" in message


@pytest.mark.parametrize("seed", ["0", "-1", "x", "1.5", "none"])
def test_a_seed_that_is_none_is_refused(seed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sacreBLEU would take 0 for no seed under a signature that says seed:0, and ends others with a traceback."""
    [path] = write(tmp_path, ref=REFERENCE)
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    assert f"SACREBLEU_SEED={seed}" in refusal(call("score", path, "-r", path, "--confidence"))
    assert call("score", path, "-r", path).exit_code == 0


def test_output_is_well_formed_whatever_a_file_is_called(nmt: Nmt, tmp_path: Path) -> None:
    """Where the name is no UTF-8 or breaks the line JSON is valid; text stays on its line, and on a stdout of ASCII too."""
    name = os.fsdecode("prüf→".encode() + b"\xff\n\x1b[31m.de")
    [path] = write(tmp_path, **{name: REFERENCE})
    for options in ([], ["--sentences"]):
        done = nmt("score", path, "-r", path, "--format", "json", *options)
        assert done.returncode == 0, done.stderr
        objects = [json.loads(line) for line in done.stdout.decode("utf-8").split("\n")[:-1]]
        assert str(path) in (objects[0]["system"] if options else objects[0][0]["system"])
    shown = nmt("score", path, "-r", path, PYTHONUTF8="0", PYTHONIOENCODING="ascii").stdout
    assert "prüf→".encode() in shown
    assert shown.count(b"\n") == 1
    assert b"\x1b" not in shown


def test_a_sentence_is_one_line_of_json(tmp_path: Path) -> None:
    """Also for readers who end a line at U+2028 or U+0085."""
    [path] = write(tmp_path, ref="one\u2028two\nthree\x85four\x0bfive\n")
    lines = call("score", path, "-r", path, "--sentences").stdout_bytes.decode().splitlines()
    assert [json.loads(line)["hypothesis"] for line in lines] == ["one\u2028two", "three\x85four\x0bfive"]
