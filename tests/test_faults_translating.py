"""Faults of translating, of the files it writes and of the Python API that users reported, each met as its user met it."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.translation import loading
from tests.conftest import call, refusal, write_corpus
from tests.runs import events

FORKED = """
import os, signal, sys
import nmt

translator = nmt.load(sys.argv[1], engine=sys.argv[2])
if os.fork() == 0:
    signal.alarm(30)  # what hangs is ended
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
    """The same model for both engines."""
    model = shutil.copytree(overfitted, tmp_path_factory.mktemp("exported") / "model")
    assert call("export", "-m", model, "--quiet").exit_code == 0
    return model


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_fork_of_the_process_that_loaded_a_model(exported: Path, engine: str) -> None:
    """N11: it is told at once what to do, and can end; in the process that forked, all goes on."""
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    command = [sys.executable, "-c", FORKED, str(exported), engine]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "load it in each process, after the fork" in done.stderr
    assert done.stdout == call("translate", "-m", exported, stdin=b"I see the old man.\n").stdout


# -o onto what must stay what it is. Digits alone are copied: no translation is needed to see what becomes of the file.


def kept(path: Path) -> tuple[int, int, int]:
    """What a file is to those who know it by this name."""
    found = path.stat()
    return stat.S_IMODE(found.st_mode), found.st_uid, found.st_nlink


def written(overfitted: Path, folder: Path, output: Path) -> None:
    """Translate into it, and leave nothing else in the folder."""
    before = {*folder.iterdir(), output}
    (folder / "in").write_text("1\n2\n")
    done = call("translate", folder / "in", "-o", output, "-m", overfitted)
    assert (done.exit_code, done.stderr) == (0, "")
    assert output.read_text() == "1\n2\n"
    assert {*folder.iterdir()} == before | {folder / "in"}


