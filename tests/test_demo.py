"""The README's first command: the demonstration, from nothing to its score."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_demo_learns_its_language(tmp_path: Path) -> None:
    """`make demo` trains, translates four unseen sentences and one through a pipe, and scores above 95 BLEU."""
    tools = [f"BIN={Path(sys.executable).parent}", f"DEMO={tmp_path / 'demo-model'}", "--assume-old=.venv/installed"]
    (tmp_path / "demo-model").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        ["make", "demo", *tools], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1_200, check=False
    )
    assert done.returncode == 0, done.stderr
    [score] = re.findall(r"demo test, en-de: BLEU ([\d.]+) \(500 lines\) nrefs:1\|case:mixed", done.stdout)
    assert float(score) > 95
    assert "Ich habe den alten Mann gesehen." in done.stdout.splitlines()
