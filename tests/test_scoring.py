"""`nmt score`: the numbers of sacreBLEU's own command, and never a number where there should be none."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nmt import scoring
from nmt.errors import UsageError
from nmt.lines import read_lines
from nmt.model_directory import ModelDirectory
from tests.conftest import Nmt, call, refusal

SIGNATURE = re.compile(r"nrefs:\d\|case:\w+\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+")

REFERENCE = "Das Haus ist alt.\nEr sagte: „Halt!“ und ging um 15.30 Uhr.\nDer Hund schläft unter dem Tisch.\n"
OTHER = "Das Haus ist sehr alt.\nEr sagte „Halt“ und ging halb vier.\nUnter dem Tisch schläft der Hund.\n"
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


def shown_score(output: str) -> str:
    """The two-decimal score in the one line of output."""
    [line] = output.splitlines()
    [score] = re.findall(r"BLEU (\d+\.\d\d) ", line)
    return str(score)


@pytest.mark.parametrize("options", [[], ["--lowercase"]])
@pytest.mark.parametrize("references", [1, 2])
@pytest.mark.parametrize("name", HYPOTHESES)
def test_equals_the_sacrebleu_command(name: str, references: int, options: list[str], tmp_path: Path) -> None:
    """Score and signature are those of the `sacrebleu` command on the same files, to its last shown digit."""
    hypothesis, *paths = write(tmp_path, hyp=HYPOTHESES[name], ref=REFERENCE, other=OTHER)[: 1 + references]
    flags = ["-lc"] if options else []
    command = [sys.executable, "-m", "sacrebleu", *map(str, paths), "-i", str(hypothesis), "-w", "2", *flags]
    theirs = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    ours = call("score", hypothesis, *(word for path in paths for word in ("-r", path)), *options)
    assert ours.exit_code == 0
    assert ours.stderr == ""
    assert f"BLEU {theirs['score']:.2f} (3 lines) {theirs['signature']}\n" in ours.stdout_bytes.decode()
    assert f"nrefs:{references}|" in ours.stdout


def test_case_counts_unless_told_otherwise(tmp_path: Path) -> None:
    """--lowercase, and it alone, takes an upper-case text for the reference."""
    hypothesis, reference = write(tmp_path, hyp=REFERENCE.upper(), ref=REFERENCE)
    assert float(shown_score(call("score", hypothesis, "-r", reference).stdout)) < 20
    assert shown_score(call("score", hypothesis, "-r", reference, "--lowercase").stdout) == "100.00"


def test_every_hypothesis_gets_a_line(tmp_path: Path) -> None:
    """Several systems give one line each, in order, with file, reference, line count and signature; stderr is empty."""
    close, loose, reference = write(tmp_path, close=HYPOTHESES["close"], loose=HYPOTHESES["loose"], ref=REFERENCE)
    done = call("score", close, loose, "-r", reference)
    lines = done.stdout.splitlines()
    assert [line.split(" against ")[0] for line in lines] == [str(close), str(loose)]
    assert all("ref: BLEU " in line and "(3 lines)" in line and SIGNATURE.search(line) for line in lines)
    assert lines[1].split("BLEU")[1] == call("score", loose, "-r", reference).stdout.rstrip("\n").split("BLEU")[1]
    assert done.stderr == ""


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


@pytest.mark.parametrize("wrong", [["a b c"], ["a b c", "d e f", "g h i"]])
def test_the_function_counts_too(wrong: list[str]) -> None:
    """`scoring.bleu`, which validation uses, refuses what sacreBLEU's Python interface would score with 100."""
    with pytest.raises(UsageError, match=str(len(wrong))):
        scoring.bleu(["a b c", "d e f"], [wrong])
    with pytest.raises(UsageError, match="reference 2"):
        scoring.bleu(["a b c", "d e f"], [["a b c", "d e f"], wrong])


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


def test_lines_are_counted_by_lf_alone(tmp_path: Path) -> None:
    """A text with other separators inside its lines scores 100 against itself, with the line count of `wc -l`."""
    text = "Guten\u2028Morgen ihr alle.\nA\x85B C D\nC\x0bD E F\nE\x0cF G H\nG\x1cH I J\nprice\r list is long\nlast\n"
    hypothesis, reference = write(tmp_path, hyp=text, ref=text)
    output = call("score", hypothesis, "-r", reference).stdout_bytes.decode()
    assert "BLEU 100.00 (7 lines)" in output
    assert "has 7 lines" in refusal(call("score", hypothesis, "-r", write(tmp_path, short="x\n")[0]))


