"""Several devices at one model: processes started by torchrun, each a rank that computes its share of every update.

Alone, a process is the only rank and nothing is sent. All ranks hold the same weights: they begin from the same seed or
checkpoint, and take every step with the same summed gradient, so that only rank 0 needs to write anything.
"""

import atexit
import io
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from nmt.errors import NmtError, UsageError, first_line, is_out_of_memory

Made = TypeVar("Made")

COLLECTIVE = timedelta(minutes=10)  # how far apart ranks may come to a common point; a dead one is noticed at once
MEETING = timedelta(minutes=10)  # for all machines to be started
BEAT = 5.0  # seconds between two signs of a machine's life
SILENCE = 600.0  # seconds without one until a machine is given up
FAILED = "failed"  # why a rank has ended
POLL = 0.1  # seconds between two looks at whether what one waits for is made, which may take hours


@dataclass
class Ranks:
    """The ranks of one run, seen from this process. By itself it is alone."""

    count: int = 1
    rank: int = 0
    on_machine: int = 0  # this rank's number among those of its machine
    machine: int = 0  # that machine's number ...
    machines: int = 1  # ... among so many
    store: Any = None  # what torchrun keeps for all of them
    questions: int = 0  # asked of the store so far: all ranks ask the same ones in the same order

    def __post_init__(self) -> None:
        self.parting = threading.Event()
        self.telling = threading.Thread(target=self._tell, daemon=True)

    @classmethod
    def join(cls, device: torch.device) -> "Ranks":
        """Meet the other ranks that torchrun's environment tells of, each on its own GPU; alone where it tells of none.

        Raises UsageError where a machine has fewer GPUs than ranks, NmtError where they do not find each other.
        """
        if not dist.is_torchelastic_launched() or (count := int(os.environ["WORLD_SIZE"])) == 1:
            return cls()
        on_machine = int(os.environ["LOCAL_RANK"])
        if device.type == "cuda":
            if (gpus := torch.cuda.device_count()) < (processes := int(os.environ["LOCAL_WORLD_SIZE"])):
                raise UsageError(f"torchrun starts {processes} processes on a machine with {gpus} GPUs")
            torch.cuda.set_device(on_machine)
        with _others_missed():
            store, rank, _ = next(rendezvous("env://", timeout=MEETING))
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("group", store),
                rank=rank,
                world_size=count,
                timeout=COLLECTIVE,
            )
        machine, machines = int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])
        return cls(count, rank, on_machine, machine, machines, PrefixStore("nmt", store))

    def __enter__(self) -> "Ranks":
        """While it lasts, the first rank of each machine tells the others that the machine lives."""
        if self.store is not None and self.on_machine == 0:
            self.telling.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Part from the others: once the run is over for all of them, or with the reason why it is over for this one."""
        try:
            if self.store is not None and error is None:
                self.any(False)
                dist.destroy_process_group()
                atexit.register(_end)
            elif self.store is not None:
                with suppress(RuntimeError):  # of a store that is gone already
                    self.store.set(FAILED, str(error) or type(error).__name__)
        finally:
            self.parting.set()
            if self.telling.is_alive():
                self.telling.join()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # of a store that is gone
            while not self.parting.wait(BEAT):
                self.store.add(f"machine {self.machine} lives", 1)

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the one that prints and writes."""
        return self.rank == 0

    def share(self, make: Callable[[], Made], each_machine: bool = False) -> Made:
        """What rank 0 makes (or the first rank of each machine), handed to all others, which wait as long as it takes."""
        if self.store is None:
            return make()
        self.questions += 1
        makers = range(self.machines) if each_machine else [0]  # rank 0 is of machine 0
        kind = "machine" if each_machine else "run"
        mine = f"{self.questions}/{kind} {self.machine if each_machine else 0}"
        if (self.on_machine if each_machine else self.rank) == 0:
            self.store.set(mine, pickle.dumps(make()))
        with _others_missed():
            for maker in makers:  # all of them, so that ranks meet again
                self._await(f"{self.questions}/{kind} {maker}", maker)
            return pickle.loads(self.store.get(mine))

    def _await(self, key: str, machine: int) -> None:
        """Return once a machine has set the key. Raises NmtError where a rank failed, or the machine is heard of no more."""
        beats, heard = 0, time.monotonic()
        while not self.store.check([key]):  # the store's own waiting would not heed signals
            if self.store.check([FAILED]):
                error = NmtError(self.store.get(FAILED).decode())
                error.everywhere = True  # the rank that failed tells it
                raise error
            time.sleep(POLL)
            if (now := self.store.add(f"machine {machine} lives", 0)) != beats:
                beats, heard = now, time.monotonic()
            if time.monotonic() - heard > SILENCE:
                raise NmtError(f"nothing is heard of machine {machine} any more, and the run is over with it")

    def hand_out(self, item: Made) -> Made:
        """Rank 0's item, however large, on every rank."""
        if self.count == 1:
            return item
        written = io.BytesIO()
        if self.first:
            torch.save(item, written)
        items = [written.getvalue()]
        with _others_missed():
            dist.broadcast_object_list(items, device=torch.device("cpu"))
        # Onto the CPU: tensors would else go back to where they come from, rank 0's GPU.
        return torch.load(io.BytesIO(items[0]), map_location="cpu", weights_only=False)

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks: one all-reduce of them all, the same to the last bit everywhere."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _others_missed():
            dist.all_reduce(flat)
        for tensor, summed in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    def any(self, flag: bool) -> bool:
        """Whether the flag is raised on any rank. Goes over the CPU, so that no GPU has to be waited for."""
        if self.count == 1:
            return flag
        raised = torch.tensor(flag, dtype=torch.uint8)
        with _others_missed():
            dist.all_reduce(raised, dist.ReduceOp.MAX)
        return bool(raised)

    def gather(self, item: Made) -> list[Made]:
        """Every rank's item, in order of ranks, on every rank."""
        if self.count == 1:
            return [item]
        items: list[Any] = [None] * self.count
        with _others_missed():
            dist.all_gather_object(items, item)
        return items


def _end() -> None:
    """End this process, whose work is done, here: gloo's threads may outlive their group, and abort it further on."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(0)


@contextmanager
def _others_missed() -> Iterator[None]:
    """A rank that is gone has told its own reason; the others need not add pages of the network's."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise NmtError(f"another rank is gone, and the run with it ({first_line(error)})") from None
