"""Batches computed side by side on a CPU: a core that works on its own waits less than cores that share every product."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Made = TypeVar("Made")

MOST = 2  # lanes: each holds a batch's activations


class Lanes:
    """Threads that share the device's cores among them; one lane, the calling thread itself, on a GPU or a single core."""

    def __init__(self, device: torch.device) -> None:
        threads = torch.get_num_threads()
        self.count = min(MOST, threads) if device.type == "cpu" else 1
        self._pool = None
        if self.count > 1:
            self._pool = ThreadPoolExecutor(
                self.count, "lane", initializer=torch.set_num_threads, initargs=(threads // self.count,)
            )

    def map(self, function: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
        """function(item) of each item, in their order."""
        return map(function, items) if self._pool is None else self._pool.map(function, items)
