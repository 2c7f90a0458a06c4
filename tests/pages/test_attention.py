"""nmt attention: every weight and word on the page and in the picture, whatever the text."""

import base64
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nmt.errors import UsageError
from nmt.lines import clean
from nmt.pages import attention as attention_page
from nmt.pages.attention import page
from nmt.pages.picture import CELL, picture, visible
from nmt.reporting import Reporter
from nmt.translation import attentions
from nmt.translation.attentions import AttentionMaps
from tests.conftest import call, refusal
from tests.pages.test_report import HOSTILE, Page

SVG = "{http://www.w3.org/2000/svg}"


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return weights.astype(np.float32)


def toy(source: list[str], target: list[str], layers: int = 3, heads: int = 2, d_model: int = 16) -> AttentionMaps:
    """Random attentions of a sentence given in pieces; target pieces without <s> and </s>."""
    random = np.random.default_rng(7)
    source = [*source, "</s>"]
    S, T = len(source), len(target) + 1

    def scores(rows: int, columns: int) -> np.ndarray:
        return 2 * random.standard_normal((layers, heads, rows, columns))

    later = np.triu(np.ones((T, T), bool), 1)
    return AttentionMaps(
        "".join(source[:-1]).replace("▁", " ").strip(),
        "".join(target).replace("▁", " ").strip(),
        ("en", "de"),
        source,
        ["<s>", *target],
        [*target, "</s>"],
        softmax(scores(S, S)),
        softmax(np.where(later, -np.inf, scores(T, T))),
        softmax(scores(T, S)),
        d_model,
    )


def old_house(**changes: int) -> AttentionMaps:
    return toy(["▁the", "▁old", "▁h", "ouse", "."], ["▁das", "▁alte", "▁Haus", "."], **changes)


def packed(html: str) -> dict[str, object]:
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    loaded: dict[str, object] = json.loads(data)
    return loaded


def test_every_weight_is_on_the_page() -> None:
    """What the page's script unpacks is each weight of the three attentions, in their order, to less than 1e-5."""
    maps = old_house()
    data = packed(page(maps))
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(str(data["weights"]))), "<u2") / 65_535
    expected = np.concatenate([weights.ravel() for weights in (maps.encoder, maps.decoder, maps.cross)])
    assert numbers.shape == expected.shape
    assert np.abs(numbers - expected).max() < 1e-5
    assert [data[key] for key in ("source", "read", "written")] == [maps.source, maps.read, maps.written]
    assert [data[key] for key in ("layers", "heads", "d_model", "layer")] == [3, 2, 16, 2]


def test_the_head_of_the_page() -> None:
    """Sentence, translation and languages, and the sizes of model and sentence."""
    shown = Page(page(old_house()))
    assert shown.all("dd") == ["the old house.", "das alte Haus."]
    assert shown.all("dt") == ["en", "de"]
    assert shown.all("p")[0] == "3 layers, 2 heads, dmodel = 16; 6 source pieces, 5 target pieces"


