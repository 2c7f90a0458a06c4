"""Which process this is, where torchrun starts several: who speaks, who writes, and which of them reports a failure."""

import os
from dataclasses import dataclass

from nmt.errors import NmtError, UsageError


@dataclass(frozen=True)
class Process:
    """This process among `count`, numbered from 0; alone where torchrun did not start it."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0  # its number among the processes of its machine
    local_count: int = 1
    run: str = ""  # the same for all processes of one start, and no other

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks and writes for all."""
        return self.rank == 0

    @property
    def first_on_machine(self) -> bool:
        """Whether this is the process that prepares what all processes of the machine share."""
        return self.local_rank == 0

    def message(self, error: NmtError) -> str:
        """What this process prints for its failure; "" where another one prints the same.

        A mistake of the user's is the same in all processes of a machine, which read the same files with the same options.
        """
        shared = error.everywhere or (isinstance(error, UsageError) and not self.first_on_machine)
        return str(error) if self.first else "" if shared else f"rank {self.rank}: {error}"


def this_process() -> Process:
    """From the environment that torchrun sets."""
    environment = os.environ
    if "TORCHELASTIC_RUN_ID" not in environment:
        return Process()
    rank, count, local_rank, local_count = (
        int(environment[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    run = f"{environment['TORCHELASTIC_RUN_ID']} {environment.get('TORCHELASTIC_RESTART_COUNT')}"
    return Process(rank, count, local_rank, local_count, run)
