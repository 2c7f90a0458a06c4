"""How many cores are ours, counted once for the threads of all libraries and for worker processes; and how threads wait."""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")  # of /proc and /sys

# A thread of OpenMP that waits for others spins before it sleeps, by default for milliseconds. Beside other work that keeps the
# thread it waits for from its core. To wake it costs time too, which counts where the pauses between products are many and
# short: for one sentence at a time. Measured by tests/benchmarks/busy.py.
BATCHES = "1000"  # turns of that loop, some 15 microseconds
SENTENCES = "25000"


def spin(turns: str) -> None:
    """How long threads spin, unless the user has said. GNU's OpenMP reads it as it is loaded, with PyTorch: it is set before
    that, or in vain. What a process of nmt has passed on to this one is not the user's."""
    if "OMP_WAIT_POLICY" not in os.environ and os.environ.get("GOMP_SPINCOUNT", turns) in (BATCHES, SENTENCES):
        os.environ["GOMP_SPINCOUNT"] = turns


def threads() -> int:
    """For a library to compute with: what the user asks for, as in OMP_NUM_THREADS=4 or 4,2, else one for each core."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(asked) if asked.isdecimal() and int(asked) else cores()


def cores() -> int:
    """Those this process is bound to, and no more than the quota of its container or of any that this one is in."""
    return max(1, min([len(os.sched_getaffinity(0)), *map(int, _quotas())]))


def _quotas() -> Iterator[float]:
    """In cores, of this process's control groups (cgroups) and of all above them."""
    try:
        groups = (ROOT / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:  # as 0::/system.slice/nmt.service in version 2, 4:cpu,cpuacct:/docker/8d in version 1
        number, controllers, path = group.split(":", 2)
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        # Version 2 may be mounted beside version 1. A container's own root is mounted where the host's is: a path within
        # the host's is not there then.
        for mount in ("", "unified") if number == "0" else ("cpu", controllers):
            top = ROOT / "sys/fs/cgroup" / mount
            inner = top / os.path.normpath(path).lstrip("/")
            for folder in (inner, *(each for each in inner.parents if each.is_relative_to(top))):
                try:
                    if number == "0":  # "<microseconds> <period>", or "max <period>"
                        quota, period = (folder / "cpu.max").read_text().split()
                    else:  # -1 is without limit
                        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                    if int(quota) > 0:
                        yield int(quota) / int(period)
                except (OSError, ValueError, ZeroDivisionError):
                    continue
