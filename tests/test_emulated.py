"""The CUDA path without a GPU, in a process of its own with the emulated device of emulated/gpu.py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKS = ["tests/emulated/checks.py", "tests/test_cuda.py"]
REAL_ONLY = "compiled or needs_no_plan or halves_the_micro_batches or train_resume_and_translate"


@pytest.mark.skipif(not shutil.which("g++"), reason="the emulated device needs g++")
def test_cuda_path_gives_a_cpus_numbers_with_few_waits_and_launches() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "tests.emulated.plugin", "-p", "no:cacheprovider", "-q", *CHECKS]
    command += ["-k", f"not ({REAL_ONLY})"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
