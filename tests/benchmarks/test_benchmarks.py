"""The benchmark runs and counts right. Nothing here asserts a speed."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks import training
from tests.benchmarks.contenders import TorchTransformer


def test_training_benchmark_in_miniature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """nmt and `torch.nn.Transformer` in both precisions: the same model, and a number in every place."""
    monkeypatch.setattr(training, "PAUSE", 0.0)
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
