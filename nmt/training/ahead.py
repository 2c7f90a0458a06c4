"""Work done ahead on a thread, so that a device need not wait for its next batch."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(items: Iterable[Item], make: Callable[[Item], Made], depth: int = 2) -> Generator[tuple[Item, Made]]:
    """Each item with what `make` makes of it, in order, up to `depth` items made before they are asked for."""
    with ThreadPoolExecutor(1) as thread:
        waiting: deque[tuple[Item, Future[Made]]] = deque()
        for item in items:
            waiting.append((item, thread.submit(make, item)))
            if len(waiting) > depth:
                item, made = waiting.popleft()
                yield item, made.result()
        for item, made in waiting:
            yield item, made.result()
