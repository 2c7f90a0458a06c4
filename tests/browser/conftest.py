"""A real browser, in which no page may fetch anything or complain of anything."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

NAMES = ("chromium", "chromium-browser", "google-chrome")


class OpenPage(Protocol):
    def __call__(
        self, page: str | Path, width: int = 1280, scheme: str = "light", scripts: bool = True, at: str = ""
    ) -> "Page": ...


@pytest.fixture(scope="module")  # no longer, for meanwhile an event loop runs in this thread
def browser() -> Iterator["Browser"]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"there is no browser to test with: {', '.join(NAMES)}")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: "Browser", tmp_path: Path) -> Iterator[OpenPage]:
    """Opens HTML, or a file, in a window of this width, at a place of the page such as "#end".

    At the test's end fails if a page has asked for anything but itself, or if its console has an error or a warning.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []
    names = (tmp_path / f"page-{number}.html" for number in count())

    def open_page(
        page: str | Path, width: int = 1280, scheme: str = "light", scripts: bool = True, at: str = ""
    ) -> "Page":
        if isinstance(page, str):
            path = next(names)
            path.write_text(page, encoding="utf-8")
        else:
            path = page
        address = path.resolve().as_uri()

        def asked(request: "Request") -> None:
            if request.url != address:
                faults.append(f"fetched {request.url}")

        def said(message: "ConsoleMessage") -> None:
            if message.type in ("error", "warning"):
                faults.append(message.text)

        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            java_script_enabled=scripts,
            has_touch=width < 500,
        )
        contexts.append(context)
        opened = context.new_page()
        opened.on("request", asked)
        opened.on("console", said)
        opened.on("pageerror", lambda error: faults.append(str(error)))
        opened.goto(address + at)
        return opened

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def overflow(page: "Page") -> int:
    """How far the page can be scrolled sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def contrasts(page: "Page") -> dict[str, float]:
    """The least contrast (WCAG 2) of each text that is seen, with what is behind it."""
    found: list[tuple[str, float]] = page.evaluate(
        """() => {
            const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
            const luminance = color => {  // of any color that CSS can write
                paint.fillStyle = color;
                paint.fillRect(0, 0, 1, 1);
                const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].map(
                    part => part / 255 <= .04045 ? part / 255 / 12.92 : ((part / 255 + .055) / 1.055) ** 2.4);
                return .2126 * r + .7152 * g + .0722 * b;
            };
            const behind = element => {
                const color = getComputedStyle(element).backgroundColor;
                return color === "rgba(0, 0, 0, 0)" && element.parentElement ? behind(element.parentElement) : color;
            };
            const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) {
                const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
                if (!text || !element.checkVisibility({visibilityProperty: true})) continue;
                const [ink, paper] = [luminance(getComputedStyle(element).color), luminance(behind(element))];
                found.push([text, (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05)]);
            }
            return found;
        }"""
    )
    least: dict[str, float] = {}
    for text, contrast in found:
        least[text] = min(contrast, least.get(text, contrast))
    return least
