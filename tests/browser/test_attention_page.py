"""The page of nmt attention as a reader meets it: what mouse, finger and keyboard find is what the model computed."""

import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nmt.pages.attention import page
from nmt.pages.picture import picture, plain
from nmt.translation.attentions import AttentionMaps, attend
from tests.browser.conftest import OpenPage, contrasts, overflow
from tests.conftest import call
from tests.pages.test_attention import old_house, toy
from tests.pages.test_report import HOSTILE

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.slow

LOOKS = {
    "encoder": "source looks at source",
    "decoder": "target looks at target",
    "cross": "target looks at source",
}


def sides(maps: AttentionMaps, attention: str) -> tuple[list[str], list[str]]:
    """Rows and columns."""
    return {
        "encoder": (maps.source, maps.source),
        "decoder": (maps.read, maps.read),
        "cross": (maps.written, maps.source),
    }[attention]


def cell(shown: "Page", row: int, column: int) -> "Locator":
    """Counted from 0; -1 is the heading."""
    return shown.locator("table tr").nth(row + 1).locator("th, td").nth(column + 1)


def reading(shown: "Page") -> str:
    return shown.locator("#reading").inner_text()


def focused(shown: "Page") -> str | None:
    return shown.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent")


def choose(shown: "Page", group: str, name: str) -> None:
    shown.get_by_role("group", name=group).get_by_label(name).check()


def weights_shown(shown: "Page") -> np.ndarray:
    """The weights that the cells' names tell, NaN where they tell that it is not allowed: [rows, columns]."""
    names: list[list[str]] = shown.evaluate(
        "[...document.querySelectorAll('tbody tr')].map(row =>"
        "[...row.querySelectorAll('td')].map(cell => cell.getAttribute('aria-label')))"
    )
    return np.array(
        [[np.nan if "may not look at" in name else float(name.rsplit(": ")[-1]) for name in row] for row in names]
    )


def test_a_cell_tells_its_words_and_weight(open_page: OpenPage) -> None:
    """Under the pointer and on focus, at first of target to source in the layer that aligns best, its heads' mean."""
    maps = old_house()
    mean = maps.cross[2].mean(0)
    shown = open_page(page(maps))
    before = shown.locator("table").bounding_box()
    cell(shown, 2, 3).hover()
    assert reading(shown) == f"‘Haus’ looks at ‘ouse’: {mean[2, 3]:.3f}"
    cell(shown, 0, 1).focus()
    assert reading(shown) == f"‘das’ looks at ‘old’: {mean[0, 1]:.3f}" == focused(shown)
    cell(shown, 4, 5).click()
    assert reading(shown) == f"‘</s>’ looks at ‘</s>’: {mean[4, 5]:.3f}" == focused(shown)
    assert shown.locator("tr.on").evaluate_all("rows => rows.map(row => row.rowIndex)") == [5]
    assert shown.locator(".on:not(tr)").evaluate_all("cells => cells.map(cell => cell.cellIndex)") == [6] * 6
    assert shown.locator("table").bounding_box() == before


def test_a_finger_does_what_a_pointer_does(open_page: OpenPage) -> None:
    """On a phone, a tap on a cell tells of it, and a tap on a choice chooses."""
    maps = old_house()
    shown = open_page(page(maps), 380)
    shown.get_by_role("group", name="Layer").get_by_text("1").tap()
    cell(shown, 2, 1).tap()
    assert reading(shown) == f"‘Haus’ looks at ‘old’: {maps.cross[0, :, 2, 1].mean():.3f}"


def test_a_heading_tells_its_largest_weights(open_page: OpenPage) -> None:
    """Of a row what it looks at most, of a column what looks at it most; what is masked is not among them."""
    maps = old_house()
    shown = open_page(page(maps))
    mean = maps.cross[2].mean(0)

    def largest(values: np.ndarray, pieces: list[str]) -> str:
        return ", ".join(f"‘{plain(pieces[place])}’ {values[place]:.3f}" for place in (-values).argsort()[:4])

    cell(shown, 1, -1).hover()
    assert reading(shown) == f"‘alte’ looks at {largest(mean[1], maps.source)}"
    cell(shown, -1, 2).hover()
    assert reading(shown) == f"‘h’ is seen by {largest(mean[:, 2], maps.written)}"
    choose(shown, "Attention", LOOKS["decoder"])
    cell(shown, 0, -1).hover()
    assert reading(shown) == "‘<s>’ looks at ‘<s>’ 1.000"


