"""Cores are counted once for all libraries: those the process is bound to, and the quota of its container."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt import cores as counting
from nmt.cores import BATCHES, SENTENCES, cores, threads

V1 = {"cpu.cfs_quota_us": "300000", "cpu.cfs_period_us": "100000"}


def mount(root: Path, groups: str, files: dict[str, str]) -> None:
    """Write the groups of a process, and the files of control groups."""
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("groups", "files", "count"),
    [
        ("0::/", {"cpu.max": "max 100000"}, 24),
        ("0::/", {"cpu.max": "250000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        # the lowest of the process's own group and its parents
        ("0::/a/b", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "300000 100000", "other/cpu.max": "1 1"}, 3),
        # the host's path, in a container that sees its own root
        ("0::/docker/8d", {"cpu.max": "200000 100000"}, 2),
        # version 1, under either name, and both versions side by side
        ("4:cpu,cpuacct:/", {f"cpu,cpuacct/{name}": text for name, text in V1.items()}, 3),
        ("4:cpu,cpuacct:/docker/8d", {f"cpu/{name}": text for name, text in V1.items()}, 3),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 24),
        ("1:cpu:/\n0::/a:b", {"unified/a:b/cpu.max": "500000 100000"}, 5),
        ("3:cpuset:/\n1:name=systemd:/", {f"cpuset/{name}": text for name, text in V1.items()}, 24),
    ],
)
def test_a_container_may_use_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], count: int
) -> None:
    """N13: a quota of control groups counts if it is lower than the number of visible cores; there is always one core."""
    mount(tmp_path, groups, files)
    monkeypatch.setattr(counting, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(24)))
    assert cores() == count
    for asked, found in (("", count), ("7", 7), ("3,2", 3), ("0", count), ("many", count)):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert threads() == found


@pytest.mark.parametrize(("asked", "set_to"), [("", ["1"]), ("3", [])])
def test_pytorch_keeps_to_the_quota(tmp_path: Path, asked: str, set_to: list[str]) -> None:
    """N13: with a quota of one core, PyTorch has one thread, unless the user asks for more."""
    mount(tmp_path, "0::/", {"cpu.max": "100000 100000"})
    script = f"""
import os
os.sched_getaffinity = lambda pid: set(range(24))
from pathlib import Path
from nmt import cores
cores.ROOT = Path({str(tmp_path)!r})
import torch
torch.get_num_threads = lambda: 24
seen = []
torch.set_num_threads = seen.append
from nmt import devices
print(*seen)
"""
    environment = os.environ | {"OMP_NUM_THREADS": asked}
    printed = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == set_to


@pytest.mark.parametrize(
    ("words", "asked", "spins"),
    [
        (["translate"], {}, SENTENCES),
        (["translate", "text"], {}, BATCHES),
        (["train", "--data", "none"], {}, BATCHES),
        (["translate"], {"GOMP_SPINCOUNT": BATCHES}, SENTENCES),  # inherited from another nmt command
        (["translate"], {"GOMP_SPINCOUNT": "7"}, "7"),
        (["translate"], {"OMP_WAIT_POLICY": "passive"}, None),
    ],
)
def test_how_long_threads_spin_follows_the_work(
    overfitted: Path, tmp_path: Path, words: list[str], asked: dict[str, str], spins: str | None
) -> None:
    """Long for single lines, briefly for batches, unless the user has set it; and set before PyTorch is loaded."""
    script = """
import os, sys
from nmt.cli import app
class Watch:
    def find_spec(self, name, *rest):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"))
sys.meta_path.insert(0, Watch())
app(sys.argv[1:])
"""
    (tmp_path / "text").touch()
    environment = {name: text for name, text in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    printed = subprocess.run(
        [sys.executable, "-c", script, *words, "-m", overfitted], env=environment | asked, cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert printed.stdout.split() == [str(spins)]
