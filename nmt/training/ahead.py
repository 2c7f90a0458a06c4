"""Work done ahead on another thread, so that a device does not wait for its next batch."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(items: Iterable[Item], function: Callable[[Item], Result], depth: int = 2) -> Generator[tuple[Item, Result]]:
    """Yield each item with its result, in order. Up to `depth` further results are computed in advance."""
    iterator = iter(items)

    def take() -> tuple[Item, Result] | None:
        return next(((item, function(item)) for item in iterator), None)

    with ThreadPoolExecutor(1) as thread:  # a single one keeps the order
        waiting: deque[Future[tuple[Item, Result] | None]] = deque()
        while True:
            while len(waiting) <= depth:
                waiting.append(thread.submit(take))
            if (taken := waiting.popleft().result()) is None:
                return
            yield taken