def test_arrow_keys_go_from_cell_to_cell(open_page: OpenPage) -> None:
    """The map is one stop of the tab key; arrows, Home and End go on from there, to the headings too, and never out."""
    maps = old_house()
    shown = open_page(page(maps))
    choose(shown, "Head", "2")
    shown.keyboard.press("Tab")
    rows, columns = [*map(plain, maps.written)], [*map(plain, maps.source)]

    def at(row: int, column: int) -> str:
        return f"‘{rows[row]}’ looks at ‘{columns[column]}’: {maps.cross[2, 1, row, column]:.3f}"

    assert focused(shown) == at(0, 0)
    for key, row, column in (
        ("ArrowRight", 0, 1), ("ArrowDown", 1, 1), ("End", 1, 5), ("ArrowRight", 1, 5), ("ArrowLeft", 1, 4), ("Home", 1, 0),
        ("Control+End", 4, 5), ("ArrowDown", 4, 5), ("ArrowUp", 3, 5), ("Control+Home", 0, 0),
    ):  # fmt: skip
        shown.keyboard.press(key)
        assert focused(shown) == reading(shown) == at(row, column), key
    for key, heading in (
        ("ArrowLeft", "▁das"), ("ArrowUp", "▁das"), ("ArrowLeft", "▁das"), ("ArrowDown", "▁alte"), ("ArrowRight", at(1, 0)),
        ("Control+Home", at(0, 0)), ("ArrowUp", "▁the"), ("ArrowUp", "▁the"), ("ArrowLeft", "▁the"), ("ArrowRight", "▁old"),
    ):  # fmt: skip
        shown.keyboard.press(key)
        assert focused(shown) == heading, key
    shown.keyboard.press("Tab")
    assert focused(shown) not in (None, "▁old", "▁h")
    assert shown.locator("table [tabindex='0']").count() == 1


def test_every_choice_shows_the_weights_of_the_model(open_page: OpenPage) -> None:
    """Each attention, layer and head, and the mean of the heads, to three decimals; the address keeps the choice."""
    maps = old_house()
    shown = open_page(page(maps))
    for attention, layer, head in product(LOOKS, range(3), (None, 0, 1)):
        choose(shown, "Attention", LOOKS[attention])
        choose(shown, "Layer", str(layer + 1))
        choose(shown, "Head", "mean of all" if head is None else str(head + 1))
        of_layer = getattr(maps, attention)[layer]
        expected = of_layer.mean(0) if head is None else of_layer[head]
        if attention == "decoder":
            expected = np.where(np.triu(np.ones_like(expected), 1) > 0, np.nan, expected)
        np.testing.assert_allclose(weights_shown(shown), expected, rtol=0, atol=0.00052)
        rows, columns = sides(maps, attention)
        assert shown.locator("thead th").all_text_contents() == ["", *columns]
        assert shown.locator("tbody th").all_text_contents() == rows
    assert shown.url.endswith("#cross-3-2")
    shown.reload()
    shown.locator("tbody td").first.wait_for()  # the page draws its table once it has unpacked the weights
    np.testing.assert_allclose(weights_shown(shown), maps.cross[2, 1], rtol=0, atol=0.00052)
    assert shown.get_by_role("group", name="Layer").get_by_label("3").is_checked()


def test_the_masked_half_is_not_allowed(open_page: OpenPage) -> None:
    """Later pieces are told to be forbidden, and are hatched; nothing else is."""
    shown = open_page(page(old_house()), at="#decoder-1-mean")
    cell(shown, 1, 3).hover()
    assert reading(shown) == "‘das’ may not look at ‘Haus’, which comes later"
    hatched: list[list[bool]] = shown.evaluate(
        "[...document.querySelectorAll('tbody tr')].map(row =>"
        "[...row.querySelectorAll('td')].map(cell => getComputedStyle(cell).backgroundImage !== 'none'))"
    )
    assert np.array_equal(hatched, np.triu(np.ones((5, 5), bool), 1))
    assert shown.locator("#never").is_visible()
    choose(shown, "Attention", LOOKS["encoder"])
    assert shown.locator("td.never").count() == 0
    assert not shown.locator("#never").is_visible()


