"""`nmt translate` on files and pipes: one line out for each line in, and what cannot be read or written.

The engine repeats its source; other tests are about what a model makes of it.
"""

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from nmt.data.vocabulary import Vocabulary
from nmt.saved_model import SavedModel
from nmt.translation import files
from nmt.translation.hypothesis import Hypothesis, SearchOptions, Sources
from nmt.translation.translator import Translator
from nmt.translation.windows import MAX_WINDOW_LINES
from tests.conftest import call, refusal
from tests.translation.test_translator import Echo


def use(monkeypatch: pytest.MonkeyPatch, translator: Translator) -> None:
    """Let every command translate with this translator, whatever -m names."""
    monkeypatch.setattr(SavedModel, "open", lambda _path: MagicMock())
    monkeypatch.setattr(files, "load_translator", lambda *_: translator)


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary) -> Echo:
    engine = Echo()
    use(monkeypatch, Translator(engine, vocabulary, "en", "de"))
    return engine


def translated(text: str, folder: Path, *options: str) -> str:
    """The output for a file with this text."""
    (folder / "text").write_text(text, encoding="utf-8")
    done = call("translate", folder / "text", *options)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout_bytes.decode()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# Lines in, lines out.


@pytest.mark.parametrize("text", ["", "\n \n\t\n", "\n\n\nx", "x\n"])
def test_as_many_lines_come_out_as_went_in(tmp_path: Path, text: str) -> None:
    """No lines give no lines and exit 0; a last line without a newline counts; from a file and from a pipe."""
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []
    expected = "".join(f"{line}\n" for line in lines)
    assert translated(text, tmp_path) == expected
    assert call("translate", stdin=text.encode()).stdout == expected


def test_several_windows_are_one_text(tmp_path: Path) -> None:
    """A file of several windows comes out whole and in order, packed or not, from a file or a pipe."""
    text = "".join(f"line {number}\n" for number in range(2 * MAX_WINDOW_LINES + 3))
    assert translated(text, tmp_path) == text
    (tmp_path / "text.gz").write_bytes(gzip.compress(text.encode()))
    assert call("translate", tmp_path / "text.gz").stdout == text
    assert call("translate", stdin=text.encode()).stdout == text


def test_a_language_without_rules_is_named(monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary) -> None:
    """N15: once, if lines are split by another language's rules."""
    for source, options, count in (("sv", [], 1), ("sv", ["--no-split"], 0), ("deu", [], 0)):
        use(monkeypatch, Translator(Echo(), vocabulary, source, "en"))
        said = call("translate", *options, stdin=b"Eins. Zwei.\n" * 2).stderr
        assert said.count("sentences of sv are split by another language's rules") == count


def test_flags_are_in_json_and_warned_of_once(echo: Echo, vocabulary: Vocabulary) -> None:
    """F3: cut, ended by the limit, caught in a loop, other numbers; one warning each, even if quiet."""
    echo.at_limit, echo.answer = True, 9 * vocabulary.encode("a")
    text = "a\n\n" + "".join(f"word{number} " for number in range(600)) + "\n" + 9 * "a " + "\n"
    done = call("translate", "--format", "json", "--quiet", stdin=text.encode())
    flags = [json.loads(row)["hypotheses"][0]["flags"] for row in done.stdout.split("\n")[:-1]]
    assert flags == [["limit", "repetition"], [], ["cut", "limit", "repetition", "numbers"], ["limit"]]
    warnings = [line.rpartition(": ")[2] for line in done.stderr.rstrip().split("\n")]
    assert warnings == ["line 3", "lines 1, 3, 4", "lines 1, 3", "line 3"]


# What cannot be read or written.