@pytest.mark.parametrize(("layers", "chosen"), [(1, 0), (2, 1), (3, 2), (6, 4)])
def test_the_picture_is_the_mean_of_the_layer_that_aligns_best(layers: int, chosen: int) -> None:
    """Each cell is as dark as its mean over the heads, in parts of the darkest; only what cannot be seen is left out."""
    maps = old_house(layers=layers)
    expected = maps.cross[chosen].mean(0) / maps.cross[chosen].mean(0).max()
    root = ElementTree.fromstring(picture(maps))
    [group] = root.findall(f"{SVG}g")
    blank = next(rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "blank")
    drawn = np.zeros_like(expected)
    for rect in group:
        row, column = (int(float(rect.get(key, "")) - float(blank.get(key, ""))) // CELL for key in ("y", "x"))
        drawn[row, column] = float(rect.get("fill-opacity", ""))
    assert np.abs(drawn - expected).max() < 0.005


def test_the_picture_stands_alone() -> None:
    """Valid XML with every piece in order, the sentences as its title, and neither script nor anything to fetch."""
    maps = old_house()
    text = picture(maps)
    root = ElementTree.fromstring(text)
    assert ["".join(label.itertext()) for label in root.iter(f"{SVG}text")] == maps.written + maps.source
    title = root.findtext(f"{SVG}title")
    assert title == "What the model looks at as it translates “the old house.” into “das alte Haus.”"
    row = maps.cross[2].mean(0)[2]
    strongest = ["the", "old", "h", "ouse", ".", "</s>"][row.argmax()]
    assert f"; Haus at {strongest}, {row.max():.2f};" in str(root.findtext(f"{SVG}desc"))
    assert not re.search(r"https?:|url\(|@import|href|<script", text.replace('xmlns="http://www.w3.org/2000/svg"', ""))


def everywhere(text: str) -> AttentionMaps:
    return replace(toy([text, "▁x"], [text, text]), text=text, translation=text)


@pytest.mark.parametrize("text", [*HOSTILE, "</noscript></svg>", "\ud800", "<0xE2>"])
def test_text_stays_text(text: str) -> None:
    """Whatever is in the sentence and its pieces is read as it is written, and is never markup."""
    maps, harmless = everywhere(text), everywhere("y")
    html = page(maps)
    html.encode()
    shown = Page(html)
    rects = {"rect"}  # as many as the weights ask for
    assert [tag for tag, _ in shown.tags if tag not in rects] == [
        tag for tag, _ in Page(page(harmless)).tags if tag not in rects
    ]
    assert shown.all("dd") == [visible(clean(text))] * 2
    assert packed(html)["read"] == ["<s>", visible(text), visible(text)]
    labels = ["".join(label.itertext()) for label in ElementTree.fromstring(picture(maps)).iter(f"{SVG}text")]
    assert labels == [*[visible(text)] * 2, "</s>", visible(text), "▁x", "</s>"]


def test_nothing_is_fetched() -> None:
    """The page names no other place, and forbids itself to load from one."""
    html = page(old_house())
    assert not re.search(r"https?:|//\w|@import|url\(", html.replace('xmlns="http://www.w3.org/2000/svg"', ""))
    shown = Page(html)
    assert not [name for _, attributes in shown.tags for name in attributes if name in ("src", "srcset", "action")]
    policies = [attributes["content"] for _, attributes in shown.tags if "http-equiv" in attributes]
    assert [policy for policy in policies if policy and policy.startswith("default-src 'none'")]


def test_a_long_sentence_makes_a_page_that_can_be_sent() -> None:
    """150 pieces a side of the base model, 6 layers and 8 heads: less than 8 MB, of a raw 6.5 million bytes of weights."""
    maps = toy(["▁piece"] * 149, ["▁Stück"] * 149, layers=6, heads=8, d_model=512)
    assert len(page(maps).encode()) < 8_000_000
    assert len(picture(maps).encode()) < 2_000_000


def test_one_sentence_please(tmp_path: Path, overfitted: Path) -> None:
    """What is no sentence, or more than one, is refused with the way out, before a model is looked for if that can be told."""
    nowhere = ("-m", tmp_path / "none")
    assert "is blank; give a sentence" in refusal(call("attention", " \u200b ", *nowhere))
    assert "standard input is blank" in refusal(call("attention", *nowhere))
    assert "for example by `head -1`" in refusal(call("attention", "-", *nowhere, stdin=b"One.\n\nTwo.\n"))
    assert "standard input, line 2: not UTF-8" in refusal(call("attention", *nowhere, stdin=b"\n\xe9t\xe9\n"))
    assert "the sentence holds more than one line" in refusal(call("attention", "One.\nTwo.", *nowhere))
    assert "holds no letter" in refusal(call("attention", "12.5", "-m", overfitted))
    assert f"--output {tmp_path}: Is a directory" in refusal(call("attention", "A man.", "-o", tmp_path))


def test_a_page_is_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a file must be named."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for svg, name in ((False, "attention.html"), (True, "attention.svg")):
        with pytest.raises(UsageError, match=f"name a file, for example -o {name}"):
            attention_page.write(Path("model"), "A man.", None, svg, "auto", Reporter())


def test_where_it_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To stdout alone, or to the file alone, which is told; a folder that is not there is an error with the way out."""
    monkeypatch.setattr(attentions, "attend", lambda model, text, device: replace(old_house(), text=text))
    expected = replace(old_house(), text="Ein Mann.")
    done = call("attention", stdin="\ufeff\nEin Mann.\r\n".encode())
    assert (done.exit_code, done.stdout, done.stderr) == (0, page(expected), "")
    output = tmp_path / "a.svg"
    done = call("attention", "Ein Mann.", "--svg", "-o", output)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"written to {output}\n")
    assert output.read_text(encoding="utf-8") == picture(expected)
    assert list(tmp_path.iterdir()) == [output]
    done = call("attention", "Ein Mann. Er schläft.")
    assert (done.exit_code, done.stdout.count("Er schläft.") > 0) == (0, True)
    assert done.stderr.startswith("warning: shown as one sentence")
    assert call("attention", "Ein", "Mann.").stdout == page(expected)  # without quotes
    assert f"no folder {tmp_path / 'no'}; make it" in refusal(
        call("attention", "Ein Mann.", "-o", tmp_path / "no" / "a.html")
    )


def test_a_file_is_no_sentence(tmp_path: Path) -> None:
    """The name of a file is not drawn as a sentence; and a page gets no name of a picture, nor a picture that of a page."""
    letter = tmp_path / "letter.txt"
    letter.write_text("Hello.\n")
    assert "head -1" in refusal(call("attention", letter, "-o", tmp_path / "x.html"))
    assert "add --svg" in refusal(call("attention", "Hello.", "-o", tmp_path / "x.SVG"))
    assert "no page" in refusal(call("attention", "Hello.", "--svg", "-o", tmp_path / "x.html"))
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
