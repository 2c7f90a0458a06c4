"""One run per model directory: the lock, and what a directory must look like before a run may write into it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from nmt.errors import UsageError
from nmt.model_directory import ModelDirectory, saved
from nmt.saved_model import SavedModel, read_config
from nmt.storage import remove


@contextmanager
def locked(directory: ModelDirectory, restart: bool = False) -> Iterator[SavedModel | None]:
    """Hold the directory for one run, and yield the run that is there already, if any.

    With `restart`, that one is to be discarded, so it may be damaged, and None is yielded. A directory created here is removed
    again if nothing was written into it. Raises UsageError where another run holds the directory, it cannot be written, or it
    holds something other than a run.
    """
    created = not directory.path.exists()
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
        started = _started(directory, restart)
        if not directory.lock_path.exists() and not directory.exists() and any(directory.path.iterdir()):
            raise UsageError(f"{directory.path}: holds other files; name a new or empty directory with --model")
        lock = directory.lock_path.open("a")
    except OSError as error:
        raise UsageError(f"--model {directory.path}: {error.strerror}; name a directory that can be written") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{directory.path}: another run is training here; wait for it, or name another --model") from None
        for path in directory.files():  # half-written files of a run that ended suddenly
            remove(path.with_name(path.name + ".part"))
        try:
            yield started
        finally:
            if created and list(directory.path.iterdir()) == [directory.lock_path]:
                directory.lock_path.unlink()
                directory.path.rmdir()


def _started(directory: ModelDirectory, restart: bool) -> SavedModel | None:
    """The run in the directory. Raises UsageError where it is damaged, or where config.json is another program's."""
    if restart and directory.exists():
        read_config(directory)
    if restart or not (directory.exists() or saved(directory.checkpoints)):
        return None
    try:
        return SavedModel.open(directory.path)
    except UsageError as error:
        raise UsageError(f"{error}, or discard the run with --restart") from None
