"""Processes that share work: results in order whatever their number, and none left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from operator import methodcaller, truediv
from pathlib import Path

import pytest

from nmt.data.workers import AHEAD, in_order
from nmt.errors import NmtError

# A parent with two workers that are still busy when something happens to it.
BUSY = """
import time
from nmt.data import workers
def items():
    for number in range(1000):
        yield 0.2
results = workers.in_order(time.sleep, items(), 2)
for _ in results:
    print("ready", flush=True)
"""


def parent_of(process: int) -> int | None:
    """None of one that has ended, whether or not somebody has asked how."""
    try:
        state, parent, *_ = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(parent)


def children(parent: int) -> list[int]:
    processes = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [process for process in processes if parent_of(process) == parent]


@pytest.fixture
def left() -> Callable[[], list[int]]:
    """The processes that a test has left behind; others may have their own here, such as a browser."""
    before = children(os.getpid())
    return lambda: [process for process in children(os.getpid()) if process not in before]


def gone(processes: list[int]) -> bool:
    """Whether all have ended, given some seconds for it."""
    for _ in range(100):
        if all(parent_of(process) is None for process in processes):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_results_are_in_order(count: int) -> None:
    """However many processes there are, the n-th result is of the n-th item; large items and results pass too."""
    items = ["a" * length for length in (5, 300_000, 1, 0, 200_000, 7, 3, 2, 900_000, 4)]
    assert list(in_order(methodcaller("upper"), items, count)) == [item.upper() for item in items]
    assert list(in_order(methodcaller("upper"), [], count)) == []


def test_few_items_are_held(left: Callable[[], list[int]]) -> None:
    """Items are read as results are taken, a few a worker ahead of them."""
    read = 0

    def items() -> object:
        nonlocal read
        for number in range(1_000):
            read += 1
            yield str(number)

    results = in_order(str.upper, items(), 2)  # type: ignore[arg-type]
    for taken in range(1, 20):
        next(results)
        assert read <= taken + 1 + 2 * AHEAD
    results.close()
    assert left() == []


def test_a_dead_worker_is_one_sentence(left: Callable[[], list[int]]) -> None:
    """A worker that is killed, as for want of memory, ends the work with a sentence, and the others with it."""
    with pytest.raises(NmtError, match="worker process ended before its work") as error:
        list(in_order(os._exit, [3, 3, 3, 3, 3, 3, 3, 3], 2))
    assert "\n" not in str(error.value)
    assert "exit code 3" in str(error.value)
    assert left() == []


def test_a_fault_of_the_items_ends_the_workers(left: Callable[[], list[int]]) -> None:
    """An error while items are read goes on to the caller and leaves no process."""
    with pytest.raises(ZeroDivisionError):
        list(in_order(str, (truediv(1, number) for number in (2, 1, 0)), 2))
    assert left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(number: int) -> None:
    """Interrupted, terminated or killed, the parent leaves no process, and no worker says anything."""
    parent = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert parent.stdout
    parent.stdout.readline()
    family = children(parent.pid)
    assert len(family) == 2
    parent.send_signal(number)
    _, said = parent.communicate(timeout=30)
    assert gone(family)
    assert said.count(b"Traceback") == (number == signal.SIGINT)  # the parent's own, which the command line catches


def test_ctrl_c_reaches_the_parent_alone() -> None:
    """Workers are in no group that a terminal would interrupt."""
    parent = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, process_group=0)
    assert parent.stdout
    parent.stdout.readline()
    family = children(parent.pid)
    assert all(os.getpgid(worker) != os.getpgid(parent.pid) for worker in family)
    parent.kill()
    parent.communicate()
    assert gone(family)


def test_workers_import_little() -> None:
    """A worker that encodes has neither torch nor the settings nor datasets in memory, and reads no file of the cwd."""
    script = "import sys, nmt.data.encoding, nmt.data.workers; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "pydantic", "datasets", "typer", "sacrebleu"} & set(loaded)


def test_a_module_in_the_working_directory_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own numpy.py or nmt/ beside the text is not taken for a library."""
    (tmp_path / "pickle.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    assert list(in_order(str.upper, ["a", "b"], 2)) == ["A", "B"]
