"""The page that sets models side by side: its numbers are those of logs and formulas, and what it claims is so."""

import base64
import re
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nmt.describe import Subject, compared, find
from nmt.event_log import EventLog
from nmt.lines import read_lines
from nmt.model.transformer import sinusoids
from nmt.pages.compare import Shown, page
from nmt.pages.positions import NEGATIVE, POSITIVE, frequencies, heat_map, turned
from tests.conftest import call
from tests.pages.test_attention import old_house, one_stack, recurrent
from tests.pages.test_report import HOSTILE, Page


def presets() -> list[Subject]:
    return find(["demo", "gpt2"], Path())


def sample() -> str:
    """A page of two presets and toy translations."""
    return page(presets(), "das alte Haus.", [Shown(place, maps) for place, maps in enumerate((old_house(), one_stack()))])


@pytest.mark.parametrize("d_model", [2, 16, 128, 512])
@pytest.mark.parametrize("k", [-3, 0, 1, 7, 50])
def test_moving_by_k_turns_every_pair_by_k_omega(d_model: int, k: int) -> None:
    """The encodings of positions p + k are those of p, each sine-cosine pair turned by k·ω, for every p."""
    table = sinusoids(200, d_model).double().numpy()
    places = np.arange(5, 100)
    np.testing.assert_allclose(turned(table[places], k), table[places + k], rtol=0, atol=1e-5)


def test_frequencies_fall_from_one_to_a_ten_thousandth() -> None:
    np.testing.assert_allclose(frequencies(512), 10_000.0 ** (-np.arange(0, 512, 2) / 512), rtol=1e-5)


def test_the_heat_map_is_the_table() -> None:
    """A pixel a number: its sign as the colour, its size as the opacity."""
    table = sinusoids(20, 16).numpy()
    png = base64.b64decode(heat_map(table).removeprefix("data:image/png;base64,"))
    start = png.index(b"IDAT") + 4
    rows = np.frombuffer(zlib.decompress(png[start : png.index(b"IEND") - 8]), np.uint8).reshape(20, -1)
    pixels = rows[:, 1:].reshape(20, 16, 4)
    expected = np.where(table[..., None] > 0, np.array(POSITIVE), np.array(NEGATIVE))
    assert np.array_equal(pixels[..., :3], expected)
    np.testing.assert_allclose(pixels[..., 3] / 255, np.abs(table), atol=0.003)


def test_the_page_of_a_trained_model(overfitted: Path, tmp_path: Path) -> None:
    """Facts, curves and a held-out sentence are those of its files; nothing is fetched."""
    output = tmp_path / "compare.html"
    done = call("describe", overfitted, "base", "--page", output)
    assert (done.exit_code, "validation BLEU" in done.stdout) == (0, True)
    shown = Page(re.sub(r"<img [^>]*>|<input [^>]*>", "", output.read_text(encoding="utf-8")))
    cells = shown.all("td")
    facts = compared(find([str(overfitted), "base"], Path()))
    for name, values in facts.items():
        if name != "architecture":
            assert [cells.index(value) for value in values]
    validations = [event for event in EventLog(overfitted / "metrics.jsonl").read() if event["event"] == "validation"]
    for event in validations:
        assert f"update {event['step']}model {event['bleu']:.2f}" in shown.all("b")
    given = shown.all("dd")[:2]
    sides = [list(read_lines(overfitted / "heldout" / f"test.{language}.gz")) for language in ("en", "de")]
    assert tuple(given) in set(zip(*sides, strict=True))
    assert 5 <= len(given[0].split()) <= 9
    html = output.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//\w+\.|@import|url\(", html.replace("data:image/png;base64,", ""))
    assert "default-src 'none'" in html


def test_every_architecture_has_its_map() -> None:
    """With the ids of each picture its own."""
    subjects = [*presets(), presets()[0]]
    shown = [Shown(place, maps) for place, maps in enumerate((old_house(), one_stack(), recurrent()))]
    html = page(subjects, "das alte Haus.", shown)
    ids = re.findall(r' id="([\w-]+)"', html)
    assert len({*ids}) == len(ids)
    assert "Additive attention" in html


@pytest.mark.parametrize("text", HOSTILE[:4])
def test_text_stays_text(text: str) -> None:
    """Names of directories and sentences are never markup."""

    def tags(text: str) -> list[str]:
        subjects = [replace(subject, name=text) for subject in presets()]
        html = page(subjects, text, [Shown(0, replace(old_house(), text=text, translation="y", source=[text] * 6))])
        return [tag for tag, _ in Page(re.sub(r"<img [^>]*>|<input [^>]*>", "", html)).tags]

    assert tags(text) == tags("x")
