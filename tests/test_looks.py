"""What a text looks like: escaped, tokenised or cut text and other Unicode forms are told of, and plain text is not."""

import subprocess
import unicodedata

import pytest

from nmt.data.corpus import demo_folder
from nmt.lines import read_lines
from nmt.looks import SAMPLE, Sample, doubts, form_of, unlike

PLAIN = [
    *(
        "Wait ... what?",
        "He left at 3.30 p.m., I think.",
        "Bonjour ! Ça va ?",
        "R&D; AT&T;",
        "user@@host",
        "https://a.b/?c=1&d=2",
    ),
    *("It's “fine”.", "1 , 2", "Press Ctrl-C .", "Ich möchte Öl."),
]


def of(lines: list[str]) -> list[str]:
    """The kinds that the lines are told to be of, without what follows."""
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
    """N35: by their signs, in all lines or in a fair share of them, and with the way out."""
    for lines in ([line] * 20, [line] * 5 + PLAIN[:1] * 15):
        assert of(lines) == [kind]
    [doubt] = doubts({"one.de": [line] * 9, "other.de": [line] * 9, "plain.de": PLAIN[:1] * 9}, "what follows")
    assert doubt.startswith(f"one.de, other.de: seems {kind} (")
    assert "; what follows; take the raw text, or undo it with `" in doubt


def test_plain_text_is_of_no_kind() -> None:
    """N35: neither lines with a sign here and there, nor the demonstration's text, nor French and its spaces."""
    assert of([*PLAIN * 30, *["Use &lt; for <."] * 2]) == []
    assert of(PLAIN[2:3] * 50) == []
    assert of([*read_lines(demo_folder() / "train.de.gz")]) == of([]) == []


def test_the_way_out_of_escapes_is_one() -> None:
    """N35: the command that is told gives back the raw text."""
    [doubt] = doubts({"text": ["I don&apos;t"] * 9}, "so")
    command = doubt.partition("with `")[2].removesuffix("`")
    done = subprocess.run(["bash", "-c", command], input=b"I don&apos;t\na &amp; b", capture_output=True, check=True)
    assert done.stdout == b"I don't\na & b"


NFC = ["Grüße aus Köln.", "plain", "日本", "Zürich"]
NFD = [unicodedata.normalize("NFD", line) for line in NFC]


@pytest.mark.parametrize(
    ("lines", "form"),
    [(NFC, "NFC"), (NFD, "NFD"), (NFC + NFD, "mixed"), (NFC * 20 + NFD, "NFC"), (["plain", "日本 – 1"], ""), ([], "")],
)
def test_the_form_is_that_of_most_lines(lines: list[str], form: str) -> None:
    """N14: lines that all forms write alike, such as ASCII, are of none."""
    assert form_of(lines) == form


def test_forms_that_differ_are_told_of() -> None:
    """N14: of texts that are compared, and of text for a model, but where nothing is known of its training text."""
    assert doubts({"a": NFC, "b": NFC, "c": ["plain"]}, "so") == []
    for texts in ({"a": NFC, "b": NFD, "c": ["plain"]}, {"a": NFC + NFD}):
        [doubt] = doubts(texts, "so")
        assert doubt.startswith("a is in ")
        assert "`uconv -x nfc`" in doubt
    assert [bool(unlike(found, form)) for found, form in [("NFD", "NFC"), ("NFC", "NFD"), ("mixed", "NFC")]] == [
        True
    ] * 3
    assert not any(unlike(*pair) for pair in [("NFC", "NFC"), ("NFD", ""), ("", "NFC"), ("NFC", "mixed")])


@pytest.mark.parametrize("count", [0, 1, 2 * SAMPLE - 1, 2 * SAMPLE, 50_000])
def test_a_sample_is_evenly_spread(count: int) -> None:
    """All of a few pairs; of many at least SAMPLE, every n-th."""
    sample = Sample()
    for number in range(count):
        sample.add(str(number), "")
    taken = [int(source) for source, _ in sample.pairs]
    assert min(count, SAMPLE) <= len(taken) < 2 * SAMPLE
    assert taken == list(range(0, count, max(1, sample.step)))
