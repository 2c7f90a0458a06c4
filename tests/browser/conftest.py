"""A real browser, in which no page may fetch anything or complain of anything."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

NAMES = ("chromium", "chromium-browser", "google-chrome")
OpenPage = Callable[..., "Page"]


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
    """Opens HTML in a window of this width, with or without scripts.

    The test fails at its end if a page has fetched anything but itself, or if its console has an error or a warning.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_page(html: str, width: int = 1280, scripts: bool = True) -> "Page":
        path = tmp_path / f"page-{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")

        def asked(request: "Request") -> None:
            if request.url != path.as_uri():
                faults.append(f"fetched {request.url}")

        def said(message: "ConsoleMessage") -> None:
            if message.type in ("error", "warning"):
                faults.append(message.text)

        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, java_script_enabled=scripts))
        opened = contexts[-1].new_page()
        opened.on("request", asked)
        opened.on("console", said)
        opened.on("pageerror", lambda error: faults.append(str(error)))
        opened.goto(path.as_uri())
        return opened

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def overflow(page: "Page") -> int:
    """How far the page can be scrolled sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
