"""The command line: what it answers before any work is done, and how it ends."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup, TyperOption

from nmt import __version__
from nmt.cli import app
from nmt.config import ModelConfig, TrainingConfig
from tests.conftest import call, refusal

HEAVY = ("torch", "datasets", "sacrebleu", "sentencepiece", "sentencex", "numpy", "ctranslate2", "sacremoses")
COMMANDS = ("train", "translate", "score", "attention", "describe", "export")
OPTIONS = """
--average --batch-tokens --beam --confidence --config --data --details --device --dropout --engine --examples
--force-decode --format --from --help --install-completion --length-penalty --lowercase --metric --micro-batch-tokens
--model --n-best --no-split --norm --output --patience --precision --preset --quantization --quiet --reference --restart
--seed --sentences --show-completion --source --steps --svg --target --tokens-per-update --validate-every --version
--vocab-size
"""


def commands() -> TyperGroup:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def parameters(command: str) -> dict[str, TyperOption]:
    """The options of a command by the names of its function's parameters."""
    return {str(p.name): p for p in commands().commands[command].params if isinstance(p, TyperOption)}


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


def test_no_arguments_show_the_commands() -> None:
    """`nmt` alone names all commands."""
    done = call()
    assert all(f"\n  {name} " in done.output for name in COMMANDS)


def test_options_are_few_and_frozen() -> None:
    """Over all commands there are exactly the options listed here, fewer than 50: a new one is a decision."""
    group = commands()
    shown = [option for one in (group, *group.commands.values()) for option in one.get_params(typer.Context(one))]
    found = {name for option in shown for name in (*option.opts, *option.secondary_opts) if name.startswith("--")}
    assert found == set(OPTIONS.split())
    assert len(found) < 50


@pytest.mark.parametrize("command", ["train", "translate", "score"])
def test_flags_of_settings_are_their_fields(command: str) -> None:
    """A flag that sets a field of a run is unset by default; each is named as its field and shows that one's description."""
    fields = ModelConfig.model_fields | TrainingConfig.model_fields
    flags = {name: option for name, option in parameters(command).items() if name in fields}
    assert "device" in flags
    for name, option in flags.items():
        assert option.default is None if command == "train" else option.default == fields[name].default, name
        assert option.opts == ["--" + name.replace("_", "-")]
        assert option.help == fields[name].description


def test_every_command_takes_the_model_the_same_way() -> None:
    """-m/--model means the directory `model` in all commands, and --quiet is everywhere."""
    for command in COMMANDS:
        options = parameters(command)
        assert set(options["model"].opts) == {"--model", "-m"}
        assert options["model"].default == Path("model")
        assert any("--quiet" in option.opts for option in options.values())


