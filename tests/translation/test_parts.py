"""A file translated by parts: the same file whoever made the parts, and whenever."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import Result

from nmt import cli
from nmt.lines import read_lines
from nmt.translation import files, translator
from nmt.translation.parts import Parts, _seal
from nmt.translation.translator import WINDOW_LINES
from tests.conftest import call, refusal, torchrun

LINES = [f"{number} ." for number in range(2 * WINDOW_LINES + 100)]  # copied, but for those that a test puts in between


def write(folder: Path, sources: list[str]) -> Path:
    """A file of three parts, with these lines here and there in it."""
    lines = list(LINES)
    lines[:: len(lines) // len(sources) + 1] = sources
    (folder / "in.txt").write_text("\n".join(lines) + "\n")
    return folder / "in.txt"


@pytest.fixture(scope="module")
def sources(sources: list[str]) -> list[str]:
    """A few of them."""
    return sources[:40]


@pytest.fixture(scope="module")
def straight(overfitted: Path, sources: list[str], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a single call writes to stdout, which goes by no parts."""
    return call("translate", write(tmp_path_factory.mktemp("straight"), sources), "-m", overfitted).stdout_bytes


def mark(part: Path) -> None:
    """Change the first line of what a part says, as only its maker could."""
    lines, flagged = json.loads(part.read_text().partition("\n")[2])
    text = json.dumps([["MARK", *lines[1:]], flagged])
    part.write_text(f"{_seal(int(part.stem), text)}\n{text}")


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("out.txt.*.parts/*.json"))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


Ranked = Callable[..., Result]


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> Ranked:
    """`call` as one of two processes that torchrun has started, on one machine or on two."""

    def call_as(rank: int, *arguments: str | Path, run: str = "run", machines: int = 1) -> Result:
        local_rank = rank if machines == 1 else 0
        with monkeypatch.context() as patch:
            patch.setenv("TORCHELASTIC_RUN_ID", run)
            patch.setenv("WORLD_SIZE", "2")
            patch.setenv("RANK", str(rank))
            patch.setenv("LOCAL_RANK", str(local_rank))
            return call(*arguments)

    return call_as


def test_processes_share_the_parts(
    overfitted: Path, sources: list[str], straight: bytes, tmp_path: Path, ranked: Ranked
) -> None:
    """The second of two makes the second part alone and signs off; the first puts all together."""
    command: list[str | Path] = ["translate", write(tmp_path, sources), "-o", tmp_path / "out.txt", "-m", overfitted]
    assert ranked(1, *command).exit_code == 0
    assert [path.name for path in parts(tmp_path)] == ["000001.json"]
    assert not (tmp_path / "out.txt").exists()
    assert ranked(0, *command).exit_code == 0
    assert (tmp_path / "out.txt").read_bytes() == straight
    assert names(tmp_path) == {"in.txt", "out.txt"}


def test_a_process_without_a_part_touches_no_folder(
    overfitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranked: Ranked
) -> None:
    """The first process may have made it, and be about to put its part there."""
    (tmp_path / "in.txt").write_text("1\n")
    command: list[str | Path] = ["translate", tmp_path / "in.txt", "-o", tmp_path / "out.txt", "-m", overfitted]
    assert ranked(1, *command).exit_code == 0
    assert not list(tmp_path.glob("*.parts"))
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "discard", lambda _: None)
        assert call(*command).exit_code == 0
    [part] = parts(tmp_path)
    part.unlink()
    assert ranked(1, *command).exit_code == 0
    assert part.parent.is_dir()
    assert ranked(0, *command).exit_code == 0
    assert names(tmp_path) == {"in.txt", "out.txt"}


def test_the_first_process_waits_for_signatures(
    overfitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranked: Ranked
) -> None:
    """Of its own run, though all parts are there: a late process must find them, or it would make them again."""
    command: list[str | Path] = ["translate", write(tmp_path, ["1"]), "-o", tmp_path / "out.txt", "-m", overfitted]
    assert ranked(1, *command, run="new").exit_code == 0
    [signature] = tmp_path.glob("*.rank1")
    signature.unlink()
    assert ranked(1, *command, run="old").exit_code == 0  # as if that run had been killed then
    polls = []

    def sign(_seconds: float) -> None:
        polls.append([path.name for path in parts(tmp_path)])
        signature.touch()

    monkeypatch.setattr("nmt.translation.parts.time", SimpleNamespace(sleep=sign))
    assert ranked(0, *command, run="new").exit_code == 0
    assert polls == [["000000.json", "000001.json", "000002.json"]]
    assert names(tmp_path) == {"in.txt", "out.txt"}


