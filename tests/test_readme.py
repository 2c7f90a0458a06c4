"""The README and docs/ are true: their commands run as they stand, and the files, options and tests they name exist."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser
from typer.main import get_command

from nmt.cli import app
from nmt.config import PRESETS
from tests.conftest import write_corpus

ROOT = Path(__file__).parents[1]
# In the order in which their commands run: models that one page trains are used by the next.
NAMES = "README docs/data docs/training docs/translating docs/scoring docs/model tests/benchmarks/README"
PAGES = {path: path.read_text(encoding="utf-8") for path in [ROOT / f"{name}.md" for name in NAMES.split()]}
BLOCKS = [block for text in PAGES.values() for block in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)]

# Makes the trainings small enough for a test.
SMALL = """
model = {layers = 1, d_model = 16, heads = 2, d_ff = 16}
training = {steps = 10, validate_every = 500, tokens_per_update = 100, vocab_size = 450}
"""


def lines_of(language: str) -> list[str]:
    """The lines of all blocks in this language, without comments."""
    lines = (line for name, block in BLOCKS if name == language for line in block.splitlines())
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


@pytest.mark.slow
def test_every_command_runs_in_order(tmp_path: Path, demo_pairs: list[tuple[str, str]]) -> None:
    """The `bash` blocks run in one folder that holds a corpus, a letter, its reference and a table, and nothing else."""
    write_corpus(tmp_path / "corpus", train=demo_pairs[:400], valid=demo_pairs[400:405], test=demo_pairs[405:410])
    for name, side in (("letter.txt", 0), ("reference.txt", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in demo_pairs[:5]), encoding="utf-8")
    rows = [f"{target}\t{source}\n" for source, target in demo_pairs[500:540]]
    (tmp_path / "letters.tsv").write_text("".join(["de\ten\n", *rows]), encoding="utf-8")
    (tmp_path / "small.toml").write_text(SMALL)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    lines = lines_of("bash")
    assert len(lines) >= 25
    for line in lines:
        command = ["bash", "-o", "pipefail", "-c", line.replace("nmt train", "nmt train --config small.toml")]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
        printed = done.stdout.splitlines()
        if "nmt describe" in line:
            assert any("total" in row or "parameters" in row for row in printed)
        elif "nmt score" in line:
            assert "--force-decode" in line or "nrefs:1|" in done.stdout or ">" in line, (line, printed)
        elif "nmt translate" in line:
            asked = 1 if "echo" in line or "head -1" in line else 15 if "--n-best 3" in line else 5
            assert len(printed) == (0 if " -o " in line else asked), (line, printed)
        else:
            assert printed == [], line
    [script] = [block for language, block in BLOCKS if language == "python"]
    assert re.match(r"\[['\"].*['\"]\]\n", subprocess.check_output([sys.executable, "-c", script], cwd=tmp_path, text=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_names_exist(page: Path) -> None:
    """Links and their headings, paths, the code's tree, and the names in brackets after a file: `file.py` (`Name`)."""
    text = PAGES[page]
    for link, heading in re.findall(r"(?:\]\(|src(?:set)?=\")([^)#\"]*)(?:#([^)\"]+))?[)\"]", text):
        target = (page.parent / link).resolve() if link else page
        assert target.exists(), link
        if heading:
            titles = re.findall("^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles], heading
    paths = re.findall(r"(?<![\w/])(?:nmt|data|tests)/[\w./-]*\w", text)
    for tree in re.findall(r"```\n(nmt/\n.*?)```", text, re.DOTALL):
        paths += [f"nmt/{name}" for name in re.findall(r"\b\w+\.py\b|(?<=^  )\w+/", tree, re.MULTILINE)]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    for path, names in re.findall(r"`(nmt/[\w/]+\.py)` \((`\w+`(?:, `\w+`)*)\)", text):
        code = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"^(class |def )?{name}\b", code, re.MULTILINE), (path, name)


def test_commands_and_options_exist() -> None:
    """In blocks and in the text, each option is one of the program before it, or else of any of nmt's commands."""
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    known = {f"nmt {name}": {option for p in command.params for option in p.opts} for name, command in commands.items()}
    known[""] = set.union(*known.values()) | {"--help", "--install-completion"}
    known["torchrun"] = {option for action in get_args_parser()._actions for option in action.option_strings}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known |= {f"make {name}": set() for name in re.findall(r"^([\w-]+):", makefile, re.MULTILINE)}
    measuring = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "benchmarks").glob("*.py"))
    known["tests.benchmarks"] = set(re.findall(r'"(--[a-z-]+)"', measuring))
    text = re.sub(r"```.*?```", "", "\n".join(PAGES.values()), flags=re.DOTALL)
    spans = [line for _, block in BLOCKS for line in block.splitlines()] + re.findall(r"`([^`]+)`", text)
    named = r"(?<![\w-])--[a-z][a-z-]+|\bnmt [a-z]+|\bmake [a-z][\w-]+|\btorchrun\b|tests\.benchmarks"
    assert len(spans) > 100
    for line in spans:
        program = ""
        for word in re.findall(named, line):
            assert word in (known[program] if word.startswith("--") else known), (word, line)
            program = program if word.startswith("--") else word
    assert all(f"`{preset}`" in text for preset in PRESETS)


def test_every_test_of_the_table_exists() -> None:
    """Each row of the tables in tests/README.md names tests that exist, as `tests/test_readme.py::name`."""
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!paper ).*", text, re.MULTILINE)
    assert len(rows) > 40
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+`", row)] == []
    for path, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", text):
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (path, name)
