"""`nmt translate` on files, pipes and terminals: a line for a line, and nothing else on stdout."""

import gzip
import json
import os
import pty
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import nmt as package
from nmt.data.vocabulary import Vocabulary
from nmt.lines import read_lines
from nmt.translation import files, loading
from nmt.translation.hypothesis import Batch, Hypothesis, SearchOptions, length_penalty
from nmt.translation.translator import WINDOW_LINES, Translator
from tests.conftest import Nmt, call, refusal

B4 = ["One .", "", "Two .", " ", "\t", "\u00a0", "\u200b", "\ufeff", "-", "...", "***", "Three ."]
SEPARATORS = "Good\u2028morning.\nA\x85B\nC\x0bD\nE\x0cF\nG\x1cH\nprice\r list\nlast\n"  # 7 lines


@pytest.fixture(scope="module")
def sources(overfitted: Path) -> list[str]:
    """The 200 sentences that the model has learned."""
    return [line for split in ("valid", "test") for line in read_lines(overfitted / "heldout" / f"{split}.en.gz")]


def translated(model: Path, text: bytes | str, folder: Path, *options: str) -> list[str]:
    """The output lines for a file with this text."""
    file = folder / "input.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = call("translate", file, "-m", model, *options)
    assert done.exit_code == 0, done.stderr
    output = done.stdout_bytes.decode()
    assert not output or output.endswith("\n")
    return output.split("\n")[:-1]


