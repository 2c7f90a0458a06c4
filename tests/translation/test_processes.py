"""`nmt translate` as a process among others: pipes, readers that leave, signals, streams that are closed or full, terminals."""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import shown_on


def start(*arguments: str | Path) -> "subprocess.Popen[bytes]":
    """`nmt translate` as a process to talk to."""
    command = [sys.executable, "-m", "nmt", "translate", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_signals_end_it_quietly(overfitted: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """N45: Ctrl-C, SIGTERM and SIGUSR1, while it waits for input, end it with 130, 143 and 138, no word, no half file of -o."""
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


@pytest.mark.parametrize(
    ("streams", "code", "stdout", "stderr"),
    [
        ("{nmt} numbers | head -1", 0, b"0\n", rb""),
        ("echo 1 | {nmt} > /dev/full", 1, b"", rb"nmt: .*No space left on device\n"),
        ("{nmt} <&-", 2, b"", rb"nmt: standard input is closed; .*\n"),
        ("{nmt} missing 2>&-", 2, b"", rb""),
    ],
)
def test_what_becomes_of_its_streams_is_one_sentence_at_most(
    streams: str, code: int, stdout: bytes, stderr: bytes, overfitted: Path, tmp_path: Path
) -> None:
    """`head` ends it quietly; a full disk and a closed stdin are told of; and without stderr nothing goes to stdout."""
    (tmp_path / "numbers").write_text("".join(f"{number}\n" for number in range(200_000)))
    command = streams.format(nmt=shlex.join([sys.executable, "-m", "nmt", "translate", "-m", str(overfitted)]))
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (code, stdout), done.stderr
    assert re.fullmatch(stderr, done.stderr)


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
        shown = shown_on(master)
        written = b"" if output or not process.stdout else process.stdout.read()
        assert process.wait(60) == 0
    os.close(master)
    return shown.decode(), written


def test_a_terminal_is_shown_the_speed(overfitted: Path, sources: list[str], tmp_path: Path) -> None:
    """A file's bar and last line tell it, but not where the translation goes to the same terminal."""
    (tmp_path / "in").write_text("".join(source + "\n" for source in sources[:50]))
    words: list[str | Path] = ["-m", overfitted, "--beam", "1", tmp_path / "in"]
    shown, written = on_a_terminal(*words, output=False)
    assert re.search(r"\x1b.*translating.* \d+ sentences/s, .* left", shown)
    assert re.search(r"50 lines in .*, \d+ sentences/s", shown)
    assert written.count(b"\n") == 50
    mixed, _ = on_a_terminal(*words, output=True)
    assert mixed.replace("\r\n", "\n").encode().startswith(written)
    assert "\x1b" not in mixed
    assert "sentences/s" not in mixed
