"""A file translated by parts: the same file whoever made the parts, and whenever."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmt.translation.translator import WINDOW_LINES
from tests.conftest import call, torchrun

LINES = [f"{number} ." for number in range(2 * WINDOW_LINES + 100)]  # copied, but for those that a test puts in between


def write(folder: Path, sources: list[str]) -> Path:
    """A file of three parts, with these lines here and there in it."""
    lines = list(LINES)
    lines[:: len(lines) // len(sources) + 1] = sources
    (folder / "in.txt").write_text("\n".join(lines) + "\n")
    return folder / "in.txt"


@pytest.fixture(scope="module")
def sources(demo_pairs: list[tuple[str, str]]) -> list[str]:
    return [source for source, _ in demo_pairs[:40]]


@pytest.fixture(scope="module")
def straight(overfitted: Path, sources: list[str], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a single call writes to stdout, which goes by no parts."""
    return call("translate", write(tmp_path_factory.mktemp("straight"), sources), "-m", overfitted).stdout_bytes


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("out.txt.*.parts/*.json"))


def test_processes_share_the_parts(
    overfitted: Path, sources: list[str], straight: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two makes the second part alone and writes nothing else; the first puts all together."""
    command: list[str | Path] = ["translate", write(tmp_path, sources), "-o", tmp_path / "out.txt", "-m", overfitted]
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert call(*command).exit_code == 0
    assert [path.name for path in parts(tmp_path)] == ["000001.json"]
    assert not (tmp_path / "out.txt").exists()
    monkeypatch.setenv("RANK", "0")
    assert call(*command).exit_code == 0
    assert (tmp_path / "out.txt").read_bytes() == straight
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.txt"}


def test_a_process_without_a_part_leaves_nothing(
    overfitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text("1\n")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert call("translate", tmp_path / "in.txt", "-o", tmp_path / "out.txt", "-m", overfitted).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_translation_goes_on(
    overfitted: Path, sources: list[str], straight: bytes, tmp_path: Path, number: signal.Signals
) -> None:
    """What was done is not done again, which a mark in it shows; and is of no use to a call that asks for something else."""
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
    lines, flagged = json.loads(marked.read_text())
    marked.write_text(json.dumps([["MARK", *lines[1:]], flagged]))

    other = call(*command, "--no-split", "-o", tmp_path / "other.txt")
    assert (other.exit_code, (tmp_path / "other.txt").read_bytes()) == (0, straight)
    resumed = call(*command)
    assert resumed.exit_code == 0
    assert f"going on: {done} of 3 parts were done before" in resumed.stderr
    assert (tmp_path / "out.txt").read_bytes() == b"MARK\n" + straight.partition(b"\n")[2]
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.txt", "other.txt"}


def test_parts_of_another_translation_serve_no_other(
    overfitted: Path, sources: list[str], straight: bytes, tmp_path: Path
) -> None:
    """Other options, another text or newer weights: all begins anew, and what was left of the old ones goes."""
    file = write(tmp_path, sources)
    stale = tmp_path / f"out.txt.{16 * '0'}.parts"
    stale.mkdir()
    (stale / "000000.json").write_text('[["stale"], {}]')
    (tmp_path / "out.txt.my.parts").mkdir()
    assert call("translate", file, "-o", tmp_path / "out.txt", "-m", overfitted).exit_code == 0
    assert (tmp_path / "out.txt").read_bytes() == straight
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.txt", "out.txt.my.parts"}


@pytest.mark.slow
def test_torchrun_translates(overfitted: Path, sources: list[str], straight: bytes, tmp_path: Path) -> None:
    """Two real processes: the same file, said once; without a file to share and one to write they are refused, once."""
    command = torchrun(2, "-m", "nmt", "translate", write(tmp_path, sources), "-m", overfitted)
    done = subprocess.run([*command, "-o", tmp_path / "out.txt"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert (tmp_path / "out.txt").read_bytes() == straight
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert refused.returncode != 0
    assert refused.stderr.count("name FILE and --output") == 1
