"""A run's report.html as a reader meets it: what mouse and keyboard find is what the log says."""

from typing import TYPE_CHECKING

import pytest

from nmt.pages import report
from tests.browser.conftest import OpenPage, overflow
from tests.pages.test_report import HELDOUT, HOSTILE, config, long_run, sampled, training

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

EVENTS = [
    training(20, loss=5.5),
    training(40, loss=4.25),
    sampled(40, "Ein Hund.", "Zwei Hunde.", bleu=12.5),
    training(60, loss=3.125),
    sampled(60, "Ein Mann.", "Zwei Hunde rennen.", bleu=30.75),
]


def told(shown: "Page", chart: str) -> list[str]:
    """What the chart says of a point, as far as it is seen."""
    readings = shown.locator("figure", has_text=chart).locator(".points b").all()
    return [" ".join(found.locator("> *").all_inner_texts()) for found in readings if found.is_visible()]


def test_a_point_tells_its_values(open_page: OpenPage) -> None:
    """Under the pointer the values of the point that is nearest, and no others."""
    shown = open_page(report.page(config(), EVENTS, HELDOUT))
    assert told(shown, "Validation BLEU") == []
    plot = shown.locator("figure", has_text="Validation BLEU").locator(".plot")
    box = plot.bounding_box()
    assert box is not None
    for update, expected in ((42, "update 40 · 24 s BLEU 12.50"), (59, "update 60 · 36 s BLEU 30.75")):
        plot.hover(position={"x": box["width"] * update / 60, "y": box["height"] / 2}, force=True)
        [reading] = told(shown, "Validation BLEU")
        assert reading == expected


def test_arrow_keys_go_from_point_to_point(open_page: OpenPage) -> None:
    """A chart is one stop of the tab key; arrows, Home and End go through its points, and the next Tab leaves it."""
    shown = open_page(report.page(config(), EVENTS, HELDOUT))

    def update() -> str:
        [reading] = told(shown, "Loss")
        return reading

    shown.locator("figure", has_text="Loss").locator(".points > span[tabindex='0']").focus()
    assert update() == "update 20 · 12 s training 5.5"
    for key, expected in (
        ("ArrowRight", "update 40 · 24 s training 4.25 validation 4.125"),
        ("End", "update 60 · 36 s training 3.125 validation 4.125"),
        ("ArrowRight", "update 60 · 36 s training 3.125 validation 4.125"),
        ("Home", "update 20 · 12 s training 5.5"),
    ):
        shown.keyboard.press(key)
        assert update() == expected, key
    shown.keyboard.press("Tab")
    assert told(shown, "Loss") == []
    assert len(told(shown, "Perplexity")) == 1


@pytest.mark.parametrize("width", [380, 1280])
def test_a_page_does_not_scroll_sideways(open_page: OpenPage, width: int) -> None:
    """Whatever the run and the text: few updates, many, and words as long as a line."""
    hostile = [sampled(40, *HOSTILE[:2]), sampled(80, HOSTILE[7], HOSTILE[4])]
    for events, heldout in ((EVENTS, HELDOUT), (long_run(200), HELDOUT), (hostile, (HOSTILE, HOSTILE))):
        assert overflow(open_page(report.page(config(), events, heldout), width)) <= 0
