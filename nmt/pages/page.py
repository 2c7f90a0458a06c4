"""What all pages for a browser share: a head that lets nothing be fetched, and one look, in light and dark."""

from pathlib import Path
from string import Template


def fill(template: str, title: str, **parts: str) -> str:
    """The page of a template in this folder, whose $head and other places are filled; all are HTML already."""
    return _read(template).substitute(parts, head=_read("page.html").substitute(title=title))


def _read(name: str) -> Template:
    return Template(Path(__file__).with_name(name).read_text(encoding="utf-8"))