@pytest.mark.parametrize(
    "arguments",
    [["trane"], ["--langs"], *([name, "--no-such-option"] for name in COMMANDS), ["train", "--steps=many"]],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    """An unknown command, an unknown option or a word for a number is wrong usage, and stdout stays empty."""
    done = call(*arguments)
    assert done.exit_code == 2
    assert done.stdout_bytes == b""
    assert arguments[-1].partition("=")[0] in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "--data", "nowhere"], "nowhere"),
        (["train", "--preset", "huge"], "there is no preset 'huge'"),
        (["train", "--config", "none.toml"], "none.toml"),
        (["train", "--preset", ""], "there is no preset ''"),
        (["train", "--data", "demo", "--source", ""], "--source "),
        (["train", "--data", "demo", "--source", "fr"], "--source fr"),
        (["train", "--data", "demo", "--device", "tpu"], "device"),
        (["translate", "none.txt"], "none.txt"),
        (["translate", "-m", "nowhere"], "nowhere"),
        (["translate", "--beam", "0"], "--beam 0"),
        (["translate", "--length-penalty", "-1"], "--length-penalty -1"),
        (["translate", "--length-penalty", "nan"], "--length-penalty nan"),
        (["translate", "--length-penalty", "inf"], "--length-penalty inf"),
        (["translate", "--batch-tokens", "0"], "--batch-tokens 0"),
        (["translate", "--n-best", "0"], "--n-best 0"),
        (["translate", "--n-best", "5"], "--n-best 5"),
        (["translate", "--n-best", "2", "--beam", "1"], "--beam 2"),
        (["translate", "--format", "xml"], "--format xml"),
        (["translate", "--details"], "--format json"),
        (["translate", "-m", "nowhere", "--engine", "ctranslate2"], "nowhere"),
        (["translate", "-m", "nowhere", "--engine", "ctranslate2", "--details", "--format", "json"], "--details"),
        (["export", "-m", "nowhere"], "nowhere"),
        (["export", "--quantization", "int4"], "--quantization int4"),
        (["describe", "bsae"], "'base'"),
        (["describe", "-m", "nowhere"], "nowhere"),
        (["describe", "base", "--format", "xml"], "--format xml"),
        (["attention", "Hello.", "-m", "nowhere", "-o", "page.html"], "nowhere"),
        (["score", "none.txt", "-r", "none.ref"], "none.ref"),
        (["score", "none.txt", "--force-decode", "none.en"], "none.en"),
        (["score", "none.txt"], "-r"),
        (["score", "-m", "nowhere"], "nowhere"),
        (["score", "-r", "none.ref"], "-r"),
    ],
)
def test_a_mistake_gets_one_sentence(
    arguments: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's mistake exits with 2 and one sentence on stderr that names the option, file or folder at fault."""
    monkeypatch.chdir(tmp_path)
    assert named in refusal(call(*arguments, stdin=b"Hello.\n"))


@pytest.mark.parametrize("name", ["train.en", "train.tsv"])
def test_a_pipe_is_no_corpus(name: str, tmp_path: Path) -> None:
    """Text is read several times: nothing waits for what a pipe will never say again."""
    (tmp_path / "train.de").write_text("Hallo.\n")
    os.mkfifo(tmp_path / name)
    data = tmp_path if name == "train.en" else tmp_path / name
    assert f"{name}: a pipe or a device" in refusal(call("train", "--data", data, "-m", tmp_path / "model"))


def test_a_folder_that_is_gone_is_told_of(tmp_path: Path) -> None:
    """The one that the command runs in; as a process, with no more than that sentence."""
    script = f"cd {shlex.quote(str(tmp_path))} && rmdir {shlex.quote(str(tmp_path))} && echo Hi. | "
    command = shlex.join([sys.executable, "-P", "-m", "nmt", "translate"])
    done = subprocess.run(["bash", "-c", script + command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"nmt: the current directory is no longer there; cd to one that is\n")


@pytest.mark.parametrize(
    ("command", "option"),
    [("translate", "--device"), ("translate", "--precision"), ("translate", "--engine"), ("score", "--device")],
)
def test_unknown_devices_precisions_and_engines_are_refused(command: str, option: str, overfitted: Path) -> None:
    """A device, precision or engine that nmt does not know is refused by name, never taken for another one."""
    assert option in refusal(call(command, "-m", overfitted, option, "fp17", stdin=b"Hello.\n"))


@pytest.mark.parametrize(("before", "code"), [("default_int_handler", -signal.SIGINT), ("SIG_IGN", 0)])
def test_an_interrupt_while_loading_leaves_no_traceback(before: str, code: int) -> None:
    """Ctrl-C before the command line has been loaded ends the process, unless the caller has it ignored, as nohup does."""
    script = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'nmt.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        f"signal.signal(signal.SIGINT, signal.{before})\n"
        "from nmt.__main__ import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (code, b"")


def test_a_log_on_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    """What cannot be written to stderr changes no exit code and ends no work; that its reader has left does."""
    mistake = [sys.executable, "-m", "nmt", "score", "none.txt", "-r", "none.ref"]
    speaking = [sys.executable, "-c", "from nmt.reporting import Reporter\nReporter().warn('heard?')\nprint('done')"]
    with open("/dev/full", "w") as full:
        assert subprocess.run(mistake, stderr=full, cwd=tmp_path, check=False).returncode == 2
        assert subprocess.check_output(speaking, stderr=full) == b"done\n"
        helping = subprocess.run([*mistake[:3], "train", "--help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (helping.returncode, helping.stderr) == (1, b"nmt: writing: No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    assert subprocess.run(speaking, stderr=writing, stdout=subprocess.PIPE, check=False).stdout == b""
    os.close(writing)


def test_completion_can_be_shown() -> None:
    """Asked from within bash, the command prints bash's completion script."""
    command = Path(sys.executable).with_name("nmt")
    asked = ["bash", "-c", f"{shlex.quote(str(command))} --show-completion; exit $?"]
    done = subprocess.run(asked, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"_NMT_COMPLETE" in done.stdout
