"""The README is true: its commands run as they stand, and whatever it names is there. So are the tests of tests/README.md."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser
from typer.main import get_command

from nmt.cli import app
from nmt.config import PRESETS, settle
from tests.conftest import write_corpus

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)  # language, code

# What makes the README's trainings small enough for a test; everything else about them is as it stands there.
SMALL = """
[model]
layers = 1
d_model = 16
heads = 2
d_ff = 16

[training]
steps = 10
validate_every = 500
tokens_per_update = 100
vocab_size = 450
"""


def lines_of(language: str) -> list[str]:
    """The lines of all blocks in this language, without comments."""
    lines = (line for name, block in BLOCKS if name == language for line in block.splitlines())
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


@pytest.mark.slow
def test_every_command_runs_in_order(tmp_path: Path, demo_pairs: list[tuple[str, str]]) -> None:
    """From top to bottom in one folder that holds a corpus called multi30k and a letter, with nothing else set up."""
    write_corpus(tmp_path / "multi30k", train=demo_pairs[:400], valid=demo_pairs[400:405], test=demo_pairs[405:410])
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
    lines = lines_of("bash")
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


def test_what_is_not_run_could_not_be() -> None:
    """Outside the blocks whose lines are run stand Make's commands, benchmarks, and what needs the data of WMT14."""
    assert {language for language, _ in BLOCKS} == {"", "bash", "sh", "python", "toml"}
    elsewhere = r"make \w+|nmt \w+ --model base|\.venv/bin/python -m tests\.benchmarks\."
    assert [line for line in lines_of("sh") if not re.match(elsewhere, line)] == []


def test_nothing_is_left_to_fill_in() -> None:
    """No placeholder stands where a measured number should."""
    assert not re.search(r"@\w+@|TODO", README)


@pytest.mark.slow
def test_python_example_runs(overfitted: Path) -> None:
    """The Python block, with the model it names in the working folder."""
    [block] = [block for language, block in BLOCKS if language == "python"]
    script = block.replace('"german"', repr(str(overfitted)))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\[['\"].+['\"]\]\n", done.stdout)


def test_toml_example_is_a_recipe(tmp_path: Path) -> None:
    """The TOML block overrides the settings it names."""
    [block] = [block for language, block in BLOCKS if language == "toml"]
    (tmp_path / "mine.toml").write_text(block, encoding="utf-8")
    model, training = settle(PRESETS["tiny"], tmp_path / "mine.toml", {})
    assert (model.d_model, training.warmup, training.drop_duplicates) == (128, 1_000, True)


def test_every_file_named_is_there() -> None:
    """The tree of rooms, the links, and the paths in the text."""
    [tree] = [block for language, block in BLOCKS if not language]
    for name in re.findall(r"\b\w+\.py\b", tree):
        assert (ROOT / "nmt" / name).exists(), name
    for folder in re.findall(r"^  (\w+)/ ", tree, re.MULTILINE):
        assert (ROOT / "nmt" / folder).is_dir(), folder
    rooms = {path.stem for path in (ROOT / "nmt").rglob("*.py")} - {"__init__", "__main__"}
    assert {room for room in rooms if room not in tree} == set()
    links = re.findall(r"(?:\]\(|src(?:set)?=\")([^)#\"]+)", README)
    paths = re.findall(r"(?<![\w/])(?:nmt|data|tests)/[\w./-]*\w", README)
    assert [path for path in [*links, *paths] if not (ROOT / path).exists()] == []


def test_pictures_are_shown() -> None:
    """No line of markup runs into HTML, which would show it as it is written."""
    lines = README.splitlines()
    assert {"attention.svg", "curve.png"} <= set(re.findall(r'src="data/pictures/([^"]+)"', README))
    assert all(not before.strip() for before, line in pairwise(lines) if line.startswith("!["))


def options_of() -> dict[str, set[str]]:
    """The long options of all programs that the README has commands of, by how these begin; "" for those of nmt's together."""
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    known = {f"nmt {name}": {option for p in command.params for option in p.opts} for name, command in commands.items()}
    known[""] = set.union(*known.values()) | {"--help", "--install-completion"}
    known["torchrun"] = {option for action in get_args_parser()._actions for option in action.option_strings}
    known |= {f"make {name}": set() for name in re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    for path in (ROOT / "tests" / "benchmarks").glob("*.py"):
        sources = path.read_text(encoding="utf-8") + path.with_name("turns.py").read_text(encoding="utf-8")
        known[f"tests.benchmarks.{path.stem}"] = set(re.findall(r'"(--[a-z-]+)"', sources))
    return known


def test_every_command_and_option_named_exists() -> None:
    """In blocks, their comments and the text: each option is one of the command before it, or else of any of nmt's."""
    known = options_of()
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", README, flags=re.DOTALL))
    of_benchmark = re.findall(r"\(the command with `(.*?)`", README)  # of the translation benchmark, named before it
    of_torchrun = re.findall(r"`(--(?:max-restarts|signals-to-handle) .*?)`", README)  # stand alone
    found = 0
    for line in [line for _, block in BLOCKS for line in block.splitlines()] + spans:
        program = "tests.benchmarks.translation" if line in of_benchmark else "torchrun" if line in of_torchrun else ""
        for word in re.findall(
            r"(?<![\w-])--[a-z][a-z-]+|\bnmt [a-z]+|\bmake [a-z]+|\btorchrun\b|tests\.benchmarks\.\w+", line
        ):
            if word.startswith("--"):
                assert word in known[program], (word, line)
            else:
                assert word in known, (word, line)
                program = word
            found += 1
    assert found > 100
    assert all(f"`{preset}`" in README for preset in PRESETS)


def test_every_test_of_the_table_exists() -> None:
    """tests/README.md names in each row of its tables tests that are there, as `tests/test_readme.py::name`."""
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    bodies = re.findall(r"^\|[\s:|-]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for body in bodies for row in body.splitlines()]
    assert rows
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+`", row)] == []
    for path, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", text):
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (path, name)
