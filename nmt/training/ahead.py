"""Work done ahead on a thread, so that a device need not wait for its next batch."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(items: Iterable[Item], make: Callable[[Item], Made], depth: int = 2) -> Generator[tuple[Item, Made]]:
    """Each item with what `make` makes of it, in order, up to `depth` items made before they are asked for."""
    iterator = iter(items)

    def take() -> tuple[Item, Made] | None:
        return next(((item, make(item)) for item in iterator), None)

    with ThreadPoolExecutor(1) as thread:  # one, so that items are taken and made in their order
        waiting: deque[Future[tuple[Item, Made] | None]] = deque()
        while True:
            while len(waiting) <= depth:
                waiting.append(thread.submit(take))
            if (taken := waiting.popleft().result()) is None:
                return
            yield taken
