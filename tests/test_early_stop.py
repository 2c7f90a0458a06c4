"""`--patience`: a run that ends when BLEU rises no more, with the weights around its best."""

import dataclasses
import re
from pathlib import Path

import pytest

from nmt.scoring import metrics
from nmt.scoring.metrics import Score
from tests.runs import assert_mean, files, of, outcome, train

MEASURED = metrics.bleu
EVERY = {"validate_every": 2}  # of 24 updates
# The best is at update 6, which 10 only equals, then at 14; at update 8 validation fails, which says nothing of the model.
BLEU = (1.0, 2.0, 5.0, None, 5.0, 3.0, 6.0, 1.0, 1.0, 1.0, 1.0, 1.0)
MEAN = 7.0  # of the weights to use, validated when a run ends


def script(monkeypatch: pytest.MonkeyPatch, *values: float | None) -> None:
    """Let each validation find the next of these values, and fail for None."""
    left = iter(values)

    def scripted(hypotheses: list[str], references: list[list[str]]) -> Score:
        if (value := next(left)) is None:
            raise MemoryError("no room")
        return dataclasses.replace(MEASURED(hypotheses, references), value=value)

    monkeypatch.setattr(metrics, "bleu", scripted)


def validated(model: Path) -> list[int]:
    return [event["step"] for event in of("validation", model)]


def test_a_run_that_gets_no_better_stops_with_the_weights_of_its_best_and_goes_on_with_more_patience(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 2 validations no better than the best, the weights are the mean of the checkpoints that end at it.

    The same command then changes nothing; with more patience it ends as if that had been asked for at once.
    """
    model = tmp_path / "model"
    script(monkeypatch, *BLEU[:6], MEAN, *BLEU[6:10], MEAN)
    done = train(model, corpus, "--patience", "2", **EVERY)
    assert done.exit_code == 0, done.stderr
    assert validated(model) == [2, 4, 6, 8, 10, 12]
    assert_mean(model, 4, 6)
    assert re.search("stopping early, with the average of .* the best, update 6\n", done.stderr)

    before = files(model)
    done = train(model, corpus, "--patience", "2", **EVERY)
    assert (done.exit_code, "this run is finished (12 updates); train on with a larger --patience" in done.stderr) == (
        0,
        True,
    )
    assert files(model) == before

    done = train(model, corpus, "--patience", "3", **EVERY)
    assert done.exit_code == 0, done.stderr
    assert "resuming after update 12" in done.stderr
    assert validated(model)[-1] == 20
    assert_mean(model, 12, 14)
    script(monkeypatch, *BLEU[:10], MEAN)
    assert train(tmp_path / "at-once", corpus, "--patience", "3", **EVERY).exit_code == 0
    assert outcome(model) == outcome(tmp_path / "at-once")
