"""How many cores nmt may use, for all libraries that compute with threads; and how long waiting threads spin."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")  # of /proc and /sys

# A waiting thread of OpenMP spins before it sleeps, by default for milliseconds. If other processes use the same cores,
# spinning keeps them from the very thread that is waited for. But waking a thread costs time too, which matters where there
# are many short pauses between products: for one sentence at a time. Values measured by tests/benchmarks/busy.py.
BATCHES = "1000"  # iterations of the spin loop, about 15 microseconds
SENTENCES = "25000"


def spin(iterations: str) -> None:
    """Set how long threads spin, unless the user has set it. This must happen before PyTorch loads GNU's OpenMP.

    A value that another nmt process has set and passed on is replaced.
    """
    if "OMP_WAIT_POLICY" not in os.environ and os.environ.get("GOMP_SPINCOUNT", iterations) in (BATCHES, SENTENCES):
        os.environ["GOMP_SPINCOUNT"] = iterations


def threads() -> int:
    """The number of threads to compute with: the user's OMP_NUM_THREADS (4, or 4,2 for nested ones), else `cores`."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(asked) if asked.isdecimal() and int(asked) else cores()


def cores() -> int:
    """The cores this process is bound to, or the CPU quota of its container if that is smaller; at least 1."""
    return max(1, min([len(os.sched_getaffinity(0)), *map(int, _quotas())]))


def _quotas() -> Iterator[float]:
    """The CPU quotas, in cores, of this process's control groups (cgroups) and of their parents."""
    table = ROOT / "proc/self/cgroup"
    for group in table.read_text().splitlines() if table.exists() else ():
        # 0::/system.slice/nmt.service in version 2; 4:cpu,cpuacct:/docker/8d in version 1
        number, controllers, path = group.split(":", 2)
        if number == "0":
            mounts, files = ["", "unified"], ["cpu.max"]  # "<microseconds> <period>", or "max <period>"
        else:
            mounts, files = ["cpu", controllers], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]  # -1 is no limit
        for mount in mounts if number == "0" or "cpu" in controllers.split(",") else ():
            top = ROOT / "sys/fs/cgroup" / mount
            inner = top / os.path.normpath(path).lstrip("/")  # a container may see the host's path, which does not exist here
            for folder in (inner, *(parent for parent in inner.parents if parent.is_relative_to(top))):
                with suppress(OSError, ValueError):
                    quota, period = (int(word) for file in files for word in (folder / file).read_text().split())
                    if quota > 0:
                        yield quota / period
