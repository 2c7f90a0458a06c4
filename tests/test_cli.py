"""The command line: what it answers before any work is done, and how it ends."""

import pwd
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

import nmt
from nmt import __version__
from nmt.cli import app
from nmt.errors import UsageError
from tests.conftest import call, refusal

HEAVY = ("torch", "datasets", "sacrebleu", "sentencepiece", "sentencex", "numpy", "ctranslate2", "sacremoses")
OPTIONS = """
--architecture --average --batch-tokens --beam --confidence --config --data --details --device --dropout --engine --examples
--force-decode --format --from --help --install-completion --length-penalty --lowercase --metric --micro-batch-tokens
--model --n-best --no-split --norm --output --page --patience --precision --preset --quantization --quiet --reference
--restart --sample --seed --sentences --show-completion --source --steps --svg --synthetic --target --tokens-per-update
--validate-every --version --vocab-size
"""
# Command lines at fault, with what must be named in brackets. N4: ~ is the home folder in every path, also where a shell
# leaves it alone, as in --data=~/text.
MISTAKES = """
train --data [nowhere]; train --preset [huge]; train --config [none.toml]; train --data demo [--source fr];
train --data demo --device [tpu]; translate [none.txt]; translate -m [nowhere]; translate [--beam 0];
translate [--length-penalty nan]; translate [--batch-tokens 0]; translate [--n-best 5]; translate [--format xml];
translate [--details]; translate -m [nowhere] --engine ctranslate2; export -m [nowhere]; export [--quantization int4];
describe [bsae]; describe base [--format xml]; describe base [away/none]; describe base --page [away/page.html];
attention Hello. -m [nowhere] -o page.html; score [none.txt] -r none.ref;
score -m [nowhere]; score [-r] none.ref; train --data=[~/none]; train --config=[~/none];
train --from=[~/none] --data=demo; train --data=demo --model=[~/file/none]; translate -m[~/none]; translate [~/none];
translate ~/file -m ~/file --output=[~/file]; score [~/none] -r ~/file; score ~/file --reference=[~/none];
score ~/file --force-decode=[~/none]; describe --model=[~/none]; export --model=[~/none]; attention Hi. --model=[~/none]
"""
GROUP = typer.main.get_command(app)
assert isinstance(GROUP, TyperGroup)
COMMANDS = GROUP.commands


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS), ["--version"], []])
def test_what_needs_no_work_imports_nothing_heavy(arguments: list[str]) -> None:
    """Help and version are answered without torch or any other heavy library in the process."""
    script = (
        "import sys\nfrom nmt.__main__ import main\n"
        "try: main()\nexcept SystemExit as end: code = end.code or 0\n"
        f"sys.exit(100 if set({HEAVY}) & set(sys.modules) else code)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, check=False)
    assert done.returncode == (0 if arguments else 2), done.stderr
    shown = (done.stdout + done.stderr).decode()
    assert shown == f"nmt {__version__}\n" if arguments == ["--version"] else "Usage:" in shown
    assert arguments or all(f"\n  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples(name: str) -> None:
    """Each example stands on a line of its own, and is a command line that its command understands."""
    shown = call(name, "--help").stdout.partition("\n  Examples:\n")[2].splitlines()
    assert len(shown) >= 2
    for line in shown:
        program, command, *arguments = shlex.split(line.rpartition("| ")[2])
        assert (program, command) == ("nmt", name)
        assert COMMANDS[name].make_context(name, arguments).command is COMMANDS[name]


def test_options_are_few_and_frozen() -> None:
    """Over all commands there are exactly the options listed here, fewer than 50: a new one is a decision."""
    shown = [option for one in (GROUP, *COMMANDS.values()) for option in one.get_params(typer.Context(one))]
    found = {name for option in shown for name in (*option.opts, *option.secondary_opts) if name.startswith("--")}
    assert found == set(OPTIONS.split())
    assert len(found) < 50


@pytest.mark.parametrize("words", ["trane", "--langs", "train --steps=many", *(f"{name} --nothing" for name in COMMANDS)])
def test_wrong_usage_exits_with_2(words: str) -> None:
    """An unknown command or option, or a word for a number, is wrong usage, and stdout stays empty."""
    done = call(*words.split())
    assert (done.exit_code, done.stdout_bytes) == (2, b"")
    assert words.split()[-1].partition("=")[0] in done.stderr


@pytest.mark.parametrize("words", [line.strip() for line in MISTAKES.replace("\n", " ").split(";")])
def test_a_mistake_gets_one_sentence(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's mistake exits with 2 and one sentence on stderr that names the option, file or folder at fault."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    [named] = re.findall(r"\[(.+)\]", words)
    sentence = refusal(call(*re.sub(r"[\[\]]", "", words).split(), stdin=b"Hello.\n"))
    assert named.replace("~", str(tmp_path)) in sentence
    assert not (tmp_path / "~").exists()


def test_a_tilde_without_a_home_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N4, N10: in Python ~ is the home folder too; where there is none, nothing is made of that name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=f"^{tmp_path}/none: "):
        nmt.load("~/none")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # raises KeyError, as for a user without an entry
    monkeypatch.chdir(tmp_path)
    done = call("train", "--data", "demo", "--model=~/none")
    assert (done.exit_code, "set HOME" in done.stderr) == (2, True)
    assert "~none: " in refusal(call("translate", "~none"))


def test_a_log_on_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    """A full disk under stderr, or a reader of it who has left, changes no exit code and ends no work."""
    speaking = "from nmt.reporting import Reporter\nReporter().warn('heard?')\nprint('done')"
    reader_left = "import os\nreading, writing = os.pipe()\nos.close(reading)\nos.dup2(writing, 2)\n"
    nmt = [sys.executable, "-m", "nmt"]
    with open("/dev/full", "w") as full:
        assert subprocess.run([*nmt, "score", "none.txt"], stderr=full, cwd=tmp_path, check=False).returncode == 2
        for script in (speaking, reader_left + speaking):
            assert subprocess.check_output([sys.executable, "-c", script], stderr=full) == b"done\n"
        helping = subprocess.run([*nmt, "--help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (helping.returncode, helping.stderr) == (1, b"nmt: writing: No space left on device\n")
