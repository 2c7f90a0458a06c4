"""Faults in translating, in the files it writes and in the Python API that users reported, each met as its user met it."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.translation import files
from tests.conftest import call, refusal, write_corpus
from tests.runs import events

FORKED = """
import os, signal, sys
import nmt

translator = nmt.load(sys.argv[1], engine=sys.argv[2])
if os.fork() == 0:
    signal.alarm(30)  # so that nothing hangs
    try:
        translator.translate(["I see the old man."])
    except nmt.errors.NmtError as error:
        print(error, file=sys.stderr)
    sys.exit()
_, status = os.wait()
assert status == 0, status
print(*translator.translate(["I see the old man."]))
"""


@pytest.fixture(scope="module")
def exported(overfitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for both engines."""
    model = shutil.copytree(overfitted, tmp_path_factory.mktemp("exported") / "model")
    assert call("export", "-m", model, "--quiet").exit_code == 0
    return model


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_fork_of_the_process_that_loaded_a_model(exported: Path, engine: str) -> None:
    """N11: the fork fails at once with the way out, and can end; the process that forked goes on."""
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    command = [sys.executable, "-c", FORKED, str(exported), engine]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "load it in each process, after the fork" in done.stderr
    assert done.stdout == call("translate", "-m", exported, stdin=b"I see the old man.\n").stdout


# -o onto an existing file. Digits alone are copied, so that no translation is needed to see what becomes of it.


def translate(overfitted: Path, folder: Path, output: Path) -> None:
    """Translate into the output, and leave nothing else in the folder."""
    before = {*folder.iterdir(), output, folder / "in"}
    (folder / "in").write_text("1\n2\n")
    done = call("translate", folder / "in", "-o", output, "-m", overfitted)
    assert (done.exit_code, done.stderr) == (0, "")
    assert output.read_text() == "1\n2\n"
    assert {*folder.iterdir()} == before


def test_output_keeps_links_owner_and_mode(overfitted: Path, tmp_path: Path) -> None:
    """N7: a symbolic link leads to the same file as before, even one that does not exist yet; hard links stay linked."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target, link = folder / "target", tmp_path / "link"
    link.symlink_to(target)
    translate(overfitted, tmp_path, link)
    for mode, user in ((0o600, os.getuid()), (0o664, 1234 if os.getuid() == 0 else os.getuid())):
        target.write_text("a longer text than the new one\n")
        target.chmod(mode)
        os.chown(target, user, -1)
        translate(overfitted, tmp_path, link)
        found = target.stat()
        assert (link.readlink(), stat.S_IMODE(found.st_mode), found.st_uid) == (target, mode, user)
        assert [path.name for path in folder.iterdir()] == ["target"]
    (tmp_path / "hard").hardlink_to(target)
    target.write_text("a longer text than the new one\n")
    translate(overfitted, tmp_path, tmp_path / "hard")
    assert target.read_text() == "1\n2\n"


@pytest.mark.skipif(not shutil.which("unshare") or os.geteuid() != 0, reason="only root can mount a file")
@pytest.mark.parametrize("source", ["in", "-"])
def test_output_onto_a_mount(overfitted: Path, tmp_path: Path, source: str) -> None:
    """N7: a file that a container mounts cannot be replaced: it is written in place, from a file and from a pipe."""
    for name, text in (("in", "1\n2\n"), ("outside", "a longer old text\n"), ("bound", "")):
        (tmp_path / name).write_text(text)
    script = f"mount --bind outside bound && {sys.executable} -m nmt translate {source} -o bound -m {overfitted} < in"
    command = ["unshare", "-m", "sh", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "outside").read_text() == "1\n2\n"
    assert {path.name for path in tmp_path.iterdir()} == {"in", "outside", "bound"}


def test_output_in_a_folder_that_cannot_be_written(overfitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N7: a file in it that can be is written in place; a new file is refused before a model is loaded."""
    # By this answer, because root may write anywhere.
    monkeypatch.setattr("nmt.destination.os.access", lambda path, mode: not (mode & os.W_OK and Path(path) == tmp_path))
    (tmp_path / "out").write_text("a longer old text\n")
    (tmp_path / "in").touch()
    before = (tmp_path / "out").stat().st_ino
    translate(overfitted, tmp_path, tmp_path / "out")
    assert (tmp_path / "out").stat().st_ino == before
    monkeypatch.setattr(files, "load_translator", lambda *_: pytest.fail("a model was loaded"))
    refused = call("translate", tmp_path / "in", "-o", tmp_path / "new", "-m", overfitted)
    assert "new: Permission denied" in refusal(refused)


# Lines without a letter.

DIGITS = """
[model]
layers = 1
d_model = 48
heads = 2
d_ff = 48
dropout = 0.0

[training]
steps = 150
tokens_per_update = 300
warmup = 40
vocab_size = 450
validate_every = 150
average = 1
precision = "fp32"
"""
WORDS = "zero one two three four five six seven eight nine".split()  # noqa: SIM905


def test_digits_are_written_as_words_by_a_model_that_learned_it(tmp_path: Path) -> None:
    """N44: in validation and translation; an older config.json leaves it out, and copies."""
    numbers = [f"{number * 1_237 % 10_000:04}" for number in range(1, 61)]
    pairs = [(" ".join(number), " ".join(WORDS[int(digit)] for digit in number)) for number in numbers]
    data = write_corpus(tmp_path / "corpus", train=pairs, valid=pairs[:20], test=pairs[20:30])
    (tmp_path / "recipe.toml").write_text(DIGITS)
    model = tmp_path / "model"
    trained = call("train", "--data", data, "--config", tmp_path / "recipe.toml", "-m", model, "--preset", "tiny")
    assert trained.exit_code == 0, trained.stderr
    [bleu] = [event["bleu"] for event in events(model) if event["event"] == "validation"]
    assert bleu > 20
    source = "".join(f"{digits}\n" for digits, _ in pairs[20:30]).encode()
    found = call("translate", "-m", model, stdin=source)
    assert [bool(line) and {*line.split()} <= {*WORDS} for line in found.stdout.splitlines()] == [True] * 10
    assert found.stderr == ""  # that numbers differ is no fault of such a model
    config = json.loads((model / "config.json").read_text())
    del config["data"]["copies_letterless"]  # as an older nmt wrote it
    (model / "config.json").write_text(json.dumps(config))
    assert call("translate", "-m", model, stdin=source).stdout_bytes == source
