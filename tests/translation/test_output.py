"""Output formats: what a line of each holds, and that all agree about a trained model."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import nmt
from nmt.translation.hypothesis import length_penalty
from tests.conftest import call, refusal


def translated(model: Path, lines: Sequence[str], *options: str) -> list[str]:
    """The output of `nmt translate` for these lines."""
    done = call("translate", "-m", model, *options, stdin="\n".join(lines).encode())
    assert done.exit_code == 0, done.stderr
    return done.stdout_bytes.decode().split("\n")[:-1]


def test_python_gives_what_the_command_gives(overfitted: Path, sources: list[str]) -> None:
    """`nmt.load(...).translate([...], beam=...)` is the command's translation, split by the same rules."""
    translator = nmt.load(str(overfitted))
    lines = [*sources[:10], "", "-", "Hello world", " ".join(sources[:3])]
    for beam in (1, 4):
        assert translator.translate(lines, beam=beam) == translated(overfitted, lines, "--beam", str(beam))


def test_n_best_and_json_agree(overfitted: Path, sources: list[str]) -> None:
    """Both list the same translations, best first, and the first one is written without them; scores follow the formula."""
    lines = [*sources[:6], "", "-", " ".join(sources[:2]), "Hello world"]
    plain = translated(overfitted, lines)
    table = [row.split("\t") for row in translated(overfitted, lines, "--n-best", "3")]
    records = [json.loads(row) for row in translated(overfitted, lines, "--n-best", "3", "--format", "json")]
    lists = [record["hypotheses"] for record in records]
    assert [(record["line"], record["source"]) for record in records] == list(enumerate(lines, 1))
    assert table == [
        [str(number), str(rank), f"{each['score']:.4f}", each["text"]]
        for number, hypotheses in enumerate(lists, 1)
        for rank, each in enumerate(hypotheses, 1)
    ]
    assert [hypotheses[0]["text"] for hypotheses in lists] == plain
    assert [len(hypotheses) for hypotheses in lists] == [3, 3, 3, 3, 3, 3, 1, 1, 3, 3]
    for hypotheses in lists:
        scores = [each["score"] for each in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({each["text"] for each in hypotheses}) == len(scores)
    for each in (each for hypotheses in lists[:6] for each in hypotheses):
        penalty = length_penalty(each["tokens"], 0.6)
        assert each["score"] == pytest.approx(each["log_probability"] / penalty, rel=1e-5)
    copied = {"score": 0.0, "log_probability": 0.0, "tokens": 0, "flags": []}
    assert lists[6:8] == [[{"text": ""} | copied], [{"text": "-"} | copied]]
    assert lists[8][0]["score"] == pytest.approx(lists[0][0]["score"] + lists[1][0]["score"], abs=1e-4)


def test_details_of_each_piece_and_each_word(overfitted: Path, sources: list[str]) -> None:
    """Log-probabilities add up to that of the translation, and links stay within a sentence."""
    lines = [f"{one} {other}" for one, other in zip(sources[:20:2], sources[1:20:2], strict=True)]
    plain, detailed = (
        [json.loads(row) for row in translated(overfitted, lines, "--format", "json", *more)] for more in ([], ["--details"])
    )
    for line, before, record in zip(lines, plain, detailed, strict=True):
        [one] = record["hypotheses"]
        assert sum(one["log_probabilities"]) == pytest.approx(one["log_probability"], abs=1e-4)
        assert len(one["pieces"]) == len(one["log_probabilities"]) == one["tokens"]
        assert "".join(one["pieces"]).replace("</s>", "").replace("\u2581", " ").strip() == one["text"]
        links = [tuple(map(int, link.split("-"))) for link in one.pop("alignment").split()]
        assert [target for _, target in links] == list(range(len(one["text"].split())))
        middles = (next(i for i, word in enumerate(text.split()) if "." in word) for text in (line, one["text"]))
        source_middle, target_middle = middles
        assert all((i <= source_middle) == (j <= target_middle) for i, j in links)
        del one["pieces"], one["log_probabilities"]
        assert record == before
    assert "--details" in refusal(call("translate", "-m", overfitted, "--details"))
