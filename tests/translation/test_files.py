"""`nmt translate` on files and pipes: a line for a line, nothing else on stdout, and what cannot be read or written.

The engine repeats its source; what a model makes of it is the subject of other tests.
"""

import gzip
import json
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from nmt.data.vocabulary import Vocabulary
from nmt.translation import arriving, loading
from nmt.translation.hypothesis import Hypothesis, SearchOptions, Sources
from nmt.translation.translator import WINDOW_LINES, Translator
from tests.conftest import call, refusal
from tests.translation.test_translator import Echo


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary) -> Echo:
    """The engine, whatever -m names."""
    engine = Echo()
    monkeypatch.setattr(loading, "load_translator", lambda *_: Translator(engine, vocabulary, "en", "de"))
    return engine


def translated(text: str, folder: Path, *options: str) -> str:
    """The output for a file with this text."""
    (folder / "text").write_text(text, encoding="utf-8")
    done = call("translate", folder / "text", *options)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout_bytes.decode()


# Lines in, lines out.


@pytest.mark.parametrize("text", ["", "\n", "\n \n\t\n", "\n\n\nx", "x\n", "x"])
def test_as_many_lines_come_out_as_went_in(tmp_path: Path, text: str) -> None:
    """No lines give no lines and exit 0; a last line without a newline counts; from a file and from a pipe."""
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []
    expected = "".join(f"{line}\n" for line in lines)
    assert translated(text, tmp_path) == expected
    assert call("translate", stdin=text.encode()).stdout == expected


def test_several_windows_are_one_text(tmp_path: Path) -> None:
    """A file of several windows comes out whole and in order, packed or not, by file or by pipe."""
    text = "".join(f"line {number}\n" for number in range(2 * WINDOW_LINES + 3))
    assert translated(text, tmp_path) == text
    (tmp_path / "text.gz").write_bytes(gzip.compress(text.encode()))
    assert call("translate", tmp_path / "text.gz").stdout == text
    assert call("translate", stdin=text.encode()).stdout == text


@pytest.mark.parametrize("form", ["NFC", "NFD", ""])
def test_text_in_another_form_than_the_models_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, echo: Echo, vocabulary: Vocabulary, form: str
) -> None:
    """N14: with the way out, from a file of several windows and from a pipe, and not a character is changed."""
    monkeypatch.setattr(loading, "load_translator", lambda *_: Translator(echo, vocabulary, "en", "de", form=form))
    (tmp_path / "text").write_text(text := "Zu\u0308rich lies by a lake.\n" * (2 * WINDOW_LINES))
    for done, name in (
        (call("translate", tmp_path / "text"), tmp_path / "text"),
        (call("translate", stdin=text.encode()), ""),
    ):
        told = f"warning: {name or 'standard input'}: text in decomposed Unicode (NFD), where the model was trained on "
        assert done.stdout == text
        assert (done.stderr.count("\n"), done.stderr.startswith(told)) == ((1, True) if form == "NFC" else (0, False))
        assert form != "NFC" or done.stderr.endswith("`uconv -x nfc`\n")


def test_a_paragraph_comes_back_whole(echo: Echo, tmp_path: Path) -> None:
    """Abbreviations, numbers and quotations are no ends, and nothing of the line is lost; with --no-split it has none."""
    text = (
        'Dr. Smith arrived at 3 p.m. on Jan. 5.  He said "Stop!" and left. It cost $3.50. Nobody knew why. The end.\n'
    )
    assert translated(text, tmp_path) == translated(text, tmp_path, "--no-split") == text
    assert [len(batch) for batch in echo.batches] == [5, 1]


