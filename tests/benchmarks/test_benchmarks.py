"""The benchmark runs and counts right. Nothing here asserts a speed."""

import json
import math
import threading
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks import gpu, training, turns
from tests.benchmarks.contenders import TorchTransformer
from tests.conftest import write_corpus


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
def test_gpu_measurements_in_miniature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], demo_pairs: list[tuple[str, str]]
) -> None:
    """Every part but the compiler's, on a CPU: numbers in gpu.json and gpu.md, and no failure among them."""
    data = write_corpus(tmp_path / "corpus", train=demo_pairs[:300], valid=demo_pairs[:10], test=demo_pairs[:10])
    gpu.main([str(data), str(tmp_path / "out"), "--miniature"])
    written = (tmp_path / "out" / "gpu.json").read_text()
    assert "failed" not in written
    assert "skipped" not in written
    facts = json.loads(written)
    speeds = ("base (4,096), no", "big (4,096), no")
    assert list(facts) == ["machine", "seconds", *speeds, "training", "sentences/s"]
    for name in speeds:
        for measure in ("tokens_per_second", "utilisation", "paper_hours", "updates", "micro_batches_per_update"):
            assert facts[name][measure] > 0, (name, measure)
    assert facts["training"]["updates"] == 4
    assert [update for update, _ in facts["training"]["validations"]] == [2, 4]
    assert " test, en-de: BLEU " in facts["training"]["score"]
    assert set(facts["sentences/s"]) == {
        f"{precision} beam {beam}" for precision in ("fp32", "bf16") for beam in (1, 4)
    }
    table = (tmp_path / "out" / "gpu.md").read_text()
    assert table in capsys.readouterr().out
    assert [row.split(" (")[0] for row in table.splitlines() if "parameters |" in row] == ["| base", "| big"]


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
