"""`--patience`: a run that ends when BLEU rises no more, with the weights of about its best."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nmt.scoring import metrics
from nmt.scoring.metrics import Score
from nmt.session import Session
from tests.runs import events, files, outcome, train

MEASURED, FINISH = metrics.bleu, Session.finish
EVERY = {"validate_every": 2}  # of 24 updates
PATIENT = ("--patience", "3")
RISE_AND_FALL = (1.0, 2.0, 5.0, 4.0, 4.5, 3.0, 6.0, 1.0, 1.0, 1.0, 1.0, 1.0)  # BLEU: best at 6, then at 14


def script(monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
    """Let validations score these, one after the other."""
    left = iter(values)

    def scripted(hypotheses: list[str], references: list[list[str]]) -> Score:
        return dataclasses.replace(MEASURED(hypotheses, references), value=next(left))

    def finish(self: Session) -> None:  # of the weights to use BLEU is what it is
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metrics, "bleu", MEASURED)
            FINISH(self)

    monkeypatch.setattr(metrics, "bleu", scripted)
    monkeypatch.setattr(Session, "finish", finish)


def assert_mean(model: Path, *updates: int) -> None:
    """The weights to use are the mean of these checkpoints'."""
    parts = [load_file(model / "checkpoints" / f"step-{update:06d}" / "model.safetensors") for update in updates]
    for name, tensor in load_file(model / "model.safetensors").items():
        mean = torch.stack([part[name].double() for part in parts]).mean(0).float()
        torch.testing.assert_close(tensor, mean, rtol=0, atol=1e-7)


def validated(model: Path) -> list[int]:
    return [event["step"] for event in events(model) if event["event"] == "validation"]


def test_a_run_that_gets_no_better_stops_with_the_weights_of_its_best_and_goes_on_with_more_patience(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many validations below the best, with the mean of the checkpoints that end at it; and says so.

    The same command then changes nothing; with more patience it ends as if that had been asked for at once.
    """
    model = tmp_path / "model"
    script(monkeypatch, *RISE_AND_FALL)
    done = train(model, corpus, *PATIENT, **EVERY)
    assert done.exit_code == 0, done.stderr
    assert validated(model) == [2, 4, 6, 8, 10, 12]
    assert_mean(model, 4, 6)
    [said] = [line for line in done.stderr.splitlines() if "stopping early" in line]
    assert re.search("no better BLEU in 3 validations.*average of the checkpoints up to the best, update 6$", said)
    assert "nmt score" in done.stderr
    assert (model / "report.html").exists()

    before = files(model)
    done = train(model, corpus, *PATIENT, **EVERY)
    assert (done.exit_code, done.stdout_bytes) == (0, b"")
    assert "this run is finished (12 updates); more with --patience" in done.stderr
    assert files(model) == before

    done = train(model, corpus, "--patience", "4", **EVERY)
    assert done.exit_code == 0, done.stderr
    assert "going on after update 12" in done.stderr
    assert validated(model)[-1] == 22
    assert_mean(model, 12, 14)
    script(monkeypatch, *RISE_AND_FALL)
    assert train(tmp_path / "at-once", corpus, "--patience", "4", **EVERY).exit_code == 0
    assert outcome(model) == outcome(tmp_path / "at-once")


def test_patience_that_lasts_to_the_last_update_stops_nothing_and_less_of_it_ends_the_run_where_it_is(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are the mean of the last checkpoints, and more is to be had with --steps; then those of about its best."""
    model = tmp_path / "model"
    script(monkeypatch, *RISE_AND_FALL)
    done = train(model, corpus, "--patience", "9", **EVERY)
    assert done.exit_code == 0, done.stderr
    assert "stopping early" not in done.stderr
    assert_mean(model, 22, 24)
    assert "more with --steps" in train(model, corpus, "--patience", "9", **EVERY).stderr

    done = train(model, corpus, *PATIENT, "--steps", "48", **EVERY)
    assert done.exit_code == 0, done.stderr
    assert "this run is finished (24 updates)" in done.stderr
    assert_mean(model, 12, 14)
    assert json.loads((model / "config.json").read_text())["training"]["patience"] == 3


def test_a_validation_that_failed_tries_nobody_s_patience(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no worse BLEU, but none."""
    script(monkeypatch, 5.0)  # and after it an error, at each validation
    done = train(tmp_path / "model", corpus, "--patience", "1", **EVERY)
    assert done.exit_code == 0, done.stderr
    assert validated(tmp_path / "model")[-1] == 24
    assert "stopping early" not in done.stderr
