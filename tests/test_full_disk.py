"""A disk that is full ends no run: what could not be written is told of, and written again once there is room.

The kernel itself refuses here: no file of this process may grow beyond a limit, which writes meet with an OSError, half done.
"""

import errno
import os
import resource
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nmt import session
from nmt.model_directory import ModelDirectory
from nmt.pages import report
from nmt.training import trainer
from tests.runs import events, files, outcome, train

# TensorBoard's writer has a thread of its own, whose failure is met by the next event.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
EVERY = {"validate_every": 4}  # of 24 updates


def limit(size: int) -> None:
    """Let no file grow beyond so many bytes; -1 is without limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def full(
    updates: Collection[int], room: Callable[[], int] = lambda: 0, then: Callable[[int], object] = id
) -> Iterator[None]:
    """So much room for any file after these updates, all of it after others; before either, `then` is called."""
    update = trainer.Trainer.update

    def filling(self: trainer.Trainer, *work: Any) -> None:
        limit(-1)
        update(self, *work)
        then(self.progress.update)
        limit(room() if self.progress.update in updates else -1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Trainer, "update", filling)
        try:
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
def test_a_checkpoint_that_cannot_be_saved_ends_nothing(
    corpus: Path, roomy: Path, tmp_path: Path, nothing_fits: bool
) -> None:
    """It is told of; the one before stays whole, the next is saved, and the run ends as one that always had room."""
    model = tmp_path / "model"
    there: dict[int, dict[str, bytes]] = {}
    room = 0 if nothing_fits else (roomy / "model.safetensors").stat().st_size + 1_000
    with full([12], lambda: room, then=lambda update: there.update({update: files(model / "checkpoints")})):
        done = train(model, corpus, **EVERY)
    assert done.exit_code == 0, done.stderr
    [warning] = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert warning.endswith("; no checkpoint of update 12")
    assert "File too large" in warning
    assert there[13] == there[12]
    assert any(name.startswith("step-000016") for name in there[17])
    assert outcome(model)[:2] == outcome(roomy)[:2]
    missing = [event for event in outcome(roomy)[2] if event["step"] != 12]
    assert outcome(model)[2] == missing
    assert not list(model.rglob("*.part"))


def test_a_last_checkpoint_that_cannot_be_saved_is_a_failure(corpus: Path, roomy: Path, tmp_path: Path) -> None:
    """Exit 1, with the update that the same command goes on after; once there is room, it comes to the same end."""
    model = tmp_path / "model"
    with full([24]):
        done = train(model, corpus, **EVERY)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == (
        "nmt: stopped after update 24, which could not be saved; the same command goes on after update 20, "
        "once there is room"
    )
    done = train(model, corpus, **EVERY)
    assert done.exit_code == 0, done.stderr
    assert "going on after update 20" in done.stderr
    assert outcome(model) == outcome(roomy)


def test_a_disk_that_was_never_anything_but_full(corpus: Path, roomy: Path, tmp_path: Path) -> None:
    """The whole run in vain, and no more than that: the same command begins again."""
    model = tmp_path / "model"
    with full(range(25)):
        done = train(model, corpus, **EVERY)
    assert done.exit_code == 1
    assert "goes on after update 0, once there is room" in done.stderr.splitlines()[-1]
    assert train(model, corpus, **EVERY).exit_code == 0
    assert outcome(model) == outcome(roomy)


def test_a_stop_on_a_full_disk_is_told_as_what_it_is(corpus: Path, roomy: Path, tmp_path: Path) -> None:
    """Ctrl-C where nothing can be saved is no orderly stop; the run goes on from the checkpoint before."""
    model = tmp_path / "model"

    def interrupt(update: int) -> None:
        if update == 10:
            os.kill(os.getpid(), signal.SIGINT)

    with full([10], then=interrupt):
        done = train(model, corpus, **EVERY)
    assert done.exit_code == 1
    assert "goes on after update 8" in done.stderr.splitlines()[-1]
    assert train(model, corpus, **EVERY).exit_code == 0
    assert outcome(model) == outcome(roomy)


def fail_at(monkeypatch: pytest.MonkeyPatch, update: int) -> None:
    """Let the weights to use not be written after this update, whose checkpoint is safe."""
    write = session.write_average

    def failing(directory: ModelDirectory, progress: Any, config: Any, kind: str) -> list[int]:
        if progress.update == update:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory.weights_path))
        return write(directory, progress, config, kind)

    monkeypatch.setattr(session, "write_average", failing)


def test_weights_that_cannot_be_written_are_written_at_the_next_validation(
    corpus: Path, roomy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The validation that they were to follow is in the log and in the next checkpoint all the same."""
    fail_at(monkeypatch, 12)
    done = train(tmp_path / "model", corpus, **EVERY)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("No space left on device; the validation of update 12 is not recorded") == 1
    assert outcome(tmp_path / "model") == outcome(roomy)


def test_last_weights_that_cannot_be_written_are_a_failure(
    corpus: Path, roomy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is not done before its weights are there: exit 1, and the same command, with room, comes to the same end."""
    with monkeypatch.context() as patch:
        fail_at(patch, 24)
        done = train(tmp_path / "model", corpus, **EVERY)
    assert done.exit_code == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("nmt: the validation of update 24 could not be recorded; the same command ")
    assert train(tmp_path / "model", corpus, **EVERY).exit_code == 0
    assert outcome(tmp_path / "model") == outcome(roomy)


def test_a_torn_line_of_the_log_spoils_no_other(corpus: Path, tmp_path: Path) -> None:
    """It is told of and skipped; the next event stands on a line of its own; going on clears it away."""
    log = tmp_path / "model" / "metrics.jsonl"
    with full([20], room=lambda: log.stat().st_size + 30):
        done = train(tmp_path / "model", corpus)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("File too large; an event is missing in the log") == 1
    torn = log.read_text(encoding="utf-8").splitlines()[2]
    assert (len(torn), torn[0]) == (30, "{")
    kept = [(event["event"], event["step"]) for event in ModelDirectory(tmp_path / "model").events()]
    assert kept == [("validation", 8), ("validation", 16), ("training", 24), ("validation", 24), ("average", 24)]
    assert train(tmp_path / "model", corpus, "--steps", "32").exit_code == 0
    assert [(event["event"], event["step"]) for event in events(tmp_path / "model")] == [
        *kept[:-1], ("training", 32), ("validation", 32), ("average", 32),
    ]  # fmt: skip


def test_a_report_that_cannot_be_written_is_told_of_once(
    corpus: Path, roomy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And costs the run nothing else."""

    def fail(_directory: ModelDirectory) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(report, "write", fail)
    done = train(tmp_path / "model", corpus, **EVERY)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("report.html cannot be written") == 1
    assert outcome(tmp_path / "model") == outcome(roomy)
