"""The README is true: its commands run as they stand, and the files it names are there."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command

from nmt.cli import app
from nmt.config import PRESETS, settle
from tests.conftest import write_corpus

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")

# What makes the README's trainings small enough for a test; everything else about them is as it stands there.
SMALL = """
[model]
layers = 1
d_model = 16
heads = 2
d_ff = 16

[training]
steps = 40
validate_every = 40
tokens_per_update = 100
vocab_size = 450
"""


def commands() -> list[str]:
    """Every line of the README's bash blocks that is a command, without its comment."""
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.slow
def test_every_command_runs_in_order(tmp_path: Path, demo_pairs: list[tuple[str, str]]) -> None:
    """From top to bottom in one folder that holds a corpus called multi30k and a letter, with nothing else set up."""
    write_corpus(tmp_path / "multi30k", train=demo_pairs[:400], valid=demo_pairs[400:420], test=demo_pairs[420:440])
    (tmp_path / "letter.txt").write_text("".join(f"{source}\n" for source, _ in demo_pairs[:5]), encoding="utf-8")
    (tmp_path / "reference.txt").write_text("".join(f"{target}\n" for _, target in demo_pairs[:5]), encoding="utf-8")
    rows = [f"{target}\t{source}\n" for source, target in demo_pairs[500:540]]
    (tmp_path / "letters.tsv").write_text("".join(["de\ten\n", *rows]), encoding="utf-8")
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "bin").mkdir()
    for name, module in (("nmt", "nmt"), ("torchrun", "torch.distributed.run")):
        shim = tmp_path / "bin" / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        shim.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    lines = commands()
    assert len(lines) >= 10
    for line in lines:
        small = line.replace("nmt train", "nmt train --config small.toml")
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", small],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        printed = done.stdout.splitlines()
        if "--force-decode" in line:
            assert [row.split("\t")[0] for row in printed] == ["1", "2", "3", "4", "5"]
        elif "nmt score" in line and "--sentences" not in line:
            text = "\n".join(printed)
            assert "nrefs:1|" in text
            assert len(printed) == 1 or "--confidence" in line or "--examples" in line
            assert "--confidence" in line or re.search(r": BLEU \d+\.\d\d \(\d+ lines\) nrefs:1\|case:", printed[0])
        elif "nmt translate" in line:
            lines_in = 1 if "echo" in line or "head -1" in line else 5
            expected = 0 if "-o" in line else lines_in * 3 if "--n-best 3" in line else lines_in
            assert len(printed) == expected, (line, printed)
        elif "nmt describe" in line:
            assert any("total" in row for row in printed)
        else:
            assert printed == []


def test_nothing_is_left_to_fill_in() -> None:
    """No placeholder stands where a measured number should."""
    assert not re.search(r"@\w+@|TODO", README)


@pytest.mark.slow
def test_python_example_runs(overfitted: Path) -> None:
    """The Python block, with the model it names in the working folder."""
    [block] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    script = block.replace('"german"', repr(str(overfitted)))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\[['\"].+['\"]\]\n", done.stdout)


def test_toml_example_is_a_recipe(tmp_path: Path) -> None:
    """The TOML block overrides the settings it names."""
    [block] = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "mine.toml").write_text(block, encoding="utf-8")
    model, training = settle(PRESETS["tiny"], tmp_path / "mine.toml", {})
    assert (model.d_model, training.warmup, training.drop_duplicates) == (128, 1_000, True)


def test_every_file_named_is_there() -> None:
    """The tree of rooms, and the links."""
    root = Path(__file__).parents[1]
    [tree] = re.findall(r"```\nnmt/\n(.*?)```", README, re.DOTALL)
    for name in re.findall(r"\b\w+\.py\b", tree):
        assert (root / "nmt" / name).exists(), name
    for folder in re.findall(r"^  (\w+)/ ", tree, re.MULTILINE):
        assert (root / "nmt" / folder).is_dir(), folder
    rooms = {path.stem for path in (root / "nmt").rglob("*.py")} - {"__init__", "__main__"}
    assert {room for room in rooms if room not in tree} == set()
    for link in re.findall(r"(?:\]\(|src(?:set)?=\")([^)#\"]+)", README):
        assert (root / link).exists(), link


def test_pictures_are_shown() -> None:
    """No line of markup runs into HTML, which would show it as it is written."""
    lines = README.splitlines()
    assert {"attention.svg", "curve.png"} <= set(re.findall(r'src="data/pictures/([^"]+)"', README))
    assert all(not before.strip() for before, line in pairwise(lines) if line.startswith("!["))


def test_presets_and_options_named_exist() -> None:
    """No option or preset in the README that the tool does not have."""
    options = {option for command in get_command(app).commands.values() for p in command.params for option in p.opts}  # type: ignore[attr-defined]
    torchruns = {"--standalone", "--nproc-per-node", "--nnodes", "--rdzv-backend", "--rdzv-endpoint", "--max-restarts"}
    # commands of make, pip and the benchmarks, and options of these
    others = r"(?m)^(?!nmt ).*$"
    own = re.sub(r"```sh\n(.*?)```", lambda block: re.sub(others, "", block[1]), README, flags=re.DOTALL)
    own = re.sub(r"\(the command with `.*?`", "", own)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", own)) - {"--install-completion", "--help"} - torchruns
    assert named <= options
    assert all(f"`{preset}`" in README for preset in PRESETS)
