"""What many tests share: the command line as a real process, and a small model trained once a session."""

import fcntl
import os
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

# The tests are many small processes, whose threads would only wait on each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTHONFAULTHANDLER", "1")  # whatever aborts a process, the log has its stack
torch.set_num_threads(1)
# A job in a shell's background ignores Ctrl-C, and so would each process that is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)

Nmt = Callable[..., subprocess.CompletedProcess[bytes]]

# A few seconds of training that a model overfits: 200 pairs of the demo corpus.
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
    """`nmt` with these arguments as a process of its own; an `env` value of "" removes the variable."""
    environment = {name: value for name, value in (os.environ | env).items() if value}
    command = [sys.executable, "-m", "nmt", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env=environment, timeout=300, check=False)


def torchrun(count: int, *arguments: str | Path) -> list[str]:
    """The command that runs a script, or -m and a module, with its arguments as so many processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    return [*launcher, *map(str, arguments)]


def call(*arguments: str | Path, stdin: bytes = b"") -> Result:
    """`nmt` with these arguments inside this process, which spares the seconds it takes to import torch."""
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin, catch_exceptions=False)


def refusal(done: Result, code: int = 2) -> str:
    """The one sentence on stderr of a command that ended with this exit code and left stdout empty."""
    assert done.exit_code == code, (done.exit_code, done.stderr)
    assert done.stdout_bytes == b""
    assert done.stderr.startswith("nmt: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no worker is left alone with one at the end."""
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
    """A folder of text: train.en, train.de and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")
    return folder


def small_corpus(folder: Path, pairs: list[tuple[str, str]]) -> Path:
    """120 pairs to train on, three each for validation and test."""
    return write_corpus(folder, train=pairs[:120], valid=pairs[120:123], test=pairs[123:126])


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, demo_pairs: list[tuple[str, str]]) -> Path:
    """`small_corpus`, in which nothing writes."""
    return small_corpus(tmp_path_factory.mktemp("small") / "corpus", demo_pairs)


def shown_on(terminal: int) -> bytes:
    """All that a process shows on the pseudo-terminal of this descriptor, until it has closed it."""
    shown = b""
    with suppress(OSError):  # the other side is closed
        while chunk := os.read(terminal, 10_000):
            shown += chunk
    return shown


@pytest.fixture(scope="session")
def overfitted(demo_pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory trained by the real command on 200 pairs, whose valid and test text are 100 of the same.

    Trained once for all workers: nothing writes into it.
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
    """The 200 sentences that the overfitted model has learned."""
    return [source for source, _ in demo_pairs[:200]]


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing that tests prepare lands in the user's cache, or comes from it."""
    os.environ["NMT_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