def test_invalid_utf8_in_a_file_stops_before_any_output(tmp_path: Path) -> None:
    """The whole file is checked first: the line is named, and nothing is written to stdout or to -o."""
    (tmp_path / "bad").write_bytes(b"fine\n" * MAX_WINDOW_LINES + b"caf\xe9\n")
    outputs: list[list[str | Path]] = [[], ["-o", tmp_path / "out"]]
    for output in outputs:
        assert f"bad, line {MAX_WINDOW_LINES + 1}:" in refusal(call("translate", tmp_path / "bad", *output))
    assert names(tmp_path) == {"bad"}


def test_invalid_utf8_in_a_pipe(tmp_path: Path) -> None:
    """The lines before it are translated, then its number is named with exit 2; -o stays as it was."""
    done = call("translate", stdin=b"one\ntwo\ncaf\xe9\nfour\n")
    assert (done.exit_code, done.stdout_bytes) == (2, b"one\ntwo\n")
    assert "line 3:" in done.stderr
    (tmp_path / "out").write_text("old\n")
    refusal(call("translate", "-o", tmp_path / "out", stdin=b"one\ncaf\xe9\n"))
    assert (tmp_path / "out").read_text() == "old\n"
    assert names(tmp_path) == {"out"}


@pytest.mark.parametrize("name", ["none", "", "torn.gz"])
def test_unreadable_input_is_named(tmp_path: Path, name: str) -> None:
    """A missing file, a folder and a torn file: exit 2, before any output."""
    (tmp_path / "torn.gz").write_bytes(gzip.compress(os.urandom(1_000))[:-100])
    assert str(tmp_path / name) in refusal(call("translate", tmp_path / name))


def test_output_is_written_beside_and_renamed(tmp_path: Path) -> None:
    """Afterwards -o holds the whole translation, stdout nothing, and the folder nothing more; no other file is harmed."""
    (tmp_path / "out.part").write_text("one\ntwo\n")
    (tmp_path / "out").write_text("old\nold\nold\n")
    done = call("translate", tmp_path / "out.part", "-o", tmp_path / "out")
    assert (done.exit_code, done.stdout_bytes, done.stderr) == (0, b"", "")
    assert (tmp_path / "out").read_text() == (tmp_path / "out.part").read_text() == "one\ntwo\n"
    assert call("translate", tmp_path / "out.part", "-o", "-").stdout == "one\ntwo\n"
    assert names(tmp_path) == {"out.part", "out"}


@pytest.mark.parametrize("how", ["itself", "symlink", "hard link"])
def test_output_onto_the_input_is_refused(tmp_path: Path, how: str) -> None:
    """-o never overwrites its input, by whatever name."""
    (tmp_path / "in").write_text("one\n")
    output = tmp_path / ("in" if how == "itself" else "other")
    if how == "symlink":
        output.symlink_to(tmp_path / "in")
    elif how == "hard link":
        output.hardlink_to(tmp_path / "in")
    assert "is the input" in refusal(call("translate", tmp_path / "in", "-o", output))
    assert (tmp_path / "in").read_text() == "one\n"


@pytest.mark.parametrize("output", ["none/out", "folder"])
def test_impossible_output_is_refused(tmp_path: Path, output: str) -> None:
    """Exit 2, a sentence with its name, and nothing left behind."""
    (tmp_path / "in").write_text("one\n")
    (tmp_path / "folder").mkdir()
    assert output in refusal(call("translate", tmp_path / "in", "-o", tmp_path / output))
    assert names(tmp_path) == {"in", "folder"}


def test_a_file_that_changes_meanwhile_is_an_error(echo: Echo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it keeps its length; what follows the change is not translated."""
    file = tmp_path / "in"
    file.write_text("a line of text\n" * 20_000)
    search = echo.search_all

    def change(batches: Iterable[Sources], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        file.write_text("a word of text\n" * 20_000)
        return search(batches, options)

    monkeypatch.setattr(echo, "search_all", change)
    done = call("translate", file)
    assert (done.exit_code, "changed while it was translated" in done.stderr) == (1, True)
    assert done.stdout.startswith("a line of text\n")
    assert "word" not in done.stdout