def start(*arguments: str | Path) -> "subprocess.Popen[bytes]":
    """`nmt translate` as a process to talk to."""
    command = [sys.executable, "-m", "nmt", "translate", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


class Shout:
    """Stands in for the model where only the lines count: an engine that repeats its source."""

    def __init__(self, at_limit: bool = False) -> None:
        self.at_limit = at_limit

    def search_all(self, batches: Iterable[Batch], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        return (self.search(batch, options) for batch in batches)

    def search(self, sources: Batch, options: SearchOptions) -> list[list[Hypothesis]]:
        return [[Hypothesis(list(source), -1.0, -1.0, self.at_limit)] for source in sources]


@pytest.fixture
def shout(monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary) -> Shout:
    engine = Shout()
    monkeypatch.setattr(loading, "load_translator", lambda *_: Translator(engine, vocabulary, "en", "de"))
    return engine


# Lines in, lines out.


def test_a_thousand_lines_keep_their_order(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """1,001 lines of mixed length give 1,001 lines, the n-th the translation of the n-th, from a file and from a pipe."""
    lines = [str(n) if n % 10 == 0 else "" if n % 17 == 0 else sources[n * n % 200] for n in range(1_001)]
    alone = dict(zip(sources, translated(overfitted, "\n".join(sources), tmp_path, "--beam", "1"), strict=True))
    text = "".join(line + "\n" for line in lines)
    found = translated(overfitted, text, tmp_path, "--beam", "1")
    assert found == [alone.get(line, line) for line in lines]
    done = call("translate", "-", "-m", overfitted, "--beam", "1", stdin=text.encode())
    assert done.stdout_bytes.decode().split("\n")[:-1] == found


def test_neighbours_do_not_change_a_translation(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """In fp32 each line's text is the same for any batch size and in any order of the lines."""
    strange = ["1.", "Yes.", "-", "Hello world", "zqx vlk jjp", "ho ho ho ho ho ho", " ".join(sources[:4])]
    lines = sources[:25] + strange + ["The dog and the girl " + source for source in sources[:8]]
    expected = translated(overfitted, "\n".join(lines), tmp_path)
    assert len(set(expected)) > 25
    for size in ("1", "60", "1000000"):
        assert translated(overfitted, "\n".join(lines), tmp_path, "--batch-tokens", size) == expected
    order = random.Random(1).sample(range(len(lines)), len(lines))
    shuffled = translated(overfitted, "\n".join(lines[n] for n in order), tmp_path)
    assert shuffled == [expected[n] for n in order]


def test_blank_and_symbol_lines(overfitted: Path, tmp_path: Path) -> None:
    """Twelve lines give twelve: the blank ones stay blank, signs alone are copied, the others are translated."""
    assert len(B4) == 12
    found = translated(overfitted, "\n".join(B4) + "\n", tmp_path)
    assert found[1] == found[3] == found[4] == found[5] == found[6] == found[7] == ""
    assert found[8:11] == ["-", "...", "***"]
    assert all(found[n] for n in (0, 2, 11))


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("\n", 1), ("\n \n\t\n", 3), ("\n\n\nx", 4), ("x\n", 1), ("x", 1)]
)
def test_line_counts(shout: Shout, tmp_path: Path, text: str, count: int) -> None:
    """No lines give no lines and exit 0; a last line without a newline counts; from a file and from a pipe."""
    assert len(translated(tmp_path, text, tmp_path)) == count
    assert call("translate", "-m", tmp_path, stdin=text.encode()).stdout_bytes.count(b"\n") == count


def test_files_from_elsewhere_read_as_clean_ones(overfitted: Path, tmp_path: Path) -> None:
    """A file with a byte order mark, CR LF and tabs, without a last newline, gives what the clean file gives."""
    foreign = b"\xef\xbb\xbfHello world .\r\nGood day .\r\nname\tvalue\r\nlast line"
    clean = b"Hello world .\nGood day .\nname value\nlast line\n"
    found = translated(overfitted, foreign, tmp_path)
    assert found == translated(overfitted, clean, tmp_path)
    assert len(found) == 4


def test_only_lf_ends_a_line(shout: Shout, tmp_path: Path) -> None:
    """Seven lines as `wc -l` counts them give seven, whatever other separators stand inside them, none of them kept."""
    found = translated(tmp_path, SEPARATORS, tmp_path)
    assert found == ["Good morning.", "A B", "C D", "E F", "G H", "price  list", "last"]


def test_several_windows_are_one_text(shout: Shout, tmp_path: Path) -> None:
    """A file of several windows comes out whole and in order, packed or not, by file or by pipe."""
    lines = [f"line {number}" for number in range(2 * WINDOW_LINES + 3)]
    text = "".join(line + "\n" for line in lines)
    assert translated(tmp_path, text, tmp_path) == lines
    (tmp_path / "text.gz").write_bytes(gzip.compress(text.encode()))
    assert call("translate", tmp_path / "text.gz", "-m", tmp_path).stdout_bytes.decode() == text
    assert call("translate", "-m", tmp_path, stdin=text.encode()).stdout_bytes.decode() == text


def test_a_line_too_long_is_translated_in_parts(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """A line over 512 pieces gives one line with the translation of its end, and a warning names its number alone."""
    long = " ".join(sources)
    (tmp_path / "text").write_text(f"{sources[0]}\n\n{long}\n{sources[1]}\n", encoding="utf-8")
    done = call("translate", tmp_path / "text", "-m", overfitted, "--beam", "1", "--no-split", "--quiet")
    found = done.stdout_bytes.decode().split("\n")[:-1]
    assert len(found) == 4
    assert len(found[2]) > 3 * len(found[0])
    warning = next(line for line in done.stderr.split("\n") if "parts" in line)
    assert warning.startswith("warning: ")
    assert warning.endswith("line 3")


def test_a_translation_ended_by_its_limit_is_reported(shout: Shout, tmp_path: Path) -> None:
    """Lines whose translation ran into the length limit are named on stderr, and no other."""
    shout.at_limit = True
    done = call("translate", "-m", tmp_path, stdin=b"one\n\n3\nfour\n")
    assert done.stderr.count("\n") == 1
    assert done.stderr.rstrip().endswith("lines 1, 4")


def test_python_gives_what_the_command_gives(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """`nmt.load(...).translate([...], beam=...)` is the command's translation, for every beam."""
    translator = package.load(str(overfitted))
    lines = [*sources[:10], "", "-", "Hello world"]
    for beam in (1, 4):
        assert translator.translate(lines, beam=beam) == translated(
            overfitted, "\n".join(lines), tmp_path, "--beam", str(beam)
        )


def test_monsters_harm_no_other_line(shout: Shout, tmp_path: Path) -> None:
    """Lines of thousands of words, signs or letters without a space come out in their places, and those cut are named."""
    monsters = ["word " * 5_000, "." * 4_000, "a," * 3_000, "x" * 20_000]
    lines = ["A normal line."] * 50 + monsters + ["Another normal line."] * 50
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines))
    done = call("translate", tmp_path / "in", "-m", tmp_path)
    found = done.stdout_bytes.decode().split("\n")[:-1]
    assert [line.replace(" ", "") for line in found] == [line.replace(" ", "") for line in lines]
    assert found[:50] + found[54:] == lines[:50] + lines[54:]
    assert done.stderr.count("\n") == 1
    assert done.stderr.rstrip().endswith("lines 51, 53, 54")


# Several sentences in a line.

PARAGRAPH = 'Dr. Smith arrived at 3 p.m. on Jan. 5.  He said "Stop!" and left. It cost $3.50. Nobody knew why. The end.'


def test_every_sentence_of_a_line_is_translated(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """A line of five sentences gives what the five give alone, with the white space that stood between them."""
    alone = translated(overfitted, "\n".join(sources[:5]), tmp_path)
    line = "{}  {} {}\u00a0{} {} ".format(*sources[:5])
    assert translated(overfitted, line, tmp_path) == ["{}  {} {}\u00a0{} {} ".format(*alone)]
    translator = package.load(str(overfitted))
    assert translator.translate([line]) == translated(overfitted, line, tmp_path)
    assert translator.source == "en"  # as config.json has it


def test_splitting_can_be_switched_off(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """--no-split, and split=False in Python, give the model the whole line."""
    line = " ".join(sources[:3])
    [whole] = translated(overfitted, line, tmp_path, "--no-split")
    assert [whole] == package.load(str(overfitted)).translate([line], split=False)
    assert [whole] != translated(overfitted, line, tmp_path)


def test_a_paragraph_comes_back_whole(shout: Shout, tmp_path: Path) -> None:
    """Abbreviations, numbers and quotations are no ends, and nothing of the line is lost."""
    searched: list[int] = []
    search = shout.search

    def note(sources: Batch, options: SearchOptions) -> list[list[Hypothesis]]:
        searched.append(len(sources))
        return search(sources, options)

    shout.search = note  # type: ignore[method-assign]
    assert translated(tmp_path, PARAGRAPH + "\n", tmp_path) == [PARAGRAPH]
    assert translated(tmp_path, PARAGRAPH + "\n", tmp_path, "--no-split") == [PARAGRAPH]
    assert searched == [5, 1]


# More than the best translation.


def test_n_best_and_json_tell_the_same(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """Both list the same translations, the best first, and the first is what is written without them."""
    lines = [*sources[:6], "", "-", " ".join(sources[:2]), "Hello world"]
    text = "\n".join(lines)
    plain = translated(overfitted, text, tmp_path)
    table = [row.split("\t") for row in translated(overfitted, text, tmp_path, "--n-best", "3")]
    records = [json.loads(row) for row in translated(overfitted, text, tmp_path, "--n-best", "3", "--format", "json")]
    assert [(record["line"], record["source"]) for record in records] == list(enumerate(lines, 1))
    found = [
        (record["line"], rank, hypothesis)
        for record in records
        for rank, hypothesis in enumerate(record["hypotheses"], 1)
    ]
    assert table == [
        [str(line), str(rank), f"{hypothesis['score']:.4f}", hypothesis["text"]] for line, rank, hypothesis in found
    ]
    assert [record["hypotheses"][0]["text"] for record in records] == plain
    assert [len(record["hypotheses"]) for record in records] == [3, 3, 3, 3, 3, 3, 1, 1, 3, 3]
    for record in records:
        scores = [hypothesis["score"] for hypothesis in record["hypotheses"]]
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis["text"] for hypothesis in record["hypotheses"]}) == len(scores)
    for record in records[:6]:
        for hypothesis in record["hypotheses"]:
            penalty = length_penalty(hypothesis["tokens"], 0.6)
            assert hypothesis["score"] == pytest.approx(hypothesis["log_probability"] / penalty, rel=1e-5)
    for number in (6, 7):
        assert records[number]["hypotheses"][0] | {"text": ""} == {
            "text": "", "score": 0.0, "log_probability": 0.0, "tokens": 0, "flags": []
        }  # fmt: skip
    both = [records[number]["hypotheses"][0] for number in (0, 1)]
    assert records[8]["hypotheses"][0]["score"] == pytest.approx(sum(one["score"] for one in both), abs=1e-4)


def test_details_tell_each_piece_and_each_word(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """Log-probabilities add up to the translation's own, and links stay within a sentence."""
    lines = [f"{one} {other}" for one, other in zip(sources[:20:2], sources[1:20:2], strict=True)]
    plain, detailed = (
        [json.loads(row) for row in translated(overfitted, "\n".join(lines), tmp_path, "--format", "json", *more)]
        for more in ([], ["--details"])
    )
    for line, before, record in zip(lines, plain, detailed, strict=True):
        [one] = record["hypotheses"]
        assert sum(one["log_probabilities"]) == pytest.approx(one["log_probability"], abs=1e-4)
        assert len(one["pieces"]) == len(one["log_probabilities"]) == one["tokens"]
        assert "".join(one["pieces"]).replace("</s>", "").replace("\u2581", " ").strip() == one["text"]
        links = [tuple(map(int, link.split("-"))) for link in one.pop("alignment").split()]
        assert [target for _, target in links] == list(range(len(one["text"].split())))
        middle, target_middle = (
            words.split().index(next(w for w in words.split() if w.endswith("."))) for words in (line, one["text"])
        )
        assert all((i <= middle) == (j <= target_middle) for i, j in links), "a link from one sentence into the other"
        assert max(i for i, _ in links) < len(line.split())
        del one["pieces"], one["log_probabilities"]
        assert record == before


def test_json_holds_the_source_as_it_was_read(shout: Shout, tmp_path: Path) -> None:
    """With its tabs, separators and white space, though the model sees none of them; an object a line, in UTF-8."""
    (tmp_path / "in").write_bytes(" a\tb\u2028c\r \nünd 😀\r\n".encode())
    done = call("translate", tmp_path / "in", "-m", tmp_path, "--format", "json")
    first, second = map(json.loads, done.stdout_bytes.decode().split("\n")[:-1])
    assert (first["source"], first["hypotheses"][0]["text"]) == (" a\tb\u2028c\r ", " a b c  ")
    assert (second["source"], second["hypotheses"][0]["text"]) == ("ünd 😀", "ünd 😀")
    assert "ünd 😀".encode() in done.stdout_bytes


def test_what_is_flagged_in_json_is_counted_on_stderr(shout: Shout, tmp_path: Path) -> None:
    """Cut, ended by the limit, caught in a loop: in JSON with the translation, on stderr once each with the numbers."""
    shout.at_limit = True
    repeat = shout.search

    def loop(sources: Batch, options: SearchOptions) -> list[list[Hypothesis]]:
        found = repeat(sources, options)
        return [[Hypothesis(one.ids * (9 if len(one.ids) < 5 else 1), -1.0, -1.0, True)] for [one] in found]

    shout.search = loop  # type: ignore[method-assign]
    text = "a\n\n" + "".join(f"word{number} " for number in range(600)) + "\na\n"
    done = call("translate", "-m", tmp_path, "--format", "json", stdin=text.encode())
    flags = [json.loads(row)["hypotheses"][0]["flags"] for row in done.stdout_bytes.decode().split("\n")[:-1]]
    assert flags == [["limit", "repetition"], [], ["cut", "limit"], ["limit", "repetition"]]
    warnings = [line.partition(":")[2].rpartition(": ")[::2] for line in done.stderr.rstrip().split("\n")]
    assert [numbers for _, numbers in warnings] == ["line 3", "lines 1, 3, 4", "lines 1, 4"]


def test_a_wider_beam_scores_no_worse_and_is_not_empty(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """By the trained model's own score, beam 4 is at least as good as greedy search on 99% of lines, also strange ones."""
    text = "\n".join([*sources[:80], *(" ".join(reversed(source.split())) for source in sources[:80])])
    found = {}
    for beam in ("1", "4"):
        rows = translated(overfitted, text, tmp_path, "--beam", beam, "--format", "json", "--no-split")
        found[beam] = [json.loads(row)["hypotheses"][0] for row in rows]
        assert all(hypothesis["text"].strip() for hypothesis in found[beam])
    pairs = zip(found["1"], found["4"], strict=True)
    assert sum(wide["score"] >= greedy["score"] - 1e-4 for greedy, wide in pairs) >= 0.99 * 160


# What cannot be read or written.


def test_invalid_utf8_in_a_file_stops_before_any_output(shout: Shout, tmp_path: Path) -> None:
    """A file's UTF-8 is checked first: the line is named, and nothing is written to stdout or to -o."""
    (tmp_path / "bad").write_bytes(b"fine\n" * WINDOW_LINES + b"caf\xe9\n")
    outputs: list[list[str | Path]] = [[], ["-o", tmp_path / "out"]]
    for output in outputs:
        message = refusal(call("translate", tmp_path / "bad", "-m", tmp_path, *output))
        assert f"bad, line {WINDOW_LINES + 1}:" in message
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


def test_invalid_utf8_in_a_pipe_answers_the_lines_before(shout: Shout, tmp_path: Path) -> None:
    """A pipe's lines before the bad one are translated; then exit 2 and a sentence with the line's number."""
    done = call("translate", "-m", tmp_path, stdin=b"one\ntwo\ncaf\xe9\nfour\n")
    assert done.stdout_bytes == b"one\ntwo\n"
    assert done.exit_code == 2
    assert "line 3:" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["missing", "folder", "long name", "below a file", "torn"])
def test_unreadable_input_is_one_sentence(shout: Shout, tmp_path: Path, kind: str) -> None:
    """What is no readable file exits with 2 and names it, before any output."""
    (tmp_path / "file").write_text("text\n")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(os.urandom(1_000))[:-100])
    paths = {
        "missing": tmp_path / "none.txt",
        "folder": tmp_path,
        "long name": Path("A sentence where a file's name belongs. " * 10),
        "below a file": tmp_path / "file" / "text",
        "torn": tmp_path / "torn.gz",
    }
    assert str(paths[kind])[:60] in refusal(call("translate", paths[kind], "-m", tmp_path))


def test_output_is_written_beside_and_renamed(shout: Shout, tmp_path: Path) -> None:
    """-o holds the whole translation afterwards in place of what it held, stdout nothing, the folder nothing more."""
    (tmp_path / "in").write_text("one\ntwo\n")
    (tmp_path / "out").write_text("old\nold\nold\n")
    done = call("translate", tmp_path / "in", "-o", tmp_path / "out", "-m", tmp_path)
    assert (done.exit_code, done.stdout_bytes, done.stderr) == (0, b"", "")
    assert (tmp_path / "out").read_text() == "one\ntwo\n"
    assert call("translate", tmp_path / "in", "-o", "-", "-m", tmp_path).stdout == "one\ntwo\n"
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}


@pytest.mark.parametrize("how", ["itself", "symlink", "hard link"])
def test_output_onto_the_input_is_refused(shout: Shout, tmp_path: Path, how: str) -> None:
    """-o never writes over its input, by whatever name it is called."""
    (tmp_path / "in").write_text("one\n")
    output = tmp_path / ("in" if how == "itself" else "other")
    if how == "symlink":
        output.symlink_to(tmp_path / "in")
    elif how == "hard link":
        output.hardlink_to(tmp_path / "in")
    assert "--output" in refusal(call("translate", tmp_path / "in", "-o", output, "-m", tmp_path))
    assert (tmp_path / "in").read_text() == "one\n"


def test_writing_beside_harms_no_other_file(shout: Shout, tmp_path: Path) -> None:
    """Whatever the file written beside is called, it is not one that was there: the input named `out.part` survives."""
    (tmp_path / "out.part").write_text("one\n")
    done = call("translate", tmp_path / "out.part", "-o", tmp_path / "out", "-m", tmp_path)
    assert (tmp_path / "out.part").read_text() == "one\n"
    assert done.exit_code == 0
    assert (tmp_path / "out").read_text() == "one\n"


def test_a_pipe_as_output_stays_a_pipe(shout: Shout, tmp_path: Path) -> None:
    """-o to what is no plain file (a named pipe, /dev/null) writes into it, and does not put a file in its place."""
    (tmp_path / "in").write_text("one\n")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        assert call("translate", tmp_path / "in", "-o", tmp_path / "pipe", "-m", tmp_path).exit_code == 0
        assert (tmp_path / "pipe").is_fifo()
        assert os.read(reader, 100) == b"one\n"
    finally:
        os.close(reader)


@pytest.mark.parametrize("output", ["none/out", "folder", "in/out"])
def test_output_that_cannot_be_is_refused(shout: Shout, tmp_path: Path, output: str) -> None:
    """An impossible -o is wrong usage: exit 2, a sentence with its name, and nothing left behind."""
    (tmp_path / "in").write_text("one\n")
    (tmp_path / "folder").mkdir()
    assert output in refusal(call("translate", tmp_path / "in", "-o", tmp_path / output, "-m", tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"in", "folder"}


def test_an_error_leaves_the_old_output(shout: Shout, tmp_path: Path) -> None:
    """A pipe that breaks off in bad UTF-8 leaves -o as it was, and nothing beside it."""
    (tmp_path / "out").write_text("old\n")
    refusal(call("translate", "-o", tmp_path / "out", "-m", tmp_path, stdin=b"one\ncaf\xe9\n"))
    assert (tmp_path / "out").read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_that_changes_meanwhile_is_an_error(
    shout: Shout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lines written are not the lines counted, the command fails, and -o does not appear."""
    file = tmp_path / "in"
    file.write_text("a line of text\n" * 20_000)
    search = shout.search_all

    def shrink(batches: Iterable[Batch], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        os.truncate(file, 0)
        return search(batches, options)

    monkeypatch.setattr(shout, "search_all", shrink)
    assert "20,000" in refusal(call("translate", file, "-o", tmp_path / "out", "-m", tmp_path), code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_named_pipe_is_read_as_a_pipe(shout: Shout, tmp_path: Path) -> None:
    """FILE may be a named pipe, as in `nmt translate <(command)`."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("one\ntwo\n",))
    writer.start()
    done = call("translate", tmp_path / "pipe", "-m", tmp_path)
    writer.join()
    assert (done.exit_code, done.stdout_bytes) == (0, b"one\ntwo\n")


def test_a_steady_writer_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that never pauses long enough is still answered: a group does not wait for its window to fill."""
    monkeypatch.setattr(files, "PATIENCE", 60.0)
    monkeypatch.setattr(files, "SOONEST", -1.0)
    answered = threading.Event()

    def stream() -> Iterator[bytes]:
        yield b"one\n"
        assert answered.wait(60)
        yield b"two\n"

    groups = files._arriving(stream(), "-")
    assert next(groups) == ["one"]
    answered.set()
    assert list(groups) == [["two"]]


# As a process among others.


def test_a_co_process_is_answered_line_by_line(overfitted: Path, sources: list[str]) -> None:
    """The first answer comes before the second line is sent; at the end of input the command ends, and said nothing."""
    with start("-m", overfitted) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        answers = []
        for source in (sources[0], "", sources[1]):
            process.stdin.write(source.encode() + b"\n")
            answers.append(process.stdout.readline().decode())
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
        assert process.stdout.read() == b""
    assert answers[1] == "\n"
    assert answers[0] != answers[2]
    assert all(answer.endswith("\n") for answer in answers)


def test_a_reader_that_leaves_ends_it_quietly(overfitted: Path, sources: list[str]) -> None:
    """A co-process whose reader has gone, while its writer has not, ends with 0 and without a word."""
    with start("-m", overfitted) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(sources[0].encode() + b"\n")
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(sources[1].encode() + b"\n")
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_quietly(overfitted: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C and SIGTERM, while it waits for input, end it with 130 and 143, no word, and no half file of -o."""
    with start("-m", overfitted, "-o", tmp_path / "out") as process:
        assert process.stdin
        assert process.stderr
        process.stdin.write(b"Hello.\n")
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert list(tmp_path.iterdir())
        process.send_signal(number)
        assert process.wait(60) == code
        assert process.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []


def test_head_ends_it_quietly(overfitted: Path, tmp_path: Path) -> None:
    """`nmt translate FILE | head -1` exits with 0, and nothing is complained of."""
    (tmp_path / "numbers").write_text("".join(f"{number}\n" for number in range(200_000)))
    command = shlex.join([sys.executable, "-m", "nmt", "translate", "-m", str(overfitted), str(tmp_path / "numbers")])
    done = subprocess.run(["bash", "-o", "pipefail", "-c", f"{command} | head -1"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\n", b"")


def test_a_full_disk_is_one_sentence(overfitted: Path) -> None:
    """Where stdout cannot be written any more, the command says so and exits with 1, without a traceback."""
    command = shlex.join([sys.executable, "-m", "nmt", "translate", "-m", str(overfitted)])
    done = subprocess.run(["bash", "-c", f"echo 1 | {command} > /dev/full"], capture_output=True, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"No space left" in done.stderr


def test_errors_never_reach_stdout(tmp_path: Path) -> None:
    """Even where stderr is closed, a failing command leaves stdout empty."""
    command = shlex.join([sys.executable, "-m", "nmt", "translate", str(tmp_path / "missing")])
    done = subprocess.run(["bash", "-c", f"{command} 2>&-"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_closed_standard_input_is_one_sentence(overfitted: Path) -> None:
    """Where the caller has closed stdin, the command says so and exits with 2."""
    command = shlex.join([sys.executable, "-m", "nmt", "translate", "-m", str(overfitted)])
    done = subprocess.run(["bash", "-c", f"{command} <&-"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


def test_a_terminal_gets_a_hint(overfitted: Path, sources: list[str]) -> None:
    """On a terminal without FILE, stderr says that input is awaited, a line is answered at once, and Ctrl-D ends it."""
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "nmt", "translate", "-m", str(overfitted)]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(terminal)
        assert process.stdout
        assert process.stderr
        assert b"Ctrl-D" in process.stderr.readline()
        os.write(master, sources[0].encode() + b"\n")
        assert process.stdout.readline().strip()
        os.write(master, b"\x04")
        assert process.wait(60) == 0
    os.close(master)


def on_a_terminal(*arguments: str | Path, output: bool) -> tuple[str, bytes]:
    """What `nmt translate` shows on a terminal that is its stderr (and, with `output`, its stdout), and its stdout."""
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "nmt", "translate", *map(str, arguments)]
    stdout = terminal if output else subprocess.PIPE
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(
        command, stdout=stdout, stderr=terminal, stdin=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while chunk := os.read(master, 10_000):
                shown += chunk
        except OSError:  # the other side is closed
            pass
        written = b"" if output or not process.stdout else process.stdout.read()
        assert process.wait(60) == 0
    os.close(master)
    return shown.decode(), written


def test_a_terminal_is_shown_the_speed(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """A file's bar and last line tell it, but not where the translation goes to the same terminal."""
    (tmp_path / "in").write_text("".join(source + "\n" for source in sources))
    words: list[str | Path] = ["-m", overfitted, "--beam", "1", tmp_path / "in"]
    shown, written = on_a_terminal(*words, output=False)
    assert re.search(r"\x1b.*translating.* \d+ sentences/s, .* left", shown)
    assert re.search(r"200 lines in .*, \d+ sentences/s", shown)
    assert written.count(b"\n") == 200
    mixed, _ = on_a_terminal(*words, output=True)
    assert mixed.replace("\r\n", "\n").encode().startswith(written)
    assert "\x1b" not in mixed
    assert "sentences/s" not in mixed


def test_text_is_utf8_whatever_the_locale(nmt: Nmt, overfitted: Path, sources: list[str]) -> None:
    """Output is UTF-8 under a locale and an I/O encoding that are not, and stderr stays empty."""
    lines = "".join(source + "\n" for source in sources[:20]) + "→ 1 €\n"
    plain = call("translate", "-m", overfitted, stdin=lines.encode()).stdout_bytes
    odd = nmt(
        "translate", "-m", overfitted, stdin=lines.encode(), LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="latin-1"
    )
    assert (odd.returncode, odd.stdout, odd.stderr) == (0, plain, b"")
    assert plain.endswith("→ 1 €\n".encode())
    assert any(byte > 0x7F for byte in plain[:-10])