def test_a_process_begins_unsigned(overfitted: Path, tmp_path: Path, ranked: Ranked) -> None:
    """Runs over several machines may share their id, so that a signature may be an ended run's."""
    command: list[str | Path] = ["translate", write(tmp_path, ["1"]), "-o", tmp_path / "out.txt", "-m", overfitted]
    assert ranked(1, *command).exit_code == 0
    assert list(tmp_path.glob("*.rank1"))
    refusal(ranked(1, *command, "--batch-tokens", "0", machines=2))
    assert not list(tmp_path.glob("*.rank1"))


def test_a_process_that_read_another_text_is_named(
    overfitted: Path, sources: list[str], straight: bytes, tmp_path: Path, ranked: Ranked
) -> None:
    """The first does not wait for a part that was made of a text still growing; what it made itself is kept."""
    file = write(tmp_path, sources)
    command: list[str | Path] = ["translate", file, "-o", tmp_path / "out.txt", "-m", overfitted]
    text = file.read_bytes()
    file.write_bytes(text + b"1\n")
    assert ranked(1, *command).exit_code == 0
    file.write_bytes(text)
    assert "rank 1 has translated another text" in refusal(ranked(0, *command, "--quiet"), code=1)
    assert not (tmp_path / "out.txt").exists()
    again = call(*command)
    assert "going on: 2 of 3 parts" in again.stderr
    assert (tmp_path / "out.txt").read_bytes() == straight
    assert names(tmp_path) == {"in.txt", "out.txt"}


def test_a_mistake_of_all_is_told_once_and_one_of_a_machine_by_it(
    overfitted: Path, tmp_path: Path, ranked: Ranked
) -> None:
    """What is wrong with options, files or the output: said by the first process of each machine, which names itself."""
    (tmp_path / "in.txt").write_text("1\n")
    command: list[str | Path] = ["translate", tmp_path / "in.txt", "-o", tmp_path / "out.txt", "-m", overfitted]
    mistakes: list[list[str | Path]] = [
        ["--beam", "0"],
        ["--format", "xml"],
        ["-m", tmp_path / "none"],
        ["-o", tmp_path / "none" / "out.txt"],
    ]
    for words in mistakes:
        silent = ranked(1, *command, *words)
        assert (silent.exit_code, silent.stderr) == (2, "")
        told = refusal(ranked(0, *command, *words))
        assert refusal(ranked(1, *command, *words, machines=2)) == told.replace("nmt: ", "nmt: rank 1: ")
    assert names(tmp_path) == {"in.txt"}


def test_a_failure_of_one_process_is_told_by_it(
    overfitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranked: Ranked
) -> None:
    """A file that changes as one process reads it again: the others may have read it to the end."""
    file = write(tmp_path, ["1"])
    times = iter(range(9))
    monkeypatch.setattr(
        "nmt.translation.files.read_lines", lambda path: read_lines(path) if next(times) == 0 else iter(LINES[:-1])
    )
    said = refusal(ranked(1, "translate", file, "-o", tmp_path / "out.txt", "-m", overfitted), code=1)
    assert said.startswith(f"nmt: rank 1: {file}: {len(LINES):,} lines were read but {len(LINES) - 1:,} translated")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_translation_goes_on(
    overfitted: Path, sources: list[str], straight: bytes, tmp_path: Path, number: signal.Signals
) -> None:
    """What was done is not done again, which a mark in it shows."""
    command: list[str | Path] = ["translate", write(tmp_path, sources), "-o", tmp_path / "out.txt", "-m", overfitted]
    process = subprocess.Popen([sys.executable, "-m", "nmt", *map(str, command)], stderr=subprocess.PIPE)
    while not parts(tmp_path):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert not (tmp_path / "out.txt").exists()
    done = len(parts(tmp_path))
    assert 0 < done < 3
    assert (f"{done} of 3 parts are done; the same command goes on from there" in said.decode()) == (
        number == signal.SIGINT
    )
    marked = parts(tmp_path)[0]
    mark(marked)

    resumed = call(*command)
    assert resumed.exit_code == 0
    assert f"going on: {done} of 3 parts were done before" in resumed.stderr
    assert (tmp_path / "out.txt").read_bytes() == b"MARK\n" + straight.partition(b"\n")[2]
    assert names(tmp_path) == {"in.txt", "out.txt"}


