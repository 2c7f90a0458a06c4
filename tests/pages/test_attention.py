"""nmt attention: every weight and word on the page and in the picture, whatever the text."""

import base64
import json
import re
import xml.etree.ElementTree as ElementTree
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.lines import clean
from nmt.pages.attention import page
from nmt.pages.page import visible
from nmt.pages.picture import CELL, picture
from nmt.translation import attentions
from nmt.translation.attentions import AttentionMaps
from tests.conftest import call, refusal
from tests.pages.test_report import HOSTILE, Page

SVG = "{http://www.w3.org/2000/svg}"


def toy(source: list[str], target: list[str], layers: int = 3, heads: int = 2, d_model: int = 16) -> AttentionMaps:
    """Random attentions of a sentence given in pieces; target pieces without <s> and </s>."""
    random = np.random.default_rng(7)
    source = [*source, "</s>"]
    S, T = len(source), len(target) + 1

    def weights(rows: int, columns: int, masked: bool = False) -> np.ndarray:
        powers = np.exp(2 * random.standard_normal((layers, heads, rows, columns)))
        powers = np.tril(powers) if masked else powers
        return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)

    return AttentionMaps(
        "".join(source[:-1]).replace("▁", " ").strip(),
        "".join(target).replace("▁", " ").strip(),
        ("en", "de"),
        source,
        ["<s>", *target],
        [*target, "</s>"],
        weights(S, S),
        weights(T, T, masked=True),
        weights(T, S),
        d_model,
    )


def old_house(**changes: int) -> AttentionMaps:
    return toy(["▁the", "▁old", "▁h", "ouse", "."], ["▁das", "▁alte", "▁Haus", "."], **changes)


def one_stack(mask: str = "prefix") -> AttentionMaps:
    """As of a decoder-only network: cross and decoder share each row, and `causal` masks the source's future."""
    maps = old_house()
    encoder = np.tril(maps.encoder) if mask == "causal" else maps.encoder
    encoder = encoder / encoder.sum(-1, keepdims=True)
    halves = (encoder, (0.4 * maps.decoder).astype(np.float32), (0.6 * maps.cross).astype(np.float32))
    return replace(
        maps, **dict(zip(("encoder", "decoder", "cross"), halves, strict=True)), architecture="decoder-only", mask=mask
    )


def recurrent() -> AttentionMaps:
    """As of a recurrent network: one layer, one head, one map."""
    none = np.zeros((0, 0, 0, 0), np.float32)
    return replace(old_house(layers=1, heads=1), encoder=none, decoder=none, architecture="rnn")


def packed(html: str) -> Any:
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    return json.loads(data)


@pytest.mark.parametrize("maps", [one_stack(), recurrent()], ids=["decoder-only", "rnn"])
def test_every_weight_of_other_architectures_is_on_the_page(maps: AttentionMaps) -> None:
    """Also where one map is all there is."""
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(packed(page(maps))["weights"])), "<u2") / 65_535
    expected = np.concatenate([weights.ravel() for weights in (maps.encoder, maps.decoder, maps.cross)])
    np.testing.assert_allclose(numbers, expected, rtol=0, atol=1e-5)


def test_every_weight_is_on_the_page() -> None:
    """What the page's script unpacks is each weight of the three attentions, in order, to less than 1e-5."""
    maps = old_house()
    html = page(maps)
    data = packed(html)
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(data["weights"])), "<u2") / 65_535
    expected = np.concatenate([weights.ravel() for weights in (maps.encoder, maps.decoder, maps.cross)])
    np.testing.assert_allclose(numbers, expected, rtol=0, atol=1e-5)
    assert [data[key] for key in ("source", "read", "written")] == [maps.source, maps.read, maps.written]
    assert [data[key] for key in ("layers", "heads", "d_model", "layer")] == [3, 2, 16, 2]
    shown = Page(html)
    assert shown.all("dt") == ["en", "de"]
    assert shown.all("dd") == ["the old house.", "das alte Haus."]
    assert shown.all("p")[0] == "3 layers, 2 heads, dmodel = 16; 6 source pieces, 5 target pieces"


