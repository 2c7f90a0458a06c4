"""Signs that text is not raw: escaped, tokenised or split text and other Unicode forms are reported, plain text is not."""

import unicodedata

import pytest

from nmt.data.corpus import demo_folder
from nmt.lines import read_lines
from nmt.looks import doubts, unlike

PLAIN = ["Wait ... what?", "He left at 3.30 p.m., I think.", "Bonjour ! Ça va ?", "R&D; AT&T;", "user@@host"]
PLAIN += ["https://a.b/?c=1&d=2", "It's “fine”.", "1 , 2", "Press Ctrl-C .", "Ich möchte Öl."]


def of(lines: list[str]) -> list[str]:
    """What the lines are said to look like."""
    return [doubt.removeprefix("text: seems ").partition(" (")[0] for doubt in doubts({"text": lines}, "so")]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Ich weiß es nicht , sagte sie .", "tokenised"),
        ("I don&apos;t know.", "escaped"),
        ("He said &quot;no&quot;.", "escaped"),
        ("Item &#91;1&#93;", "escaped"),
        ("An un@@ known word", "cut into subwords"),
        ("The last pie@@", "cut into subwords"),
        ("▁An ▁un known ▁word", "cut into subwords"),
    ],
)
def test_the_kinds_are_known(line: str, kind: str) -> None:
    """N35: by their signs, in all lines or in a fair share of them, with a way out."""
    for lines in ([line] * 20, [line] * 5 + PLAIN[:1] * 15):
        assert of(lines) == [kind]
    [doubt] = doubts({"one.de": [line] * 9, "other.de": [line] * 9, "plain.de": PLAIN[:1] * 9}, "so")
    assert doubt.startswith(f"one.de, other.de: seems {kind} (")
    assert "; so; take the raw text, or undo it with `" in doubt


def test_plain_text_is_of_no_kind() -> None:
    """N35: neither lines with a sign here and there, nor the demo's text, nor French with its spaces."""
    assert of([*PLAIN * 30, *["Use &lt; for <."] * 2]) == []
    assert of(PLAIN[2:3] * 50) == []
    assert of([*read_lines(demo_folder() / "train.de.gz")]) == of([]) == []


NFC = ["Grüße aus Köln.", "plain", "日本", "Zürich"]
NFD = [unicodedata.normalize("NFD", line) for line in NFC]


def test_forms_that_differ_are_told_of() -> None:
    """N14: between texts, and between a text and a model, unless the form of its training text is unknown."""
    assert doubts({"a": NFC, "b": NFC, "c": ["plain"]}, "so") == []
    for texts in ({"a": NFC, "b": NFD, "c": ["plain"]}, {"a": NFC + NFD}):
        [doubt] = doubts(texts, "so")
        assert doubt.startswith("a is in ")
        assert "`uconv -x nfc`" in doubt
    assert all(unlike(*pair) for pair in [("NFD", "NFC"), ("NFC", "NFD"), ("mixed", "NFC")])
    assert not any(unlike(*pair) for pair in [("NFC", "NFC"), ("NFD", ""), ("", "NFC"), ("NFC", "mixed")])