@pytest.mark.parametrize("damage", ["cut", "a letter", "another part's", "[" * 99_999, "a pipe", "bytes"])
def test_a_part_is_what_was_written_or_made_anew(
    overfitted: Path, sources: list[str], straight: bytes, tmp_path: Path, ranked: Ranked, damage: str
) -> None:
    """Whatever became of the file: nothing of it is believed, waited for, or in the way."""
    command: list[str | Path] = ["translate", write(tmp_path, sources), "-o", tmp_path / "out.txt", "-m", overfitted]
    assert ranked(1, *command).exit_code == 0
    [left] = parts(tmp_path)
    content = left.read_bytes()
    if damage == "cut":
        left.write_bytes(content[: len(content) // 2])
    elif damage == "a letter":
        left.write_bytes(content.replace(b"8 .", b"7 .", 1))
    elif damage == "another part's":
        left.rename(left.with_name("000000.json"))
    elif damage == "a pipe":
        left.unlink()
        os.mkfifo(left)
    else:
        left.write_bytes(b"\xff\xfe" if damage == "bytes" else damage.encode())
    done = call(*command)
    assert (done.exit_code, "going on" in done.stderr) == (0, False), done.stderr
    assert (tmp_path / "out.txt").read_bytes() == straight


def test_a_text_that_changes_meanwhile_is_none_of_both(
    overfitted: Path, sources: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it keeps its length: half of either text would come out."""
    file = write(tmp_path, sources)
    put = Parts.put

    def change(self: Parts, *part: Any) -> None:
        put(self, *part)
        file.write_bytes(file.read_bytes().replace(b"2147 .", b"7412 ."))

    monkeypatch.setattr(Parts, "put", change)
    said = call("translate", file, "-o", tmp_path / "out.txt", "-m", overfitted)
    assert (said.exit_code, "changed while it was translated" in said.stderr) == (1, True), said.stderr
    assert names(tmp_path) == {"in.txt"}


@pytest.mark.parametrize("change", ["nothing", "an option", "the weights", "a line", "the version", "the windows"])
def test_parts_of_another_translation_serve_no_other(
    overfitted: Path,
    sources: list[str],
    straight: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranked: Ranked,
    change: str,
) -> None:
    """A part left of the same output is used if it is of the same translation alone: a mark in it shows that."""
    file, model = write(tmp_path, sources), shutil.copytree(overfitted, tmp_path / "model")
    command: list[str | Path] = ["translate", file, "-o", tmp_path / "out.txt", "-m", model, "--quiet"]
    assert ranked(1, *command).exit_code == 0  # a second process that is all that is left of its run
    [left] = parts(tmp_path)
    mark(left)
    if change == "an option":
        command += ["--beam", "1"]
    elif change == "the weights":
        os.utime(model / "model.safetensors")
    elif change == "a line":
        file.write_text(file.read_text().replace("7 .", "8 .", 1))
    elif change == "the version":
        monkeypatch.setattr(cli, "__version__", "0.0.0")
    elif change == "the windows":
        for module in (files, translator):
            monkeypatch.setattr(module, "WINDOW_LINES", WINDOW_LINES - 1)
    assert call(*command).exit_code == 0
    assert (b"MARK\n" in (tmp_path / "out.txt").read_bytes()) == (change == "nothing")
    assert names(tmp_path) == {"in.txt", "out.txt", "model"}


def test_what_is_left_of_old_translations_goes(overfitted: Path, tmp_path: Path) -> None:
    """Parts and signatures of other runs into the same file, and nothing that is only called nearly so."""
    (tmp_path / "in.txt").write_text("1\n")
    for name in (f"out.txt.{16 * '0'}.parts", "out.txt.my.parts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "000000.json").write_text('[["stale"], {}]')
    for name in (f"out.txt.{16 * '0'}.rank12", "out.txt.my.rank1"):
        (tmp_path / name).touch()
    assert call("translate", tmp_path / "in.txt", "-o", tmp_path / "out.txt", "-m", overfitted).exit_code == 0
    assert (tmp_path / "out.txt").read_text() == "1\n"
    assert names(tmp_path) == {"in.txt", "out.txt", "out.txt.my.parts", "out.txt.my.rank1"}


@pytest.mark.slow
def test_torchrun_translates(overfitted: Path, sources: list[str], straight: bytes, tmp_path: Path) -> None:
    """Two real processes: the same file, said once; without a file to share and one to write they are refused, once."""
    command = torchrun(2, "-m", "nmt", "translate", write(tmp_path, sources), "-m", overfitted)
    done = subprocess.run([*command, "-o", tmp_path / "out.txt"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert (tmp_path / "out.txt").read_bytes() == straight
    assert names(tmp_path) == {"in.txt", "out.txt"}
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert refused.returncode != 0
    assert refused.stderr.count("name FILE and --output") == 1
