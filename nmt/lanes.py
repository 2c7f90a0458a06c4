"""Lanes: batches computed side by side on a CPU. Cores that work alone wait less than cores that share each product."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_LANES = 2  # each needs memory for the activations of a batch


class Lanes:
    """Threads that divide PyTorch's threads among them. On a GPU or a single core the calling thread is the only lane."""

    def __init__(self, device: torch.device) -> None:
        threads = torch.get_num_threads()
        self.count = min(MAX_LANES, threads) if device.type == "cpu" else 1
        self._pool = None
        if self.count > 1:
            share = (threads // self.count,)
            self._pool = ThreadPoolExecutor(self.count, "lane", initializer=torch.set_num_threads, initargs=share)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results of `function` on all items, in the order of the items."""
        return map(function, items) if self._pool is None else self._pool.map(function, items)
