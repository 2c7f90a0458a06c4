"""Work for all cores: processes of one's own that apply a function to items, and give the results in order.

A worker is a plain child process on two pipes. It ends when its pipe does, so also when its parent is killed; it is in a
session of its own, so that Ctrl-C reaches the parent alone, which then ends it; and it imports what its function needs and
nothing of the program that started it.
"""

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from nmt.errors import NmtError

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 32  # workers; about as many as one process can read text for
AHEAD = 2  # items a worker that are read before their turn, so that none waits for the reader


def in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Generator[Result, None, None]:
    """function(item) of each item, in their order, computed by so many processes; one is this process itself.

    Few items are held at a time. The function, items and results must be picklable. Raises NmtError where a worker ends
    before its work. Closing the iterator ends the workers.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    try:
        pool = [_Worker(function) for _ in range(workers)]
    except OSError as error:
        raise NmtError(f"a worker process cannot be started ({error.strerror}); close other programs") from None
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for worker in pool:
        idle.put(worker)

    def ask(item: Item) -> Any:
        worker = idle.get()
        try:
            return worker.ask(item)
        finally:
            idle.put(worker)  # a dead one too, so that no thread waits for it

    threads = ThreadPoolExecutor(workers)  # one waits on each worker
    try:
        waiting: deque[Future[Any]] = deque()
        for item in items:
            waiting.append(threads.submit(ask, item))
            if len(waiting) > AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for worker in pool:
            worker.process.kill()  # it holds nothing that could be lost
        threads.shutdown(cancel_futures=True)
        for worker in pool:
            worker.close()


class _Worker:
    """The parent's end of a worker."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        path = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from nmt.data.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)} | threads,
            start_new_session=True,
        )
        self.function: Callable[[Any], Any] | None = function

    def ask(self, item: Any) -> Any:
        inbox, outbox = self.process.stdin, self.process.stdout
        assert inbox
        assert outbox
        try:
            if self.function:
                pickle.dump(self.function, inbox)
                self.function = None
            pickle.dump(item, inbox)
            inbox.flush()
            return pickle.load(outbox)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError):
            code = self.process.wait()
            raise NmtError(
                f"a worker process ended before its work ({f'signal {-code}' if code < 0 else f'exit code {code}'}), "
                "perhaps for want of memory; close other programs, or bind nmt to fewer cores with taskset"
            ) from None

    def close(self) -> None:
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            with suppress(BrokenPipeError):  # of an item that was never sent to its end
                pipe.close()


def serve() -> None:
    """A worker's life: a function, then items, from stdin; results to stdout; until the pipe ends."""
    inbox, outbox = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no result
    try:
        function = pickle.load(inbox)
        while True:
            pickle.dump(function(pickle.load(inbox)), outbox)
            outbox.flush()
    except (EOFError, pickle.UnpicklingError, BrokenPipeError):
        os._exit(0)  # the parent is done, or gone; at an ordinary exit the torn pipe would be complained of
