"""`nmt train` under torchrun: several processes make the run of one, a single one speaks, and all end together."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import nmt
from tests.conftest import torchrun, write_corpus
from tests.runs import CLOCKS, Pairs, events, outcome, train, words

STEADY = ("--dropout", "0")  # each rank draws its own, so that only without it they make the run of one
TIMEOUT = 240  # seconds; torchrun itself waits up to 30 for a rank that does not end

Done = subprocess.CompletedProcess[str]

# Run instead of `nmt`: rank 1 does something after an update.
FAULTY = """
import os, signal, time
from pathlib import Path
from nmt.__main__ import main
from nmt.training.trainer import Trainer

update = Trainer.update

def faulty(self, *arguments):
    update(self, *arguments)
    if os.environ["RANK"] == "1" and self.progress.update == {after}:
        torchrun = os.getppid()
        {fault}

Trainer.update = faulty
main()
"""
DIE = "os.kill(os.getpid(), signal.SIGKILL)"
DIE_TOGETHER = (
    "children = Path(f'/proc/{torchrun}/task/{torchrun}/children').read_text().split(); "
    "[os.kill(int(pid), signal.SIGKILL) for pid in sorted([torchrun, *children], key=lambda pid: int(pid) == os.getpid())]"
)
TERMINATE = "os.kill(torchrun, signal.SIGTERM); time.sleep(1)"


def run(*arguments: str | Path) -> Done:
    """Run two processes to their end."""
    command = torchrun(2, *arguments)
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=TIMEOUT, check=False)


def train_together(model: Path, corpus: Path, *options: str, **changes: object) -> Done:
    """Train with two processes."""
    return run("-m", "nmt", *words(model, corpus, *options, **changes))


def train_with_fault(fault: str, after: int, model: Path, corpus: Path) -> Done:
    """Train with two processes, of which rank 1 executes `fault` after this update."""
    script = model.parent / "faulty.py"
    script.write_text(FAULTY.format(fault=fault, after=after))
    return run(script, *words(model, corpus))


def assert_one_tells(done: Done, sentence: str) -> None:
    """It failed, for a reason that one process gives, without a traceback through nmt."""
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert [line.startswith("nmt: ") for line in done.stderr.splitlines() if sentence in line] == [True], done.stderr
    assert str(Path(nmt.__file__).parent) not in done.stderr
    assert "SIGKILL" not in done.stderr, "a rank ignored torchrun, which killed it after 30 seconds"


@pytest.fixture(scope="module")
def alone(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by one process, without dropout."""
    model = tmp_path_factory.mktemp("alone") / "model"
    assert train(model, corpus, *STEADY).exit_code == 0
    return model


@pytest.fixture(scope="module")
def together(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """The same by two, and what they said."""
    model = tmp_path_factory.mktemp("together") / "model"
    done = train_together(model, corpus, *STEADY)
    assert done.returncode == 0, done.stderr
    return model, done


# To the end.


def test_two_ranks_make_the_run_of_one(together: tuple[Path, Done], alone: Path) -> None:
    """G2: One model directory with the same files, the same curve to 1e-4, and each line said by one rank alone."""
    model, done = together
    lines = done.stderr.splitlines()
    assert (done.stdout, len(lines)) == ("", len(set(lines)))
    assert "parameters on 2 ranks, each on CPU" in done.stderr
    names, expected = ({path.name for path in each.rglob("*") if path.parent.name != "tensorboard"} for each in (model, alone))
    assert names == expected
    own = CLOCKS | {"padding", "samples", "bleu", "same"}
    for event, other in zip(events(model), events(alone), strict=True):
        assert event.keys() == other.keys()
        for name in event.keys() - own:
            numbers = isinstance(event[name], float)
            assert event[name] == (pytest.approx(other[name], rel=1e-4) if numbers else other[name]), name


# Ends before it.


def test_a_rank_that_fails_ends_all(corpus: Path, tmp_path: Path) -> None:
    """G1: The others say so in one line."""
    done = train_with_fault(DIE, 5, tmp_path / "model", corpus)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.count("nmt: another rank is gone, and the run with it") == 1, done.stderr
    assert "[rank0]" not in done.stderr, "a traceback"
    assert "SIGKILL" in done.stderr


@pytest.mark.slow
def test_interrupted_anywhere_it_ends_the_same(corpus: Path, tmp_path: Path) -> None:
    """Stopped through torchrun by SIGTERM, then killed as a whole, it goes on to the same bytes, with dropout."""
    assert train_together(tmp_path / "straight", corpus).returncode == 0
    model = tmp_path / "model"
    done = train_with_fault(TERMINATE, 12, model, corpus)
    stopped = int(max(path.name for path in (model / "checkpoints").iterdir()).removeprefix("step-"))
    assert stopped in (12, 13)
    assert_one_tells(done, f"stopped after update {stopped} and saved; the same command resumes there")
    train_with_fault(DIE_TOGETHER, 19, model, corpus)
    done = train_together(model, corpus)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("resuming after update 16") == 1
    assert outcome(model) == outcome(tmp_path / "straight")


@pytest.mark.slow
@pytest.mark.parametrize("fewer", [True, False])
def test_other_ranks_go_on_with_the_same_updates(
    corpus: Path, tmp_path: Path, alone: Path, together: tuple[Path, Done], fewer: bool
) -> None:
    """From two ranks to one and from one to two, which is said: the curve goes on."""
    assert train(tmp_path / "straight", corpus, *STEADY, steps=40).exit_code == 0
    shutil.copytree(together[0] if fewer else alone, model := tmp_path / "model")
    done = (train if fewer else train_together)(model, corpus, *STEADY, steps=40)
    assert f"ranks was {1 + fewer}, now {2 - fewer}: the same updates, but not to the last bit" in done.stderr
    found, expected = (events(path)[-1] for path in (model, tmp_path / "straight"))
    assert found["step"] == 40
    assert found["perplexity"] == pytest.approx(expected["perplexity"], rel=1e-3)


# What is refused.


def test_a_mistake_is_told_once(corpus: Path, tmp_path: Path) -> None:
    """One that every rank finds by itself."""
    assert_one_tells(train_together(tmp_path / "model", corpus, "--preset", "huge"), "nmt: there is no preset 'huge'")
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_two_machines_need_the_same_text(corpus: Path, tmp_path: Path, demo_pairs: Pairs) -> None:
    """A torchrun of one process in each of two folders: with another text in one of them neither waits for the other."""
    other = write_corpus(tmp_path / "other", train=demo_pairs[:121])
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        meeting = f"--rdzv-endpoint=localhost:{probe.getsockname()[1]}"
    launcher = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", meeting]
    machines = []
    for name, data in (("first", corpus), ("second", other)):
        (tmp_path / name).mkdir()
        command = [sys.executable, *launcher, "-m", "nmt", *map(str, words(tmp_path / name / "model", data, steps=8))]
        environment = os.environ | {"NMT_CACHE": str(tmp_path / name / "cache")}
        machines.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    said = [machine.communicate(timeout=TIMEOUT)[1] for machine in machines]
    assert all(machine.returncode != 0 for machine in machines)
    assert any("the text on this machine differs from rank 0's" in errors for errors in said)
