"""How translations are written: what stands in a line of each format."""

import json

import pytest

from nmt.errors import UsageError
from nmt.translation.joining import Translation
from nmt.translation.output import output_format

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


def test_another_format_is_refused() -> None:
    """By name."""
    with pytest.raises(UsageError, match="--format xml"):
        output_format("xml", None)
