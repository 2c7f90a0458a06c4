"""`nmt translate` as a process among others: pipes, readers that leave, signals, closed and full streams."""

import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest


def start(*arguments: str | Path, **options: Any) -> "subprocess.Popen[bytes]":
    """`nmt translate` as a process to talk to."""
    command = [sys.executable, "-m", "nmt", "translate", *map(str, arguments)]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, bufsize=0, text=False, **(pipes | options))


def test_a_co_process_is_answered_line_by_line(overfitted: Path, sources: list[str]) -> None:
    """U1: each answer comes before the next line is sent; a reader that leaves ends it with 0, without a word."""
    with start("-m", overfitted) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        answers = []
        for source in (sources[0], "", sources[1]):
            process.stdin.write(source.encode() + b"\n")
            answers.append(process.stdout.readline())
        process.stdout.close()
        process.stdin.write(sources[1].encode() + b"\n")
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
    assert answers[1] == b"\n"
    assert len({*answers}) == 3
    assert all(answer.endswith(b"\n") for answer in answers)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_signals_end_it_quietly(overfitted: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """N45: while it waits for input, and no half file of -o is left."""
    with start("-m", overfitted, "-o", tmp_path / "out") as process:
        assert process.stdin
        assert process.stderr
        process.stdin.write(b"Hello.\n")
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
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
        ("echo 1 | {nmt} -o /dev/stdout", 0, b"1\n", rb""),
        ("echo 1 | {nmt} -o /dev/full", 1, b"", rb"nmt: --output /dev/full: No space left on device\n"),
    ],
)
def test_what_becomes_of_its_streams_is_one_sentence_at_most(
    streams: str, code: int, stdout: bytes, stderr: bytes, overfitted: Path, tmp_path: Path
) -> None:
    """`head` ends it quietly; a full disk and a closed stdin are reported; without stderr nothing goes to stdout instead."""
    (tmp_path / "numbers").write_text("".join(f"{number}\n" for number in range(200_000)))
    command = streams.format(nmt=shlex.join([sys.executable, "-m", "nmt", "translate", "-m", str(overfitted)]))
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (code, stdout), done.stderr
    assert re.fullmatch(stderr, done.stderr)
