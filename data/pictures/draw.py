"""Make the README's pictures from a model that `make demo` trained: python data/pictures/draw.py MODEL

attention.svg is the output of `nmt attention --svg`. curve.png and curve-dark.png are the first chart of report.html, as
Chromium shows it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SENTENCE = "Julia says that she has bought the new car."
HERE = Path(__file__).parent


def main() -> None:
    model, chromium = Path(sys.argv[1]), shutil.which("chromium")
    if chromium is None:
        sys.exit("install Chromium, which draws the curve")
    command = ["nmt", "attention", SENTENCE, "--svg", "-m", str(model), "-o", str(HERE / "attention.svg")]
    subprocess.run([sys.executable, "-m", *command], check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 500, "height": 900}, device_scale_factor=2)
        page.goto((model / "report.html").resolve().as_uri())
        page.add_style_tag(content="figure { padding: 1rem }")  # keeps the last point whole
        page.locator("figure").first.screenshot(path=HERE / "curve.png")
        page.emulate_media(color_scheme="dark")
        page.locator("figure").first.screenshot(path=HERE / "curve-dark.png")
        browser.close()


if __name__ == "__main__":
    main()