def test_a_language_without_rules_is_named(monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary) -> None:
    """N15: once, where a line was cut by the rules of another, and to nobody who asked for quiet."""
    for source, line, told in (("sv", b"En. Och en till.\n" * 2, 1), ("sv", b"En.\n", 0), ("deu", b"Eins. Zwei.\n", 0)):
        monkeypatch.setattr(
            loading, "load_translator", lambda *_, source=source: Translator(Echo(), vocabulary, source, "en")
        )
        assert (
            call("translate", stdin=line).stderr.count("sentences of sv were told apart by the rules of another")
            == told
        )
        assert call("translate", "--quiet", stdin=line).stderr == ""
        assert call("translate", "--no-split", stdin=line).stderr == ""


def test_json_holds_the_source_as_it_was_read(tmp_path: Path) -> None:
    """With its tabs, separators and white space, though the model sees none of them; an object a line, in UTF-8."""
    output = translated(" a\tb\u2028c\r \nünd 😀\n", tmp_path, "--format", "json")
    first, second = map(json.loads, output.split("\n")[:-1])
    assert (first["source"], first["hypotheses"][0]["text"]) == (" a\tb\u2028c\r ", " a b c  ")
    assert (second["source"], second["hypotheses"][0]["text"]) == ("ünd 😀", "ünd 😀")
    assert "ünd 😀" in output


def test_what_is_flagged_in_json_is_counted_on_stderr(echo: Echo, vocabulary: Vocabulary) -> None:
    """Cut, ended by the limit, caught in a loop, other numbers: in JSON with the translation, on stderr once each, though it
    be quiet (F3)."""
    echo.at_limit, echo.answer = True, 9 * vocabulary.encode("a")
    text = "a\n\n" + "".join(f"word{number} " for number in range(600)) + "\n" + 9 * "a " + "\n"
    done = call("translate", "--format", "json", "--quiet", stdin=text.encode())
    flags = [json.loads(row)["hypotheses"][0]["flags"] for row in done.stdout.split("\n")[:-1]]
    assert flags == [["limit", "repetition"], [], ["cut", "limit", "repetition", "numbers"], ["limit"]]
    warnings = [line.partition(":")[2].rpartition(": ")[::2] for line in done.stderr.rstrip().split("\n")]
    assert [numbers for _, numbers in warnings] == ["line 3", "lines 1, 3, 4", "lines 1, 3", "line 3"]


# What cannot be read or written.


def test_invalid_utf8_in_a_file_stops_before_any_output(tmp_path: Path) -> None:
    """A file's UTF-8 is checked first: the line is named, and nothing is written to stdout or to -o."""
    (tmp_path / "bad").write_bytes(b"fine\n" * WINDOW_LINES + b"caf\xe9\n")
    outputs: list[list[str | Path]] = [[], ["-o", tmp_path / "out"]]
    for output in outputs:
        message = refusal(call("translate", tmp_path / "bad", *output))
        assert f"bad, line {WINDOW_LINES + 1}:" in message
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


def test_invalid_utf8_in_a_pipe_answers_the_lines_before(tmp_path: Path) -> None:
    """A pipe's lines before the bad one are translated; then exit 2 and a sentence with the line's number."""
    done = call("translate", stdin=b"one\ntwo\ncaf\xe9\nfour\n")
    assert done.stdout_bytes == b"one\ntwo\n"
    assert done.exit_code == 2
    assert "line 3:" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["missing", "folder", "long name", "below a file", "torn"])
def test_unreadable_input_is_one_sentence(tmp_path: Path, kind: str) -> None:
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
    assert str(paths[kind])[:60] in refusal(call("translate", paths[kind]))


def test_output_is_written_beside_and_renamed(tmp_path: Path) -> None:
    """-o holds the whole translation afterwards in place of what it held, stdout nothing, the folder nothing more."""
    (tmp_path / "in").write_text("one\ntwo\n")
    (tmp_path / "out").write_text("old\nold\nold\n")
    done = call("translate", tmp_path / "in", "-o", tmp_path / "out")
    assert (done.exit_code, done.stdout_bytes, done.stderr) == (0, b"", "")
    assert (tmp_path / "out").read_text() == "one\ntwo\n"
    assert call("translate", tmp_path / "in", "-o", "-").stdout == "one\ntwo\n"
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}


