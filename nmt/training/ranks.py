"""Training on several devices: torchrun starts one process per device, and each computes its share of every update.

All ranks hold the same weights: they start from the same seed or checkpoint and take every step with the same summed gradient,
so only rank 0 writes. A single process is the only rank and communicates with nobody.
"""

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from nmt.errors import NmtError, UsageError, first_line, is_out_of_memory
from nmt.process import Process, this_process

Item = TypeVar("Item")

TIMEOUT = timedelta(minutes=10)  # for all machines to start, and for slow ranks in training; a dead rank is noticed at once
PREPARATION = timedelta(days=7)  # for the ranks that wait while one prepares the data
POLL = 0.1  # seconds between two looks at whether it is done


class Ranks:
    """The ranks of one run, seen from this process. `first` is rank 0, the one that writes and speaks."""

    def __init__(self, process: Process | None = None, waiting: Any = None) -> None:
        """`waiting` is the process group whose operations may take as long as PREPARATION."""
        self.process, self.waiting = process or Process(), waiting
        self.rank, self.count, self.first = self.process.rank, self.process.count, self.process.first

    @classmethod
    @contextmanager
    def joined(cls, device: torch.device) -> "Iterator[Ranks]":
        """Meet the other processes that torchrun started, and part from them once the run is over for all.

        Raises UsageError where a machine has fewer GPUs than processes, NmtError where they do not find each other.
        """
        process = this_process()
        if process.count == 1:
            yield cls()
            return
        on_gpu = device.type == "cuda"
        if on_gpu and torch.cuda.device_count() < process.local_count:
            raise UsageError(f"torchrun starts {process.local_count} processes on a machine with fewer GPUs")
        if on_gpu:
            torch.cuda.set_device(process.local_rank)
        with _lost_rank_reported():
            dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=TIMEOUT)
            waiting = dist.new_group(timeout=PREPARATION, backend="gloo")
        ranks, code = cls(process, waiting), 1
        try:
            yield ranks
            ranks.any(False)
            dist.destroy_process_group()
            code = 0
        except NmtError as error:
            code = error.exit_code
            raise
        finally:  # where it failed, the process ends, and with it the connections on which the others wait
            atexit.register(_exit_at_once, code)

    def share(self, make: Callable[[], Item], on_each_machine: bool = False) -> Item:
        """What rank 0 makes (or the first rank of each machine, for its own), on all ranks; they wait as long as it takes.

        Where making it raises an NmtError, all ranks raise it.
        """
        if self.count == 1:
            return make()
        made: Any = None
        if self.process.first_on_machine if on_each_machine else self.first:
            try:
                made = make()
            except NmtError as error:
                made = error
        with _lost_rank_reported():
            # Polled, because a signal is not handled inside PyTorch's own waiting.
            everybody = dist.barrier(group=self.waiting, async_op=True)
            while not everybody.is_completed():
                time.sleep(POLL)
            everybody.wait()
        results = self.gather(made)
        for result in results:
            if isinstance(result, NmtError):
                result.everywhere = True
                raise result
        return cast("Item", results[self.rank - self.process.local_rank if on_each_machine else 0])

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by rank 0's."""
        if self.count > 1:
            with _lost_rank_reported():
                for tensor in tensors:
                    dist.broadcast(tensor, 0)

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks, the same to the last bit on all: one all-reduce of all tensors."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _lost_rank_reported():
            dist.all_reduce(flat)
        for tensor, summed in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    def any(self, flag: bool) -> bool:
        """Whether the flag is true on any rank. Computed on the CPU, so that it waits for no GPU."""
        if self.count == 1:
            return flag
        flags = torch.tensor(flag, dtype=torch.uint8)
        with _lost_rank_reported():
            dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags)

    def gather(self, item: Item) -> list[Item]:
        """Every rank's item, in the order of the ranks, on every rank."""
        if self.count == 1:
            return [item]
        items: list[Any] = [None] * self.count
        with _lost_rank_reported():
            dist.all_gather_object(items, item)
        return items

    def from_first(self, item: Item) -> Item:
        """Rank 0's item on every rank."""
        return cast("Item", self.gather(item if self.first else None)[0])


def _exit_at_once(code: int) -> None:
    """End this process, whose work is done, without Python's clean-up, during which gloo's threads may abort it."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(code)


@contextmanager
def _lost_rank_reported() -> Iterator[None]:
    """Replace PyTorch's pages about a lost connection by a sentence. The rank that was lost has reported its own reason."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise NmtError(f"another rank is gone, and the run with it ({first_line(error)})") from None
