"""A full disk ends no run: what could not be written is reported, and written again once there is room.

Most tests let the kernel refuse: no file of this process may grow beyond a limit, and a write that does is left half done.
"""

import os
import resource
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runs import after_updates, files, outcome, train

# TensorBoard's writer thread fails on its own; its next event reports that.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
EVERY = {"validate_every": 4}  # of 24 updates


def limit(size: int) -> None:
    """Let no file grow beyond so many bytes; -1 is no limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def full(updates: Collection[int], room: Callable[[], int] = lambda: 0, look: Callable[[int], object] = id) -> Iterator[None]:
    """Within, files cannot grow beyond `room` from each of these updates to the next; `look` is called after each update."""

    def fill(update: int) -> None:
        limit(-1)
        look(update)
        limit(room() if update in updates else -1)

    try:
        with after_updates(fill):
            yield
    finally:
        limit(-1)


@pytest.fixture(scope="module")
def roomy(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that always had room."""
    model = tmp_path_factory.mktemp("roomy") / "model"
    assert train(model, corpus, **EVERY).exit_code == 0
    return model


@pytest.mark.parametrize("nothing_fits", [True, False], ids=["no file fits", "the weights fit, the moments do not"])
def test_a_checkpoint_that_cannot_be_saved_ends_nothing(corpus: Path, roomy: Path, tmp_path: Path, nothing_fits: bool) -> None:
    """C3: It is reported; the one before stays whole, the next is saved, and the run ends as one that always had room."""
    model, checkpoints = tmp_path / "model", dict[int, dict[str, bytes]]()
    room = 0 if nothing_fits else (roomy / "model.safetensors").stat().st_size + 1_000
    with full([12], lambda: room, lambda update: checkpoints.update({update: files(model / "checkpoints")})):
        done = train(model, corpus, **EVERY)
    assert done.exit_code == 0, done.stderr
    [warning] = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert warning.endswith("; no checkpoint of update 12")
    assert "File too large" in warning
    assert checkpoints[13] == checkpoints[12]
    assert any(name.startswith("step-000016") for name in checkpoints[17])
    assert outcome(model)[:2] == outcome(roomy)[:2]
    assert outcome(model)[2] == [event for event in outcome(roomy)[2] if event["step"] != 12]
    assert not list(model.rglob("*.part"))


@pytest.mark.parametrize(
    ("updates", "interrupted", "saved"),
    [([24], False, 20), (range(25), False, 0), ([10], True, 8)],
    ids=["at the end", "always", "at Ctrl-C"],
)
def test_an_end_that_cannot_be_saved_is_a_failure(
    corpus: Path, roomy: Path, tmp_path: Path, updates: Collection[int], interrupted: bool, saved: int
) -> None:
    """C3: Exit 1, with the update that the same command goes on after; once there is room, it comes to the same end."""
    model = tmp_path / "model"

    def interrupt(update: int) -> None:
        if interrupted and update in updates:
            os.kill(os.getpid(), signal.SIGINT)

    with full(updates, look=interrupt):
        done = train(model, corpus, **EVERY)
    assert done.exit_code == 1
    assert f"resumes after update {saved}, once there is room" in done.stderr.splitlines()[-1]
    assert train(model, corpus, **EVERY).exit_code == 0
    assert outcome(model) == outcome(roomy)
