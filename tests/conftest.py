"""What many tests share: ways to run the command, a corpus, and models trained once per session."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from nmt.cli import app
from nmt.data.corpus import demo_folder
from nmt.data.vocabulary import Vocabulary, learn
from nmt.lines import read_lines

# Tests are small and run side by side: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTHONFAULTHANDLER", "1")  # prints the stack of a process that crashes
torch.set_num_threads(1)
# Shells start background jobs with Ctrl-C ignored, which the processes under test would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

Nmt = Callable[..., subprocess.CompletedProcess[bytes]]

# A few seconds of training, in which a model learns 200 pairs by heart.
RECIPE = """
[model]
layers = 2
d_model = 64
heads = 4
d_ff = 128
dropout = 0.0

[training]
steps = 400
tokens_per_update = 1000
warmup = 100
vocab_size = 600
validate_every = 200
average = 2
precision = "fp32"
"""


def run_nmt(
    *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """Run `nmt` as a process of its own; an `env` value of "" removes the variable."""
    environment = {name: value for name, value in (os.environ | env).items() if value}
    command = [sys.executable, "-m", "nmt", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env=environment, timeout=300, check=False)


def torchrun(count: int, *arguments: str | Path) -> list[str]:
    """The command that runs a script, or -m and a module, with its arguments as `count` processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    return [*launcher, *map(str, arguments)]


def call(*arguments: str | Path, stdin: bytes = b"") -> Result:
    """Run `nmt` inside this process, which saves the seconds that importing torch takes."""
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin, catch_exceptions=False)


def refusal(done: Result, code: int = 2) -> str:
    """The error of a command that ended with this exit code and printed nothing else."""
    assert done.exit_code == code, (done.exit_code, done.stderr)
    assert done.stdout_bytes == b""
    assert done.stderr.startswith("nmt: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first, so that they do not end long after the others."""
    longest = ["test_emulated.py", "test_demo.py", "test_readme.py"]
    items.sort(key=lambda item: longest.index(item.path.name) if item.path.name in longest else len(longest))


@pytest.fixture(scope="session")
def nmt() -> Nmt:
    return run_nmt


@pytest.fixture(scope="session")
def demo_pairs() -> list[tuple[str, str]]:
    """The first 2,000 training pairs of the demo corpus."""
    folder = demo_folder()
    return list(islice(zip(*(read_lines(folder / f"train.{side}.gz") for side in ("en", "de")), strict=True), 2_000))


@pytest.fixture(scope="session")
def vocabulary(demo_pairs: list[tuple[str, str]]) -> Vocabulary:
    return learn(demo_pairs, len(demo_pairs), 600, seed=1)


def write_corpus(folder: Path, **splits: list[tuple[str, str]]) -> Path:
    """Write a folder of text: train.en, train.de and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")
    return folder


def small_corpus(folder: Path, pairs: list[tuple[str, str]]) -> Path:
    """Write 120 pairs to train on, and three each for validation and test."""
    return write_corpus(folder, train=pairs[:120], valid=pairs[120:123], test=pairs[123:126])


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, demo_pairs: list[tuple[str, str]]) -> Path:
    """`small_corpus`, to be read only."""
    return small_corpus(tmp_path_factory.mktemp("small") / "corpus", demo_pairs)


@pytest.fixture(scope="session")
def straight_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The run of tests/runs.py, never interrupted: its model directory, to be read only, and what it said."""
    from tests.runs import train

    model = tmp_path_factory.mktemp("straight") / "model"
    done = train(model, corpus)
    assert (done.exit_code, done.stdout_bytes) == (0, b""), done.stderr
    return model, done


@pytest.fixture(scope="session")
def straight(straight_run: tuple[Path, Result]) -> Path:
    return straight_run[0]


@pytest.fixture
def finished(straight: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(straight, tmp_path / "model"))


def shown_on(terminal: int) -> bytes:
    """All that a process shows on this pseudo-terminal until it closes it."""
    shown = b""
    with suppress(OSError):  # raised once the process has closed its side
        while chunk := os.read(terminal, 10_000):
            shown += chunk
    return shown


@pytest.fixture(scope="session")
def overfitted(demo_pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows 200 pairs by heart, of which its valid and test text are 100 each. To be read only.

    Trained by the real command, once for all workers.
    """
    session = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent
    with (session / "overfitted.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (session / "overfitted").exists():
            root = tmp_path_factory.mktemp("being-overfitted")
            pairs = demo_pairs[:200]
            data = write_corpus(root / "tiny-corpus", train=pairs, valid=pairs[:100], test=pairs[100:])
            config = root / "recipe.toml"
            config.write_text(RECIPE)
            done = run_nmt("train", "--data", data, "--config", config, "-m", root / "model", "--preset", "tiny")
            assert done.returncode == 0, done.stderr.decode()
            root.rename(session / "overfitted")
    return session / "overfitted" / "model"


@pytest.fixture(scope="session")
def sources(demo_pairs: list[tuple[str, str]]) -> list[str]:
    """The 200 sentences that the overfitted model knows."""
    return [source for source, _ in demo_pairs[:200]]


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the tests out of the user's cache."""
    os.environ["NMT_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
