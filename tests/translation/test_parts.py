"""A file translated in parts: the same output however many processes made them, and however often they were stopped."""

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

import pytest
from typer.testing import Result

from nmt.translation.parts import Parts
from nmt.translation.windows import MAX_WINDOW_LINES
from tests.conftest import call, torchrun

# Three windows of lines that are copied, except for a few sentences that tests put in between.
LINES = [f"{number} ." for number in range(2 * MAX_WINDOW_LINES + 100)]

Command = list[str | Path]
Ranked = Callable[..., Result]


@pytest.fixture(scope="module")
def text(sources: list[str]) -> str:
    lines = list(LINES)
    lines[:: len(lines) // 40 + 1] = sources[:40]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def straight(overfitted: Path, text: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What one process writes to stdout, without parts."""
    file = tmp_path_factory.mktemp("straight") / "in.txt"
    file.write_text(text)
    return call("translate", file, "-m", overfitted).stdout_bytes


@pytest.fixture
def command(overfitted: Path, text: str, tmp_path: Path) -> Command:
    (tmp_path / "in.txt").write_text(text)
    return ["translate", tmp_path / "in.txt", "-o", tmp_path / "out.txt", "-m", overfitted]


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> Ranked:
    """`call` as one of two processes that torchrun started on one machine."""

    def call_as(rank: int, *arguments: str | Path, run: str) -> Result:
        with monkeypatch.context() as patch:
            for name, value in (("RANK", rank), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", 2), ("WORLD_SIZE", 2)):
                patch.setenv(name, str(value))
            patch.setenv("TORCHELASTIC_RUN_ID", run)
            return call(*arguments)

    return call_as


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def mark(part: Path) -> None:
    """Change the first line of the first window, to show later that it was used."""
    header, window, *rest = part.read_text().splitlines(keepends=True)
    digest, lines, flags = json.loads(window)
    part.write_text("".join([header, json.dumps([digest, ["MARK", *lines[1:]], flags]) + "\n", *rest]))


def test_processes_share_the_windows(
    command: Command, straight: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranked: Ranked
) -> None:
    """The first of two waits until the second has finished in this run, though its window is complete since an earlier one.

    It then writes the output, and leaves no other file, not even of an earlier run by more processes.
    """
    (tmp_path / "out.txt.rank12.part").touch()
    (tmp_path / "out.txt.part").touch()  # somebody else's
    assert ranked(1, *command, run="old").exit_code == 0
    part = tmp_path / "out.txt.rank1.part"
    assert part.read_text().count("\n") == 3  # the job, a window and the end
    polls = []

    def finish(_seconds: float) -> None:
        polls.append((tmp_path / "out.txt").exists())
        mark(part)
        assert ranked(1, *command, run="new").exit_code == 0

    monkeypatch.setattr("nmt.translation.parts.time", SimpleNamespace(sleep=finish))
    assert ranked(0, *command, run="new").exit_code == 0
    assert polls == [False]
    lines = straight.split(b"\n")
    lines[MAX_WINDOW_LINES] = b"MARK"
    assert (tmp_path / "out.txt").read_bytes().split(b"\n") == lines
    assert names(tmp_path) == {"in.txt", "out.txt", "out.txt.part"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_translation_resumes(command: Command, straight: bytes, tmp_path: Path, number: signal.Signals) -> None:
    """What is done is not done again, as a mark in it shows."""
    process = subprocess.Popen([sys.executable, "-m", "nmt", *map(str, command)])
    part = tmp_path / "out.txt.rank0.part"
    while not part.exists() or not part.read_bytes().endswith(b"]\n"):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    assert process.wait(60) == (130 if number == signal.SIGINT else -number)
    assert not (tmp_path / "out.txt").exists()
    done = part.read_text().count("\n") - 1
    assert 0 < done < 3
    mark(part)
    assert f"resuming: {done} of 3 parts" in call(*command).stderr
    assert (tmp_path / "out.txt").read_bytes() == b"MARK\n" + straight.partition(b"\n")[2]
    assert names(tmp_path) == {"in.txt", "out.txt"}


def test_a_full_disk_costs_no_finished_window(command: Command, straight: bytes, tmp_path: Path) -> None:
    """Exit 1 and one sentence; with room, the same command resumes."""
    limited = f"ulimit -f 60; exec {sys.executable} -m nmt {' '.join(map(str, command))} --quiet"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "--output" in done.stderr
    assert "resuming: 1 of 3 parts" in call(*command).stderr
    assert (tmp_path / "out.txt").read_bytes() == straight


CHANGES = ["an option", "the weights", "a line", "the job"]


@pytest.mark.parametrize("change", ["nothing", "torn", *CHANGES])
def test_parts_are_used_if_they_are_whole_and_of_the_same_translation(
    overfitted: Path, command: Command, text: str, straight: bytes, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, change: str,
) -> None:  # fmt: skip
    """Up to the first damaged line, and only for the same text, options and weights, as a mark shows."""
    part, model = tmp_path / "out.txt.rank0.part", shutil.copytree(overfitted, tmp_path / "model")
    command += ["-m", model, "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "delete", lambda _self: None)
        assert call(*command).exit_code == 0
    mark(part)
    header, first, second, *_ = part.read_bytes().splitlines(keepends=True)
    if change == "torn":
        part.write_bytes(header + first + second[:-1])
    elif change == "an option":
        command += ["--beam", "1"]
    elif change == "the weights":
        os.utime(model / "model.safetensors")
    elif change == "a line":
        (tmp_path / "in.txt").write_text(text.replace("\n7 .", "\n8 .", 1))
    elif change == "the job":
        part.write_bytes(header[:-5])
    assert call(*command).exit_code == 0
    first_line, _, rest = (tmp_path / "out.txt").read_bytes().partition(b"\n")
    assert (first_line == b"MARK") == (change not in CHANGES)
    assert change in ("an option", "a line") or rest == straight.partition(b"\n")[2]
    assert names(tmp_path) == {"in.txt", "out.txt", "model"}


@pytest.mark.slow
def test_torchrun_translates(command: Command, straight: bytes, tmp_path: Path) -> None:
    """Two real processes write the same file as one."""
    done = subprocess.run(torchrun(2, "-m", "nmt", *command), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert (tmp_path / "out.txt").read_bytes() == straight
    assert names(tmp_path) == {"in.txt", "out.txt"}
