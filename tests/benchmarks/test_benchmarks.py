"""The benchmark runs and counts right. Nothing here asserts a speed."""

import json
import math
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt.ids import FIRST_PIECE
from tests.benchmarks import busy, gpu, gpu_needs, training, turns
from tests.benchmarks.contenders import TorchTransformer
from tests.conftest import write_corpus


def parent_of(process: int) -> int | None:
    """None of one that has ended, whether or not somebody has asked how."""
    try:
        state, parent, *_ = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(parent)


def test_training_benchmark_in_miniature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """nmt and `torch.nn.Transformer` in both precisions: the same model, and a number in every place."""
    monkeypatch.setattr(turns, "PAUSE", 0.0)
    training.main(["--smoke", "--threads", "1", "--json", str(tmp_path / "numbers.json")])
    rows = json.loads((tmp_path / "numbers.json").read_text())["rows"]
    names = [(name, precision) for name in ("nmt", "torch.nn.Transformer") for precision in ("fp32", "bf16")]
    assert [(row["contender"], row["precision"]) for row in rows] == names
    for row in rows:
        measured = ("tokens_per_second", "ratio", "share_of_peak", "memory", "memory_before", "loss", *row["seconds"])
        for number in (row[key] if isinstance(key, str) else key for key in measured):
            assert math.isfinite(number), row
            assert number > 0, row
        assert len(row["seconds"]) == 2
        assert row["least"] <= row["ratio"] <= row["greatest"]
        assert row["memory_before"] <= row["memory"]
        assert row["parameters"] == rows[0]["parameters"]
    assert rows[2]["ratio"] == 1
    printed = capsys.readouterr().out
    assert printed.count("\n| nmt ") == printed.count("\n| torch.nn.Transformer ") == 2