@pytest.mark.parametrize("how", ["itself", "symlink", "hard link"])
def test_output_onto_the_input_is_refused(tmp_path: Path, how: str) -> None:
    """-o never writes over its input, by whatever name it is called."""
    (tmp_path / "in").write_text("one\n")
    output = tmp_path / ("in" if how == "itself" else "other")
    if how == "symlink":
        output.symlink_to(tmp_path / "in")
    elif how == "hard link":
        output.hardlink_to(tmp_path / "in")
    assert "--output" in refusal(call("translate", tmp_path / "in", "-o", output))
    assert (tmp_path / "in").read_text() == "one\n"


def test_writing_beside_harms_no_other_file(tmp_path: Path) -> None:
    """Whatever the file written beside is called, it is not one that was there: the input named `out.part` survives."""
    (tmp_path / "out.part").write_text("one\n")
    done = call("translate", tmp_path / "out.part", "-o", tmp_path / "out")
    assert (tmp_path / "out.part").read_text() == "one\n"
    assert done.exit_code == 0
    assert (tmp_path / "out").read_text() == "one\n"


def test_a_pipe_as_output_stays_a_pipe(tmp_path: Path) -> None:
    """-o to what is no plain file (a named pipe, /dev/null) writes into it, and does not put a file in its place."""
    (tmp_path / "in").write_text("one\n")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        assert call("translate", tmp_path / "in", "-o", tmp_path / "pipe").exit_code == 0
        assert (tmp_path / "pipe").is_fifo()
        assert os.read(reader, 100) == b"one\n"
    finally:
        os.close(reader)


@pytest.mark.parametrize("output", ["none/out", "folder", "in/out"])
def test_output_that_cannot_be_is_refused(tmp_path: Path, output: str) -> None:
    """An impossible -o is wrong usage: exit 2, a sentence with its name, and nothing left behind."""
    (tmp_path / "in").write_text("one\n")
    (tmp_path / "folder").mkdir()
    assert output in refusal(call("translate", tmp_path / "in", "-o", tmp_path / output))
    assert {path.name for path in tmp_path.iterdir()} == {"in", "folder"}


def test_an_error_leaves_the_old_output(tmp_path: Path) -> None:
    """A pipe that breaks off in bad UTF-8 leaves -o as it was, and nothing beside it."""
    (tmp_path / "out").write_text("old\n")
    refusal(call("translate", "-o", tmp_path / "out", stdin=b"one\ncaf\xe9\n"))
    assert (tmp_path / "out").read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_that_changes_meanwhile_is_an_error(echo: Echo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the lines written are not the lines counted, the command fails, and -o does not appear."""
    file = tmp_path / "in"
    file.write_text("a line of text\n" * 20_000)
    search = echo.search_all

    def shrink(batches: Iterable[Sources], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        os.truncate(file, 0)
        return search(batches, options)

    monkeypatch.setattr(echo, "search_all", shrink)
    assert "20,000" in refusal(call("translate", file, "-o", tmp_path / "out"), code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_named_pipe_is_read_as_a_pipe(tmp_path: Path) -> None:
    """FILE may be a named pipe, as in `nmt translate <(command)`."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("one\ntwo\n",))
    writer.start()
    done = call("translate", tmp_path / "pipe")
    writer.join()
    assert (done.exit_code, done.stdout_bytes) == (0, b"one\ntwo\n")


def test_a_steady_writer_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that never pauses long enough is still answered: a group does not wait for its window to fill."""
    monkeypatch.setattr(arriving, "PATIENCE", 60.0)
    monkeypatch.setattr(arriving, "SOONEST", -1.0)
    answered = threading.Event()

    def stream() -> Iterator[bytes]:
        yield b"one\n"
        assert answered.wait(60)
        yield b"two\n"

    groups = arriving.arriving(stream(), "-")
    assert next(groups) == ["one"]
    answered.set()
    assert list(groups) == [["two"]]
