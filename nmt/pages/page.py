"""What the pages share: templates, which are the HTML and SVG files in this folder, and text from outside."""

import re
from html import escape
from pathlib import Path
from string import Template

from nmt.lines import clean


def fill(template: str, **parts: object) -> str:
    """The template with its placeholders replaced. All parts are HTML."""
    return Template(Path(__file__).with_name(template).read_text(encoding="utf-8")).substitute(parts)


def text(value: object) -> str:
    """Any value as HTML."""
    return escape(visible(clean(str(value))))


def visible(string: str) -> str:
    """The string with U+FFFD for each character that neither UTF-8 nor XML can hold."""
    return re.sub("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", string)