@pytest.mark.slow
def test_shared_machine_in_miniature(overfitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe beside each company: a row for each, whose ratio is that of its pair of turns."""
    output = tmp_path / "busy.json"
    few = ["--rounds", "1", "--seconds", "0.2", "--wait", "1", "--only", "pipe, torch"]
    busy.main(["-m", str(overfitted), *few, "--json", str(output)])
    rows = json.loads(output.read_text())
    assert [row["company"] for row in rows] == ["two loops", "another nmt translate", "PyTorch"]
    for row in rows:
        assert row["kept"] == [pytest.approx(row["beside"] / row["alone"])]
    assert capsys.readouterr().out.count("\n| pipe, torch | ") == 3


@pytest.mark.slow
def test_gpu_measurements_in_miniature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], demo_pairs: list[tuple[str, str]]
) -> None:
    """Every part but the compiler's, on a CPU: numbers in gpu.json and gpu.md, and no failure among them.

    The speeds are of the base model's vocabulary, whatever DATA holds, and with cuDNN's attention too.
    """
    data = write_corpus(tmp_path / "corpus", train=demo_pairs[:300], valid=demo_pairs[:10], test=demo_pairs[:10])
    gpu.main([str(data), str(tmp_path / "out"), "--miniature"])
    facts = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert not [name for name, fact in facts.items() if isinstance(fact, dict) and {*fact} & {"failed", "skipped"}], facts
    speeds = ("base (4,096), no", "base (4,096) with cuDNN, no", "big (4,096), no")
    assert list(facts) == ["machine", "seconds", *speeds[:2], "training", "sentences/s", "tests", speeds[2]]
    for name in speeds:
        for measure in ("tokens_per_second", "utilisation", "paper_hours", "updates", "micro_batches_per_update"):
            assert facts[name][measure] > 0, (name, measure)
    assert facts["training"]["updates"] == 4
    assert [update for update, _ in facts["training"]["validations"]] == [2, 4]
    assert facts["training"]["score"]["exit"] == facts["tests"]["exit"] == 0
    assert " test, en-de: BLEU " in facts["training"]["score"]["summary"][0]
    assert "test_losses_are_those_of_a_cpu" in (tmp_path / "out" / "tests.log").read_text()
    assert set(facts["sentences/s"]) == {f"{precision} beam {beam}" for precision in ("fp32", "bf16") for beam in (1, 4)}
    table = (tmp_path / "out" / "gpu.md").read_text()
    assert table in capsys.readouterr().out
    assert [row.split(",")[0] for row in table.splitlines() if "parameters |" in row] == [
        "| base (4",
        "| base (4",
        "| big (4",
    ]


def test_gpu_speeds_are_of_the_papers_vocabulary() -> None:
    """Cuda 15: of its size, with frequencies and lengths as text has them."""
    pairs = gpu.made_up(2_000, 37_000)
    ids = pairs.target.ids
    assert FIRST_PIECE <= ids.min() < FIRST_PIECE + 10
    assert 36_000 < ids.max() < 37_000
    assert (ids < FIRST_PIECE + 192).mean() == pytest.approx(0.5, abs=0.02), "half of all pieces are the commonest 192"
    assert pairs.source.lengths.mean() == pytest.approx(29, abs=2)
    assert np.corrcoef(pairs.source.lengths, pairs.target.lengths)[0, 1] > 0.9


def test_gpu_tests_that_take_too_long_leave_a_log_and_no_process(tmp_path: Path) -> None:
    """Cuda 13: what they started would run beside the speeds that are measured next."""
    found = gpu.outcome(["sh", "-c", "sleep 600 & echo $!; wait"], log := tmp_path / "log", 2)
    assert found == {"exit": -9, "summary": [log.read_text().strip()]}
    started, tries = int(found["summary"][0]), 0
    while parent_of(started) is not None:  # as long as the signal is on its way
        assert (tries := tries + 1) < 1_000
        time.sleep(0.01)


def test_gpu_script_tells_which_wheels_to_bring(tmp_path: Path) -> None:
    """Cuda 1, 2: of what is too old, not only of what is missing; and the versions that are tested."""
    old = tmp_path / "sentencepiece-0.2.2.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: sentencepiece\nVersion: 0.2.2\n")
    script, environment = Path(gpu.__file__).with_name("gpu.sh"), os.environ | {"PYTHON": sys.executable}
    environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run(["bash", script, "demo", tmp_path / "out"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    # An older pydantic comes without typing_inspection, which then is named too.
    assert f"{sys.executable} lacks sentencepiece>=0.2.3 (it has 0.2.2)" in done.stderr
    assert "pip download --no-deps" in done.stderr
    assert f"--python-version {platform.python_version()} " in done.stderr
    assert " -d wheels sentencepiece==0.2.3" in done.stderr


def test_gpu_script_knows_a_library_that_is_not_there() -> None:
    assert gpu_needs.lacks("no_such_library>=1.2") == "no_such_library>=1.2"
    assert gpu_needs.lacks("torch>=2.11") == ""
    assert gpu_needs.numbers("2.11.0+cu130") == [2, 11, 0] > gpu_needs.numbers("2.9.1")


def test_gpu_report_knows_when_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that would take too long is not begun, one that fails or takes too long is told of, and others go on."""
    report = gpu.Report(tmp_path)

    def fail() -> None:
        raise ValueError("injected")

    report.add("long", lambda: "done", needs=gpu.LIMIT + 1)
    report.add("failing", fail)
    report.add("short", lambda: "done")
    monkeypatch.setattr(gpu, "LIMIT", 0)
    report.add("endless", threading.Event().wait, needs=-gpu.LIMIT - 60)
    facts = json.loads((tmp_path / "gpu.json").read_text())
    assert set(facts["long"]) == {"skipped"}
    assert facts["failing"] == {"failed": "ValueError: injected"}
    assert facts["short"] == "done"
    assert facts["endless"] == {"failed": "TimeoutError: out of time"}


def test_lost_contender_keeps_its_row() -> None:
    printed = training.table([{"contender": "Joey NMT", "precision": "fp32", "lost": "no module"}])
    assert "| lost: no module |" in printed


def test_flops_are_those_that_torch_counts() -> None:
    """Forward and backward of a batch without padding."""
    sizes = {"layers": 2, "d_model": 32, "heads": 4, "d_ff": 48, "dropout": 0.3}
    source, target = torch.randint(12, 100, (3, 7)), torch.randint(12, 100, (3, 5))
    workload = {"sizes": sizes, "vocabulary_size": 100, "updates": [([(source, target, target)], target.numel())]}
    with FlopCounterMode(display=False) as counter:
        TorchTransformer(sizes, 100)(source, target).sum().backward()
    assert training.flops_per_token(workload) * target.numel() == pytest.approx(counter.get_total_flops())


def test_peers_are_pinned_plainly() -> None:
    """Name==version, and the same PyTorch as nmt's."""
    lines = Path(training.__file__).with_name("requirements.txt").read_text().splitlines()
    assert all(line.partition("==")[2].replace(".", "").isalnum() for line in lines)
    constraints = Path(training.__file__).parents[2] / "constraints.txt"
    assert lines[0] in constraints.read_text().splitlines()