@pytest.mark.parametrize("bad", ["hyp", "ref"])
def test_invalid_utf8_names_file_and_line(bad: str, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, on either side, are an error with the file and the line."""
    texts = {"hyp": b"one\ntwo\n", "ref": b"one\ntwo\n"} | {bad: b"one\ncaf\xe9\n"}
    hypothesis, reference = write(tmp_path, **texts)
    assert f"{tmp_path / bad}, line 2:" in refusal(call("score", hypothesis, "-r", reference))


def test_bare_it_scores_the_held_out_test_set(overfitted: Path, tmp_path: Path) -> None:
    """Without files, the model's test set is translated and scored: what translate and score give on the same text."""
    source, reference = (list(read_lines(overfitted / "heldout" / f"test.{language}.gz")) for language in ("en", "de"))
    hypotheses, references = write(tmp_path, hyp="", ref="\n".join(reference) + "\n")
    translation = call("translate", "-m", overfitted, "-o", hypotheses, stdin=("\n".join(source) + "\n").encode())
    assert translation.exit_code == 0
    done = call("score", "-m", overfitted)
    assert shown_score(done.stdout) == shown_score(call("score", hypotheses, "-r", references).stdout)
    assert done.stdout.startswith("tiny-corpus test, en-de: BLEU ")
    assert "(100 lines)" in done.stdout
    assert SIGNATURE.search(done.stdout)
    assert call("score", "-m", overfitted, "--quiet").stderr == ""


def test_two_hundred_pairs_are_learned_by_heart(overfitted: Path) -> None:
    """A model trained on 200 pairs scores over 90 on a hundred of them, and does not answer 20 sources alike."""
    assert float(shown_score(call("score", "-m", overfitted).stdout)) > 90
    sources = list(read_lines(overfitted / "heldout" / "test.en.gz"))[:20]
    output = call("translate", "-m", overfitted, stdin="\n".join(sources).encode()).stdout_bytes
    assert len(set(output.split(b"\n"))) > 15


@pytest.mark.parametrize("update", [200, 400])
def test_a_checkpoint_scores_what_was_logged_for_it(overfitted: Path, tmp_path: Path, update: int) -> None:
    """`translate | score` with a checkpoint folder as the model gives the validation BLEU in metrics.jsonl."""
    events = map(json.loads, read_lines(overfitted / "metrics.jsonl"))
    [logged] = [event for event in events if event["step"] == update and "bleu" in event]
    checkpoint = overfitted / "checkpoints" / f"step-{update:06d}"
    heldout = overfitted / "heldout"
    translation = call("translate", heldout / "valid.en.gz", "-m", checkpoint)
    done = call("score", "-", "-r", heldout / "valid.de.gz", stdin=translation.stdout_bytes)
    assert shown_score(done.stdout) == f"{logged['bleu']:.2f}"
    assert logged["signature"] in done.stdout
    assert (logged["lines"], logged["beam"]) == (100, 4)
    assert "(100 lines)" in done.stdout


def test_bare_score_takes_a_checkpoint(overfitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint folder as the model scores its weights on its model's test set, also where its path is one name."""
    checkpoint = overfitted / "checkpoints" / "step-000200"
    source, reference = (overfitted / "heldout" / f"test.{language}.gz" for language in ("en", "de"))
    hypotheses = call("translate", source, "-m", checkpoint).stdout_bytes
    expected = shown_score(call("score", "-", "-r", reference, stdin=hypotheses).stdout)
    assert shown_score(call("score", "-m", checkpoint).stdout) == expected
    monkeypatch.chdir(checkpoint.parent)
    assert shown_score(call("score", "-m", checkpoint.name).stdout) == expected


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


def test_a_file_name_that_stdout_cannot_spell(nmt: Nmt, tmp_path: Path) -> None:
    """Under an I/O encoding without the signs in a file's name, the score is printed all the same."""
    [path] = write(tmp_path, **{"prüf→.de": REFERENCE})
    done = nmt("score", path, "-r", path, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert b"BLEU 100.00" in done.stdout
