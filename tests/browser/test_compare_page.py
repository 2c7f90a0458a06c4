"""The page that sets models side by side, as a reader uses it: its sliders show what they say."""

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nmt.pages.positions import frequencies
from tests.browser.conftest import OpenPage, overflow
from tests.pages.test_compare import sample

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
PIECES = 6  # of the sample


def slide(shown: "Page", name: str, value: int) -> None:
    shown.locator(f"#{name}").fill(str(value))


def test_a_step_shows_what_is_done_by_then(open_page: OpenPage) -> None:
    """After step t the chain has t cells, and attention is complete after the first."""
    shown = open_page(sample())
    for step in (0, 1, 3, PIECES):
        slide(shown, "step", step)
        assert shown.locator(".chain rect:not(.waiting)").count() == step
        assert shown.locator(".all path:not(.waiting)").count() == (PIECES**2 if step else 0)
        assert shown.locator("#step-shown").inner_text() == f"{step} of {PIECES}"
    shown.locator("#play").click()  # at the end, so it begins anew
    assert shown.locator("#play").inner_text() == "Pause"
    shown.locator("#step-shown", has_text=f"2 of {PIECES}").wait_for()
    shown.locator("#play").click()
    assert shown.locator("#play").inner_text() == "Play"
    shown.locator("#step").press("ArrowRight")
    assert shown.locator("#step-shown").inner_text() == f"3 of {PIECES}"


def test_the_angle_follows_from_k_alone(open_page: OpenPage) -> None:
    """Four pairs turn by k·ω, from whichever position."""
    shown = open_page(sample())
    omegas = frequencies(128)[[0, 11, 21, 32]]
    for p, k in ((0, 0), (3, 7), (40, 7), (5, 50)):
        slide(shown, "p", p)
        slide(shown, "k", k)
        angles = shown.locator("#circles figure").evaluate_all("figures => figures.map(one => Number(one.dataset.angle))")
        np.testing.assert_allclose(angles, k * omegas, rtol=1e-6)


@pytest.mark.parametrize("width", [380, 1280])
@pytest.mark.parametrize("scripts", [True, False])
def test_a_page_does_not_scroll_sideways(open_page: OpenPage, width: int, scripts: bool) -> None:
    """And without scripts it has no control that would do nothing."""
    shown = open_page(sample(), width, scripts=scripts)
    assert overflow(shown) <= 0
    assert shown.locator("#step").is_visible() == scripts == shown.locator("#k").is_visible()
    assert shown.locator(".chain").is_visible()
