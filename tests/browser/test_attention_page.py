"""The page of nmt attention as a reader meets it: what mouse, finger and keyboard find is what the model computed."""

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nmt.pages.attention import page
from tests.browser.conftest import OpenPage, overflow
from tests.pages.test_attention import old_house, one_stack, recurrent, toy

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.slow

# For each attention, its name on the page, and what its rows and columns are.
ATTENTIONS = {
    "encoder": ("source looks at source", "source", "source"),
    "decoder": ("target looks at target", "read", "read"),
    "cross": ("target looks at source", "written", "source"),
}


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
    return np.array([[np.nan if "may not look at" in name else float(name.rsplit(": ")[-1]) for name in row] for row in names])


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


def test_arrow_keys_go_from_cell_to_cell(open_page: OpenPage) -> None:
    """The map is one stop of the tab key; arrows, Home and End go on from there, to the headings too, and never out."""
    maps = old_house()
    shown = open_page(page(maps))
    choose(shown, "Head", "2")
    shown.keyboard.press("Tab")
    rows, columns = ([piece.removeprefix("▁") for piece in side] for side in (maps.written, maps.source))

    def at(row: int, column: int) -> str:
        return f"‘{rows[row]}’ looks at ‘{columns[column]}’: {maps.cross[2, 1, row, column]:.3f}"

    assert focused(shown) == at(0, 0)
    for key, row, column in (
        ("ArrowRight", 0, 1), ("ArrowDown", 1, 1), ("End", 1, 5), ("ArrowRight", 1, 5), ("ArrowLeft", 1, 4), ("Home", 1, 0),
        ("Control+End", 4, 5), ("ArrowDown", 4, 5), ("ArrowUp", 3, 5), ("Control+Home", 0, 0),
    ):  # fmt: skip
        shown.keyboard.press(key)
        assert focused(shown) == reading(shown) == at(row, column), key
    shown.keyboard.press("ArrowLeft")
    assert focused(shown) == "▁das"
    shown.keyboard.press("Tab")
    assert focused(shown) not in (None, "▁das", "▁alte")
    assert shown.locator("table [tabindex='0']").count() == 1


def test_every_choice_shows_the_weights_of_the_model(open_page: OpenPage) -> None:
    """Each attention, layer and head, and the mean of the heads, to three decimals; the address keeps the choice."""
    maps = old_house()
    shown = open_page(page(maps))
    for attention, layer, head in product(ATTENTIONS, range(3), (None, 0, 1)):
        looks, rows, columns = ATTENTIONS[attention]
        choose(shown, "Attention", looks)
        choose(shown, "Layer", str(layer + 1))
        choose(shown, "Head", "mean of all" if head is None else str(head + 1))
        of_layer = getattr(maps, attention)[layer]
        expected = of_layer.mean(0) if head is None else of_layer[head]
        if attention == "decoder":
            expected = np.where(np.triu(np.ones_like(expected), 1) > 0, np.nan, expected)
        np.testing.assert_allclose(weights_shown(shown), expected, rtol=0, atol=0.00052)
        assert shown.locator("thead th").all_text_contents() == ["", *getattr(maps, columns)]
        assert shown.locator("tbody th").all_text_contents() == getattr(maps, rows)
    assert shown.url.endswith("#cross-3-2")
    shown.reload()
    shown.locator("tbody td").first.wait_for()  # the page draws its table once it has unpacked the weights
    np.testing.assert_allclose(weights_shown(shown), maps.cross[2, 1], rtol=0, atol=0.00052)
    assert shown.get_by_role("group", name="Layer").get_by_label("3").is_checked()


@pytest.mark.parametrize("mask", ["prefix", "causal"])
def test_one_stack_shows_its_masks_and_shares(open_page: OpenPage, mask: str) -> None:
    """Each part has the model's weights, hatched where it may not look; a row says how much of its softmax is shown."""
    maps = one_stack(mask)
    shown = open_page(page(maps))
    choose(shown, "Head", "2")
    for attention, (looks, _, _) in ATTENTIONS.items():
        choose(shown, "Attention", looks)
        expected = getattr(maps, attention)[2, 1]
        if attention == "decoder" or (attention, mask) == ("encoder", "causal"):
            expected = np.where(np.triu(np.ones_like(expected), 1) > 0, np.nan, expected)
        np.testing.assert_allclose(weights_shown(shown), expected, rtol=0, atol=0.00052)
        assert ("together sum to 1" in shown.locator("#caption").inner_text()) == (attention != "encoder")
    cell(shown, 2, -1).hover()
    assert reading(shown).endswith("in all 0.600 of 1")


def test_a_recurrent_network_has_one_map_and_no_choice(open_page: OpenPage) -> None:
    """Its weights, its own explanation, and no form."""
    maps = recurrent()
    shown = open_page(page(maps), 380)
    np.testing.assert_allclose(weights_shown(shown), maps.cross[0, 0], rtol=0, atol=0.00052)
    assert "state that looks is that of the step before" in shown.locator("#caption").inner_text()
    assert "tanh" in shown.locator("#steps").inner_text()
    assert not shown.locator("form").is_visible()
    assert overflow(shown) <= 0


@pytest.mark.parametrize("width", [380, 1280])
def test_a_page_does_not_scroll_sideways(open_page: OpenPage, width: int) -> None:
    """Neither with a short sentence, nor with one of 100 pieces and words as long as a line."""
    long = toy(["▁piece", "▁a", "s"] * 33 + ["▁Donaudampfschiff"], ["▁Stück", "e"] * 50)
    for maps in (old_house(), long):
        shown = open_page(page(maps), width)
        cell(shown, 1, 1).hover()
        assert overflow(shown) <= 0


def test_without_script_it_is_a_picture(open_page: OpenPage) -> None:
    """Where scripts may not run, the first map is there as the picture, and no control that would do nothing."""
    maps = old_house()
    shown = open_page(page(maps), 380, scripts=False)
    assert shown.locator("svg").is_visible()
    assert shown.locator("svg text").all_text_contents() == maps.written + maps.source
    assert not shown.locator("form").is_visible()
    assert overflow(shown) <= 0