@pytest.mark.parametrize(("layers", "chosen"), [(1, 0), (2, 1), (3, 2), (6, 4)])
def test_the_picture_is_the_mean_of_the_layer_that_aligns_best(layers: int, chosen: int) -> None:
    """Each cell's opacity is its mean weight over the heads, relative to the largest."""
    maps = old_house(layers=layers)
    expected = maps.cross[chosen].mean(0) / maps.cross[chosen].mean(0).max()
    drawn = np.zeros_like(expected)
    for cell in ElementTree.fromstring(picture(maps)).iterfind(f".//{SVG}g[@class='weight']/{SVG}rect"):
        row, column = (int(cell.get(key, "")) // CELL for key in ("y", "x"))
        drawn[row, column] = float(cell.get("fill-opacity", ""))
    assert np.abs(drawn - expected).max() < 0.005


@pytest.mark.parametrize("text", [*HOSTILE, "</noscript></svg>", "\ud800", "<0xE2>"])
def test_text_stays_text(text: str) -> None:
    """Whatever is in the sentence and its pieces is shown as it is, and is never markup."""
    maps, harmless = (replace(toy([some, "▁x"], [some, some]), text=some, translation=some) for some in (text, "y"))
    html = page(maps)
    shown = Page(html)
    html.encode()
    tags, expected = ([tag for tag, _ in of.tags if tag != "rect"] for of in (shown, Page(page(harmless))))
    assert tags == expected
    assert shown.all("dd") == [visible(clean(text))] * 2
    assert packed(html)["read"] == ["<s>", visible(text), visible(text)]
    labels = ["".join(label.itertext()) for label in ElementTree.fromstring(picture(maps)).iter(f"{SVG}text")]
    assert labels == [*[visible(text)] * 2, "</s>", visible(text), "▁x", "</s>"]


def test_what_is_refused(tmp_path: Path, overfitted: Path) -> None:
    """Blank text, several lines, invalid UTF-8, a file's name and an output that does not fit each have their sentence."""
    letter = tmp_path / "letter.txt"
    letter.write_text("Hello.\n")
    nowhere = ("-m", tmp_path / "none")
    assert "the sentence has 0 lines of text; give one" in refusal(call("attention", " \u200b ", *nowhere))
    assert "has 2 lines" in refusal(call("attention", "-", *nowhere, stdin=b"One.\n\nTwo.\n"))
    assert "standard input, line 2: not UTF-8" in refusal(call("attention", *nowhere, stdin=b"\n\xe9t\xe9\n"))
    assert "head -1" in refusal(call("attention", letter, "-o", tmp_path / "x.html"))
    assert "letter" in refusal(call("attention", "12.5", "-m", overfitted))
    assert f"--output {tmp_path}: Is a directory" in refusal(call("attention", "A man.", "-o", tmp_path))
    assert list(tmp_path.iterdir()) == [letter]


def test_where_it_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without --output to stdout alone; with it, to the file alone, whose name is printed on stderr."""
    monkeypatch.setattr(attentions, "attend", lambda model, text, device: replace(old_house(), text=text))
    expected = replace(old_house(), text="Ein Mann.")
    done = call("attention", stdin="\ufeff\nEin Mann.\r\n".encode())
    assert (done.exit_code, done.stdout, done.stderr) == (0, page(expected), "")
    for output, option in ((tmp_path / "a", ["--svg"]), (tmp_path / "a.SVG", [])):
        done = call("attention", "Ein", "Mann.", *option, "-o", output)  # without quotes
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"written to {output}\n")
        assert output.read_text(encoding="utf-8") == picture(expected)
    assert len(list(tmp_path.iterdir())) == 2
    done = call("attention", "Ein Mann. Er schläft.")
    assert "Er schläft." in done.stdout
    assert "several sentences" in done.stderr
