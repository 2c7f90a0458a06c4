"""`nmt train` under torchrun: the run of one process by several, of which one speaks, and which all end together."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import nmt
from nmt.lines import read_lines
from nmt.scoring import metrics
from tests.conftest import call, torchrun, write_corpus
from tests.runs import Pairs, events, files, outcome, recipe, train, words

STEADY = ("--dropout", "0")  # so that the ranks, which draw each their own, make the run of one
LONG = 60  # seconds that no end may take, however slow the machine; more than torchrun's own patience of 30

# Run in the place of `nmt`: rank 1 does something after an update.
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
RAISE = "raise ValueError('injected')"
DIE = "os.kill(os.getpid(), signal.SIGKILL)"
DIE_TOGETHER = (
    "children = Path(f'/proc/{torchrun}/task/{torchrun}/children').read_text().split(); "
    "[os.kill(int(pid), signal.SIGKILL) for pid in sorted([torchrun, *children], key=lambda pid: int(pid) == os.getpid())]"
)
TERMINATE = "os.kill(torchrun, signal.SIGTERM); time.sleep(1)"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Two processes, to their end; none of them outlives the test."""
    with subprocess.Popen(
        torchrun(2, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            out, errors = process.communicate(timeout=4 * LONG)
        except subprocess.TimeoutExpired:
            for child in children.read_text().split():
                os.kill(int(child), signal.SIGKILL)
            process.kill()
            raise AssertionError(f"it hangs, having said: {process.communicate()[1]}") from None
    return subprocess.CompletedProcess(arguments, process.returncode, out, errors)


def train_together(model: Path, corpus: Path, *options: str, **changes: object) -> subprocess.CompletedProcess[str]:
    """Two processes train."""
    return run("-m", "nmt", *words(model, corpus, *options, **changes))


def train_with_fault(
    fault: str, after: int, model: Path, corpus: Path, **changes: object
) -> subprocess.CompletedProcess[str]:
    """Two processes train until rank 1 does this, after so many updates."""
    script = model.parent / "faulty.py"
    script.write_text(FAULTY.format(fault=fault, after=after))
    return run(script, *words(model, corpus, **changes))


def assert_one_tells(done: subprocess.CompletedProcess[str], sentence: str, by: str = "nmt: ") -> None:
    """It failed, for a reason that is told once and without a traceback through nmt."""
    assert done.returncode != 0
    assert done.stdout == ""
    assert [line.startswith(by) for line in done.stderr.splitlines() if sentence in line] == [True], done.stderr
    assert str(Path(nmt.__file__).parent) not in done.stderr
    assert "SIGKILL" not in done.stderr, "a rank did not heed torchrun, which lost its patience after 30 seconds"


@pytest.fixture(scope="module")
def alone(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by one process, without dropout."""
    model = tmp_path_factory.mktemp("alone") / "model"
    assert train(model, corpus, *STEADY).exit_code == 0
    return model


@pytest.fixture(scope="module")
def together(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The same by two, and what they said."""
    model = tmp_path_factory.mktemp("together") / "model"
    done = train_together(model, corpus, *STEADY)
    assert done.returncode == 0, done.stderr
    return model, done


def assert_same_curve(found: Path, expected: Path) -> None:
    """The logs agree in all that the arithmetic of several ranks does not touch, and in losses to 1e-4."""
    own = {"tokens_per_second", "minutes", "padding", "samples", "bleu", "same"}
    for event, other in zip(events(found), events(expected), strict=True):
        assert event.keys() == other.keys()
        for name in event.keys() - own:
            numbers = isinstance(event[name], float)
            assert event[name] == (pytest.approx(other[name], rel=1e-4) if numbers else other[name]), name


# To the end.


def test_two_ranks_make_the_run_of_one(together: tuple[Path, subprocess.CompletedProcess[str]], alone: Path) -> None:
    """One model directory with the same files, and the same curve to 1e-4."""
    model, _ = together
    assert {path.name for path in model.rglob("*") if path.parent.name != "tensorboard"} == {
        path.name for path in alone.rglob("*") if path.parent.name != "tensorboard"
    }
    assert_same_curve(model, alone)


def test_only_rank_0_speaks(together: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Nothing on stdout, each line once, and how many they are."""
    model, done = together
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == len(set(lines))
    assert "parameters on 2 ranks, each on CPU" in done.stderr
    assert done.stderr.count("validation perplexity") == 4
    assert lines[-1].split() == ["translate", "nmt", "translate", "-m", str(model), "FILE"]


def test_the_logged_bleu_is_that_of_the_checkpoint(together: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Translated by one process, all lines in their order."""
    model, _ = together
    *_, logged = (event for event in events(model) if "bleu" in event)
    text = [model / "heldout" / f"valid.{language}.gz" for language in ("en", "de")]
    done = call("translate", "-m", model / "checkpoints" / f"step-{logged['step']:06d}", text[0])
    lines = done.stdout_bytes.decode().splitlines()
    assert metrics.bleu(lines, [list(read_lines(text[1]))]).value == logged["bleu"]
    for sample in logged["samples"]:
        assert sample["translation"] == lines[sample["line"] - 1]


# Ends before it.


@pytest.mark.parametrize("fault", [DIE, pytest.param(RAISE, marks=pytest.mark.slow)])
def test_a_rank_that_fails_ends_all(corpus: Path, tmp_path: Path, fault: str) -> None:
    """The others say so in one line, and the one that failed says why, if it still can."""
    done = train_with_fault(fault, 5, tmp_path / "model", corpus)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.count("nmt: another rank is gone, and the run with it") == 1, done.stderr
    assert "[rank0]" not in done.stderr, "a traceback"
    if fault == RAISE:
        assert "[rank1]: ValueError: injected" in done.stderr
    else:
        assert "SIGKILL" in done.stderr


@pytest.fixture(scope="module")
def uninterrupted(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by two ranks, with dropout."""
    model = tmp_path_factory.mktemp("uninterrupted") / "model"
    done = train_together(model, corpus)
    assert done.returncode == 0, done.stderr
    return model


@pytest.mark.slow
def test_interrupted_anywhere_it_ends_the_same(corpus: Path, tmp_path: Path, uninterrupted: Path) -> None:
    """Stopped through torchrun by SIGTERM, then killed as a whole, it goes on to the same bytes."""
    model = tmp_path / "model"
    done = train_with_fault(TERMINATE, 12, model, corpus)
    stopped = int(max(path.name for path in (model / "checkpoints").iterdir()).removeprefix("step-"))
    assert stopped in (12, 13)
    assert_one_tells(done, f"stopped after update {stopped} and saved; the same command goes on from there")
    train_with_fault(DIE_TOGETHER, 19, model, corpus)
    done = train_together(model, corpus)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("going on after update 16") == 1
    assert outcome(model) == outcome(uninterrupted)


@pytest.mark.slow
def test_other_ranks_go_on_with_the_same_updates(
    corpus: Path, tmp_path: Path, alone: Path, together: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    """From two ranks to one and from one to two: it is said, and the curve goes on."""
    assert train(tmp_path / "straight", corpus, *STEADY, steps=40).exit_code == 0
    expected = events(tmp_path / "straight")[-1]["perplexity"]

    shutil.copytree(together[0], tmp_path / "to-one")
    fewer = train(tmp_path / "to-one", corpus, *STEADY, steps=40)
    assert fewer.exit_code == 0, fewer.stderr
    assert fewer.stderr.count("ranks was 2, now 1: the same updates, but not to the last bit") == 1
    assert events(tmp_path / "to-one")[-1]["perplexity"] == pytest.approx(expected, rel=1e-3)

    shutil.copytree(alone, tmp_path / "to-two")
    more = train_together(tmp_path / "to-two", corpus, *STEADY, steps=40)
    assert more.returncode == 0, more.stderr
    assert more.stderr.count("ranks was 1, now 2: the same updates, but not to the last bit") == 1
    assert events(tmp_path / "to-two")[-1]["perplexity"] == pytest.approx(expected, rel=1e-3)


# What is refused.


def test_a_mistake_is_told_once(corpus: Path, tmp_path: Path) -> None:
    """One that every rank finds by itself."""
    assert_one_tells(train_together(tmp_path / "model", corpus, "--preset", "huge"), "nmt: there is no preset 'huge'")
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_another_run_is_refused_by_rank_0_alone(
    corpus: Path, tmp_path: Path, together: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    model = tmp_path / "model"
    shutil.copytree(together[0], model)
    before = files(model)
    assert_one_tells(train_together(model, corpus, "--dropout", "0.5"), "dropout was 0.0, now 0.5")
    assert files(model) == before


def on_two_machines(tmp_path: Path, *corpora: Path) -> list[subprocess.CompletedProcess[str]]:
    """A torchrun of one process in each of two folders, which share nothing but the network."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    processes = []
    for name, data in zip(("first", "second"), corpora, strict=True):
        (tmp_path / name).mkdir()
        shutil.copytree(data, tmp_path / name / "corpus")
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "-m", "nmt"]
        command = [*launcher, *meeting, "train", "--data=corpus", "--preset=tiny", "--model=model"]
        processes.append(
            subprocess.Popen(
                [*command, f"--config={recipe(tmp_path / name, steps=8)}"],
                cwd=tmp_path / name,
                env=os.environ | {"NMT_CACHE": str(tmp_path / name / "cache")},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [process.communicate(timeout=4 * LONG)[1] for process in processes]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, "", errors)
        for process, errors in zip(processes, said, strict=True)
    ]


@pytest.mark.slow
def test_two_machines_need_share_no_folder(corpus: Path, tmp_path: Path) -> None:
    """Each has its corpus and prepares its own ids; the model is written by rank 0 alone."""
    ends = on_two_machines(tmp_path, corpus, corpus)
    assert [end.returncode for end in ends] == [0, 0], ends
    assert sum((tmp_path / name / "model").exists() for name in ("first", "second")) == 1
    assert all((tmp_path / name / "cache").is_dir() for name in ("first", "second"))


@pytest.mark.slow
def test_another_text_on_the_second_machine_ends_both(corpus: Path, tmp_path: Path, demo_pairs: Pairs) -> None:
    """While rank 0 waits for it: neither hangs, and the reason is told."""
    other = write_corpus(tmp_path / "other", train=demo_pairs[:121])
    ends = on_two_machines(tmp_path, corpus, other)
    assert all(end.returncode != 0 for end in ends)
    assert any("the text on this machine is another than rank 0's" in end.stderr for end in ends)
