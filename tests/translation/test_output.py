"""How translations are written: what stands in a line of each format, and that all tell the same of a trained model."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import nmt
from nmt.translation.hypothesis import length_penalty
from nmt.translation.joining import Translation
from nmt.translation.output import output_format
from tests.conftest import call

SOURCE = 'Say "Stop!"\t\\ \u2028 ünd 😀\r'
FOUND = [
    Translation('Sag "Halt!" ünd 😀', -0.41234567890123, -3.25, 9, ["limit"]),
    Translation("Halt", -1.5, -7.0, 3, []),
]


def test_text_is_the_best_alone() -> None:
    """Without a number asked for, a line is the best translation and nothing else."""
    assert output_format("text", None)(7, SOURCE, FOUND) == FOUND[0].text


def test_n_best_are_a_table() -> None:
    """A line each: line number, rank, score with four digits, text; also where one is asked for, and of a blank line."""
    write = output_format("text", 2)
    assert write(7, SOURCE, FOUND) == f"7\t1\t-0.4123\t{FOUND[0].text}\n7\t2\t-1.5000\tHalt"
    assert output_format("text", 1)(7, SOURCE, FOUND[1:]) == "7\t1\t-1.5000\tHalt"
    assert write(8, "", [Translation("", 0.0, 0.0, 0, [])]) == "8\t1\t0.0000\t"


@pytest.mark.parametrize("n_best", [None, 2])
def test_json_is_one_line_that_holds_all(n_best: int | None) -> None:
    """An object on one line with the source as it was read, all digits, and no escape that JSON does not demand."""
    written = output_format("json", n_best)(7, SOURCE, FOUND)
    assert "\n" not in written
    assert "ünd 😀" in written
    assert json.loads(written) == {
        "line": 7,
        "source": SOURCE,
        "hypotheses": [
            {
                "text": 'Sag "Halt!" ünd 😀',
                "score": -0.41234567890123,
                "log_probability": -3.25,
                "tokens": 9,
                "flags": ["limit"],
            },
            {"text": "Halt", "score": -1.5, "log_probability": -7.0, "tokens": 3, "flags": []},
        ],
    }


def translated(model: Path, lines: Sequence[str], *options: str) -> list[str]:
    """What `nmt translate` writes of these lines."""
    done = call("translate", "-m", model, *options, stdin="\n".join(lines).encode())
    assert done.exit_code == 0, done.stderr
    return done.stdout_bytes.decode().split("\n")[:-1]


def test_python_gives_what_the_command_gives(overfitted: Path, sources: list[str]) -> None:
    """`nmt.load(...).translate([...], beam=...)` is the command's translation, for every beam, split by the same rules."""
    translator = nmt.load(str(overfitted))
    assert (translator.source, translator.spaced) == ("en", (True, True))  # as config.json has it
    lines = [*sources[:10], "", "-", "Hello world", " ".join(sources[:3])]
    for beam in (1, 4):
        assert translator.translate(lines, beam=beam) == translated(overfitted, lines, "--beam", str(beam))


def test_n_best_and_json_tell_the_same(overfitted: Path, sources: list[str]) -> None:
    """Both list the same translations, the best first, and the first is what is written without them."""
    lines = [*sources[:6], "", "-", " ".join(sources[:2]), "Hello world"]
    plain = translated(overfitted, lines)
    table = [row.split("\t") for row in translated(overfitted, lines, "--n-best", "3")]
    records = [json.loads(row) for row in translated(overfitted, lines, "--n-best", "3", "--format", "json")]
    assert [(record["line"], record["source"]) for record in records] == list(enumerate(lines, 1))
    found = [
        (record["line"], rank, hypothesis)
        for record in records
        for rank, hypothesis in enumerate(record["hypotheses"], 1)
    ]
    assert table == [
        [str(line), str(rank), f"{hypothesis['score']:.4f}", hypothesis["text"]] for line, rank, hypothesis in found
    ]
    assert [record["hypotheses"][0]["text"] for record in records] == plain
    assert [len(record["hypotheses"]) for record in records] == [3, 3, 3, 3, 3, 3, 1, 1, 3, 3]
    for record in records:
        scores = [hypothesis["score"] for hypothesis in record["hypotheses"]]
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis["text"] for hypothesis in record["hypotheses"]}) == len(scores)
    for record in records[:6]:
        for hypothesis in record["hypotheses"]:
            penalty = length_penalty(hypothesis["tokens"], 0.6)
            assert hypothesis["score"] == pytest.approx(hypothesis["log_probability"] / penalty, rel=1e-5)
    for number in (6, 7):
        assert records[number]["hypotheses"][0] | {"text": ""} == {
            "text": "", "score": 0.0, "log_probability": 0.0, "tokens": 0, "flags": []
        }  # fmt: skip
    both = [records[number]["hypotheses"][0] for number in (0, 1)]
    assert records[8]["hypotheses"][0]["score"] == pytest.approx(sum(one["score"] for one in both), abs=1e-4)


def test_details_tell_each_piece_and_each_word(overfitted: Path, sources: list[str]) -> None:
    """Log-probabilities add up to the translation's own, and links stay within a sentence."""
    lines = [f"{one} {other}" for one, other in zip(sources[:20:2], sources[1:20:2], strict=True)]
    plain, detailed = (
        [json.loads(row) for row in translated(overfitted, lines, "--format", "json", *more)]
        for more in ([], ["--details"])
    )
    for line, before, record in zip(lines, plain, detailed, strict=True):
        [one] = record["hypotheses"]
        assert sum(one["log_probabilities"]) == pytest.approx(one["log_probability"], abs=1e-4)
        assert len(one["pieces"]) == len(one["log_probabilities"]) == one["tokens"]
        assert "".join(one["pieces"]).replace("</s>", "").replace("\u2581", " ").strip() == one["text"]
        links = [tuple(map(int, link.split("-"))) for link in one.pop("alignment").split()]
        assert [target for _, target in links] == list(range(len(one["text"].split())))
        middle, target_middle = (
            words.split().index(next(w for w in words.split() if w.endswith("."))) for words in (line, one["text"])
        )
        assert all((i <= middle) == (j <= target_middle) for i, j in links), "a link from one sentence into the other"
        assert max(i for i, _ in links) < len(line.split())
        del one["pieces"], one["log_probabilities"]
        assert record == before