@pytest.mark.parametrize(
    ("attention", "sizes"),
    [
        ("encoder", ["Q6 × 8", "K⊤8 × 6", "scores6 × 6", "weights6 × 6", "V6 × 8", "result6 × 8", "results of 2 heads6 × 16"]),
        ("decoder", ["Q5 × 8", "K⊤8 × 5", "scores5 × 5", "weights5 × 5", "V5 × 8", "result5 × 8", "results of 2 heads5 × 16"]),
        ("cross", ["Q5 × 8", "K⊤8 × 6", "scores5 × 6", "weights5 × 6", "V6 × 8", "result5 × 8", "results of 2 heads5 × 16"]),
    ],
)  # fmt: skip
def test_the_explanation_has_the_sizes_of_this_sentence(open_page: OpenPage, attention: str, sizes: list[str]) -> None:
    """Each matrix is told and drawn in its rows and columns."""
    shown = open_page(page(old_house()), at=f"#{attention}-1-mean")
    matrices = shown.locator(".matrix")
    assert [text.replace("\xa0", " ") for text in matrices.all_text_contents()] == sizes
    for size, box in zip(sizes, shown.locator(".box").all(), strict=True):
        rows, columns = map(int, re.findall(r"(\d+) × (\d+)", size)[0])
        drawn = box.bounding_box()
        assert drawn is not None
        assert drawn["width"] / drawn["height"] == pytest.approx(columns / rows, rel=0.02)
    assert ("−∞" in shown.locator("#steps").inner_text()) == (attention == "decoder")


@pytest.mark.parametrize("width", [380, 1280])
@pytest.mark.parametrize("attention", LOOKS)
def test_a_page_does_not_scroll_sideways(open_page: OpenPage, width: int, attention: str) -> None:
    """Neither with a short sentence, nor with one of 100 pieces and words as long as a line."""
    long = toy(["▁piece", "▁a", "s"] * 33 + ["▁Donaudampfschiff"], ["▁Stück", "e"] * 50)
    for maps in (old_house(), long):
        shown = open_page(page(maps), width, at=f"#{attention}-1-mean")
        cell(shown, 1, 1).hover()
        assert overflow(shown) <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_text_can_be_read(open_page: OpenPage, scheme: str) -> None:
    """A contrast of 4.5 at least, of all but the marks of a word's start."""
    shown = open_page(page(old_house()), scheme=scheme)
    for attention in LOOKS.values():
        choose(shown, "Attention", attention)
        cell(shown, 1, 1).hover()
        poor = {text: contrast for text, contrast in contrasts(shown).items() if contrast < 4.5 and text != "▁"}
        assert poor == {}


def test_hostile_text_is_but_text(open_page: OpenPage) -> None:
    """Markup, quotes, other directions and emoji are shown as they are."""
    texts = [text for text in HOSTILE if text.isprintable() or "\u202e" in text]
    maps = toy(texts, texts)
    shown = open_page(page(maps), 380)
    assert shown.locator("tbody th").all_text_contents() == maps.written
    cell(shown, 0, 3).focus()
    assert reading(shown).startswith(f"‘{texts[0]}’ looks at ‘{texts[3]}’: ")
    assert overflow(shown) <= 0


def test_a_real_model(open_page: OpenPage, overfitted: Path, tmp_path: Path) -> None:
    """What the command writes of a trained model opens, with that model's weights."""
    output = tmp_path / "attention.html"
    assert call("attention", "Julia sees the old house.", "-m", overfitted, "-o", output).exit_code == 0
    maps = attend(overfitted, "Julia sees the old house.")
    shown = open_page(output, at="#encoder-2-4")
    np.testing.assert_allclose(weights_shown(shown), maps.encoder[1, 3], rtol=0, atol=0.00052)


def test_without_script_it_is_a_picture(open_page: OpenPage) -> None:
    """Where scripts may not run, the first map is there as the picture, and no control that would do nothing."""
    maps = old_house()
    shown = open_page(page(maps), 380, scripts=False)
    assert shown.locator("svg").is_visible()
    assert shown.locator("svg text").all_text_contents() == maps.written + maps.source
    assert not shown.locator("form").is_visible()
    assert overflow(shown) <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_holds_its_labels(open_page: OpenPage, scheme: str) -> None:
    """No label leaves the picture, or runs into the cells, also with wide letters and signs."""
    maps = toy(["▁MMMM", "▁straightforwardly", "▁你好世界"], ["▁Donaudampfschiff", "▁WWWW", "你好", "."])
    shown = open_page(f"<!doctype html><title>picture</title>{picture(maps)}", scheme=scheme)
    paper, blank = (shown.locator(f"svg .{name}").bounding_box() for name in ("paper", "blank"))
    assert paper is not None
    assert blank is not None
    for label in shown.locator("svg text").all():
        box = label.bounding_box()
        assert box is not None
        assert box["x"] >= paper["x"]
        assert box["y"] >= paper["y"]
        assert box["x"] + box["width"] <= paper["x"] + paper["width"]
        assert box["x"] + box["width"] <= blank["x"] or box["y"] + box["height"] <= blank["y"] + 4