def test_output_keeps_links_and_mode(overfitted: Path, tmp_path: Path) -> None:
    """N7: a symbolic link leads to the same file as before, or to the one it was to lead to; hard links and mode stay."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target = folder / "target"
    for link, mode in ((tmp_path / "link", 0o600), (tmp_path / "other", 0o664)):
        target.write_text("old\n")
        target.chmod(mode)
        link.symlink_to(target)
        before = kept(target)
        written(overfitted, tmp_path, link)
        assert (link.readlink(), target.read_text(), kept(target)) == (target, "1\n2\n", before)
        assert [path.name for path in folder.iterdir()] == ["target"]
    (tmp_path / "hard").hardlink_to(target)
    target.write_text("a longer text than what comes\n")
    written(overfitted, tmp_path, tmp_path / "hard")
    assert target.read_text() == "1\n2\n"
    target.unlink()
    written(overfitted, tmp_path, tmp_path / "link")
    assert (tmp_path / "link").readlink() == target


def test_a_picture_keeps_links_and_mode(overfitted: Path, tmp_path: Path) -> None:
    """N7: what `nmt attention` writes too."""
    (tmp_path / "map.svg").write_text("old")
    (tmp_path / "map.svg").chmod(0o600)
    (tmp_path / "link.svg").symlink_to("map.svg")
    done = call("attention", "The old man sleeps.", "-o", tmp_path / "link.svg", "--svg", "-m", overfitted)
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "map.svg").read_text().startswith("<svg")
    assert kept(tmp_path / "map.svg")[0] == 0o600


@pytest.mark.skipif(
    not shutil.which("unshare") or os.geteuid() != 0, reason="a file is bound to another by mounting it"
)
@pytest.mark.parametrize("source", ["in", "-"])
def test_output_onto_a_mount(overfitted: Path, tmp_path: Path, source: str) -> None:
    """N7: a file that a container binds from outside cannot be replaced: it is written in place, from file and from pipe."""
    for name, text in (("in", "1\n2\n"), ("outside", "a longer old text\n"), ("bound", "")):
        (tmp_path / name).write_text(text)
    script = f"mount --bind outside bound && {sys.executable} -m nmt translate {source} -o bound -m {overfitted} < in"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "outside").read_text() == "1\n2\n"
    assert {path.name for path in tmp_path.iterdir()} == {"in", "outside", "bound"}


def test_output_in_a_folder_that_cannot_be_written(
    overfitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N7: a file in it that can be is written in place, without parts; a new file is refused before a model is loaded."""
    closed = lambda path, mode: not (mode & os.W_OK and Path(path) == tmp_path)  # noqa: E731 - root may write anywhere
    monkeypatch.setattr("nmt.destination.os.access", closed)
    (tmp_path / "out").write_text("a longer old text\n")
    (tmp_path / "in").touch()
    before = (tmp_path / "out").stat().st_ino
    written(overfitted, tmp_path, tmp_path / "out")
    assert (tmp_path / "out").stat().st_ino == before
    monkeypatch.setattr(loading, "load_translator", lambda *_: pytest.fail("a model was loaded"))
    assert "new: Permission denied" in refusal(call("translate", tmp_path / "in", "-o", tmp_path / "new"))
    (tmp_path / "circle").symlink_to("circle")
    assert "circle: Too many levels" in refusal(call("translate", tmp_path / "in", "-o", tmp_path / "circle"))
    refused = refusal(call("translate", tmp_path / "in", "-o", tmp_path))
    assert f"{tmp_path}: Is a directory" in refused


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
    """N44: none is copied, in validation, translation, forced decoding or on the page, unless config.json says nothing."""
    numbers = [f"{number * 1_237 % 10_000:04}" for number in range(1, 61)]
    pairs = [(" ".join(number), " ".join(WORDS[int(digit)] for digit in number)) for number in numbers]
    data = write_corpus(tmp_path / "corpus", train=pairs, valid=pairs[:20], test=pairs[20:30])
    (tmp_path / "recipe.toml").write_text(DIGITS)
    model = tmp_path / "model"
    trained = call("train", "--data", data, "--config", tmp_path / "recipe.toml", "-m", model, "--preset", "tiny")
    assert trained.exit_code == 0, trained.stderr
    assert "to be translated, as in the training text" in trained.stderr
    [bleu] = [event["bleu"] for event in events(model) if event["event"] == "validation"]
    assert bleu > 20
    source = "".join(f"{digits}\n" for digits, _ in pairs[20:30]).encode()
    (tmp_path / "digits").write_bytes(source)
    found = call("translate", "-m", model, stdin=source)
    assert [bool(line) and {*line.split()} <= {*WORDS} for line in found.stdout.splitlines()] == [True] * 10
    assert found.stderr == ""  # other numbers than in the source are no fault of such a model
    forced = call("score", tmp_path / "digits", "--force-decode", tmp_path / "digits", "-m", model)
    assert all(float(row.split("\t")[1]) < -1 for row in forced.stdout.splitlines())
    assert call("attention", pairs[20][0], "-o", tmp_path / "page.html", "-m", model).exit_code == 0
    assert call("score", "-m", model, "--format", "json").stdout.startswith('[{"system"')

    config = json.loads((model / "config.json").read_text())
    del config["data"]["copies_letterless"]  # as an nmt that only ever copied wrote it
    (model / "config.json").write_text(json.dumps(config))
    assert call("translate", "-m", model, stdin=source).stdout_bytes == source
    assert "holds no letter" in refusal(call("attention", pairs[20][0], "-o", tmp_path / "page.html", "-m", model))


def test_a_closing_tag_is_no_sentence(overfitted: Path) -> None:
    """N16: it comes out as it went in, behind its sentence and on a line of its own."""
    lines = "<p>I see the old man.</p>\n</p>\n<br/>&nbsp;\n"
    first, *others = call("translate", "-m", overfitted, stdin=lines.encode()).stdout.splitlines()
    assert first.endswith("</p>")
    assert first.count("</p>") == 1
    assert others == ["</p>", "<br/>&nbsp;"]


def test_the_first_of_several_is_the_plain_result(exported: Path, sources: list[str]) -> None:
    """F5: in both engines, for text that the model knows and text that it does not."""
    pytest.importorskip("ctranslate2")
    unknown = [" ".join(source.split()[::-1]) for source in sources[:20]]
    text = "".join(f"{line}\n" for line in [*sources[:20], *unknown]).encode()
    for engine in ("torch", "ctranslate2"):
        options = ("translate", "-m", exported, "--engine", engine, "--format", "json")
        plain, several = (
            [json.loads(row)["hypotheses"] for row in call(*options, *more, stdin=text).stdout.splitlines()]
            for more in ([], ["--n-best", "4"])
        )
        assert [found[0]["text"] for found in plain] == [found[0]["text"] for found in several]
        for found in several:
            assert len({one["text"] for one in found}) == len(found)
