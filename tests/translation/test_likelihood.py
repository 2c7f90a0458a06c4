"""Given translations: what `nmt score --force-decode` says of them is what `nmt translate` said as it found them."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from nmt.errors import NmtError
from nmt.lines import read_lines
from nmt.model.transformer import Memory, Transformer
from nmt.translation.engine import TorchEngine
from tests.conftest import call, refusal
from tests.translation.test_search import sentences, small_model


def objects(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.decode().split("\n")[:-1]]


@pytest.fixture(scope="module")
def given(overfitted: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[dict[str, Any]]]:
    """Sources, their translations by a beam, and what was told of these; some lines are odd."""
    folder = tmp_path_factory.mktemp("given")
    odd = ["", "12.5 %", "  The old man sleeps.  ", "He is old. She has seen him, too. " * 8]
    source, target = folder / "source.en", folder / "target.de"
    source.write_text("\n".join([*read_lines(overfitted / "heldout" / "test.en.gz"), *odd]) + "\n", encoding="utf-8")
    options = ["-m", str(overfitted), "--no-split", "--format", "json", "--details"]
    told = objects(call("translate", source, *options).stdout_bytes)
    target.write_text("".join(each["hypotheses"][0]["text"] + "\n" for each in told), encoding="utf-8")
    return source, target, told


def test_the_same_pieces_have_the_same_log_probabilities(
    overfitted: Path, given: tuple[Path, Path, list[dict[str, Any]]]
) -> None:
    """To 1e-4, token by token, in sum and as score, and the same alignment; nearly all lines are cut into the same pieces."""
    source, target, told = given
    done = call("score", target, "--force-decode", source, "-m", overfitted, "--format", "json")
    assert done.exit_code == 0, done.stderr
    forced = objects(done.stdout_bytes)
    assert [(each["line"], each["source"]) for each in forced] == [(each["line"], each["source"]) for each in told]
    same = 0
    for each, other in zip(forced, told, strict=True):
        [found], [expected] = each["hypotheses"], other["hypotheses"]
        assert found["text"] == expected["text"]
        if found["pieces"] == expected["pieces"]:
            same += 1
            assert found["log_probabilities"] == pytest.approx(expected["log_probabilities"], abs=1e-4)
            for key in ("log_probability", "score", "tokens"):
                assert found[key] == pytest.approx(expected[key], abs=1e-4)
            assert found["alignment"] == expected["alignment"]
    assert same > 0.9 * len(told)


def test_text_has_a_line_for_each_pair(overfitted: Path, given: tuple[Path, Path, list[dict[str, Any]]]) -> None:
    """Number, log-probability, tokens and text between tabs; the total, a token's mean and the perplexity on stderr."""
    source, target, told = given
    done = call("score", target, "--force-decode", source, "-m", overfitted)
    rows = [line.split("\t") for line in done.stdout_bytes.decode().split("\n")[:-1]]
    assert [row[0] for row in rows] == [str(number) for number in range(1, len(told) + 1)]
    assert [row[3] for row in rows] == [each["hypotheses"][0]["text"] for each in told]
    assert sum(float(row[1]) for row in rows) == pytest.approx(
        sum(each["hypotheses"][0]["log_probability"] for each in told), abs=0.1
    )
    assert "perplexity" in done.stderr
    quiet = call("score", target, "--force-decode", source, "-m", overfitted, "--quiet")
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")


def test_a_wrong_translation_is_less_likely(overfitted: Path, tmp_path: Path) -> None:
    """Under references shifted by a line, a token is far less likely; a false copy is asked about, a right one is not."""
    target, source = (overfitted / "heldout" / f"test.{language}.gz" for language in ("de", "en"))
    lines = [*read_lines(target)]
    wrong = tmp_path / "wrong.de"
    wrong.write_text("\n".join(lines[1:] + lines[:1]), encoding="utf-8")
    right, shifted = (
        objects(call("score", text, "--force-decode", source, "-m", overfitted, "--format", "json").stdout_bytes)
        for text in (target, wrong)
    )
    means = [
        sum(each["hypotheses"][0]["log_probability"] for each in told)
        / sum(each["hypotheses"][0]["tokens"] for each in told)
        for told in (right, shifted)
    ]
    assert means[0] > -0.5
    assert means[1] < 5 * means[0]
    (tmp_path / "digits").write_text("12.5 %\n12.5 %\n\n\n")
    (tmp_path / "copies").write_text("12.5 %\n99 %\n\nHaus\n")
    told = objects(
        call(
            "score", tmp_path / "copies", "--force-decode", tmp_path / "digits", "-m", overfitted, "--format", "json"
        ).stdout_bytes
    )
    zero = [each["hypotheses"][0]["log_probability"] == 0 for each in told]
    assert zero == [True, False, True, False]


def test_what_cannot_be_forced_is_refused(overfitted: Path, tmp_path: Path) -> None:
    """No hypothesis, two of them, references, a metric, and files that do not line up: each named."""
    (tmp_path / "one").write_text("Eins.\n")
    (tmp_path / "two").write_text("One.\nTwo.\n")
    one, two = tmp_path / "one", tmp_path / "two"
    options: list[str | Path] = ["-m", overfitted, "--force-decode", two]
    message = refusal(call("score", one, *options))
    assert all(word in message for word in (str(one), "1 line ", str(two), "2"))
    assert "HYPOTHESIS" in refusal(call("score", *options))
    assert "one" in refusal(call("score", two, two, *options))
    for wrong in ("-r two", "--metric ter", "--confidence", "--sentences", "--examples 1"):
        assert wrong.split()[0] in refusal(call("score", two, *options, *wrong.split()))
    assert "nowhere" in refusal(call("score", two, "--force-decode", two, "-m", "nowhere"))
    assert "none.txt" in refusal(call("score", two, "--force-decode", "none.txt", "-m", overfitted))


def test_what_does_not_fit_is_forced_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to single pairs, with the same answers; a pair that does not fit by itself is an error with its sizes."""
    model, sources, targets = small_model(0), sentences(0), sentences(1)
    pairs = list(zip(sources, targets, strict=True))
    expected = TorchEngine(model).force(pairs)
    encode, most = Transformer.encode, 3

    def limited(model: Transformer, source: Tensor) -> Memory:
        if len(source) > most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return encode(model, source)

    monkeypatch.setattr(Transformer, "encode", limited)
    for found, other in zip(TorchEngine(model).force(pairs), expected, strict=True):
        assert found.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-5)
    most = 0
    with pytest.raises(NmtError, match=f"{len(sources[0])} and {len(targets[0])} pieces"):
        TorchEngine(model).force(pairs)
