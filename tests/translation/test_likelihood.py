"""Given translations: `nmt score --force-decode` reports for them what `nmt translate` reported when it found them."""

import json
from pathlib import Path
from typing import Any

import pytest

from nmt.lines import read_lines
from tests.conftest import call, refusal

Given = tuple[Path, Path, list[dict[str, Any]]]


def objects(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.decode().split("\n")[:-1]]


def force_decode(model: Path, target: Path, source: Path) -> list[dict[str, Any]]:
    """The hypotheses of `nmt score --force-decode`, one for each line."""
    done = call("score", target, "--force-decode", source, "-m", model, "--format", "json")
    assert done.exit_code == 0, done.stderr
    return [hypothesis for each in objects(done.stdout_bytes) for hypothesis in each["hypotheses"]]


@pytest.fixture(scope="module")
def given(overfitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Given:
    """Sources, some of them odd, the file of their translations, and what `nmt translate` reported for these."""
    folder = tmp_path_factory.mktemp("given")
    odd = ["", "12.5 %", "  The old man sleeps.  ", "He is old. She has seen him, too. " * 8]
    source, target = folder / "source.en", folder / "target.de"
    source.write_text("\n".join([*read_lines(overfitted / "heldout" / "test.en.gz"), *odd]) + "\n", encoding="utf-8")
    options = ["-m", str(overfitted), "--no-split", "--format", "json", "--details"]
    told = objects(call("translate", source, *options).stdout_bytes)
    target.write_text("".join(each["hypotheses"][0]["text"] + "\n" for each in told), encoding="utf-8")
    return source, target, told


def test_the_same_pieces_have_the_same_log_probabilities(overfitted: Path, given: Given) -> None:
    """To 1e-4: each token's, their sum and the score, with the same alignment, for most lines, which have the same pieces."""
    source, target, told = given
    same = 0
    for found, [expected] in zip(force_decode(overfitted, target, source), (each["hypotheses"] for each in told), strict=True):
        assert found["text"] == expected["text"]
        if found["pieces"] == expected["pieces"]:
            same += 1
            assert found["log_probabilities"] == pytest.approx(expected["log_probabilities"], abs=1e-4)
            for key in ("log_probability", "score", "tokens"):
                assert found[key] == pytest.approx(expected[key], abs=1e-4)
            assert found["alignment"] == expected["alignment"]
    assert same > 0.9 * len(told)


def test_a_wrong_translation_is_less_likely(overfitted: Path, tmp_path: Path) -> None:
    """References shifted by a line are far less likely."""
    target, source = (overfitted / "heldout" / f"test.{language}.gz" for language in ("de", "en"))
    lines = [*read_lines(target)]
    wrong = tmp_path / "wrong.de"
    wrong.write_text("\n".join(lines[1:] + lines[:1]), encoding="utf-8")
    right, shifted = (
        sum(each["log_probability"] for each in found) / sum(each["tokens"] for each in found)
        for found in (force_decode(overfitted, text, source) for text in (target, wrong))
    )
    assert right > -0.5
    assert shifted < 5 * right


def test_what_cannot_be_forced_is_refused(overfitted: Path, tmp_path: Path) -> None:
    """No hypothesis, options of a comparison, and files that do not line up, each by name."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("Eins.\n")
    two.write_text("One.\nTwo.\n")
    options: list[str | Path] = ["-m", overfitted, "--force-decode", two]
    message = refusal(call("score", one, *options))
    assert all(word in message for word in (str(one), "1 line ", str(two), "2"))
    assert "HYPOTHESIS" in refusal(call("score", *options))
    assert "--metric" in refusal(call("score", two, *options, "--metric", "ter"))
