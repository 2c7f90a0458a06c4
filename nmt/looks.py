"""What a text looks like: escaped, tokenised, cut into subwords, or in another Unicode form than what it goes with.

It is told, with the way out, and never mended: text is used as it is.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence

SAMPLE = 1_000  # lines that are looked at, evenly spread
FORMS = {
    "NFC": "composed Unicode (NFC)",
    "NFD": "decomposed Unicode (NFD)",
    "mixed": "both composed and decomposed Unicode",
}
UNESCAPE = "python3 -c 'import html, sys; [print(html.unescape(line), end=\"\") for line in sys.stdin]'"
# How text may look: by what sign, in how many lines and what share of them at the least, and what undoes it.
LOOKS = (
    ("cut into subwords (@@)", re.compile(r"\w@@(?: |$)"), 1, 0.2, "sed -E 's/@@( |$)//g'"),
    ("cut into subwords (▁)", re.compile("▁"), 1, 0.2, "sed 's/ //g; s/▁/ /g; s/^ //'"),
    ("tokenised (spaces before full stops and commas)", re.compile(r"\w [.,](?: |$)"), 5, 0.2, "sacremoses detokenize"),
    ("escaped (&apos; and the like)", re.compile(r"&(?:[a-z]{2,5}|#\d{2,5});"), 3, 0.01, UNESCAPE),
)


class Sample:
    """Pairs evenly spread over any number of them: all of a few, and from SAMPLE to twice as many of more."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self.count, self.step = 0, 1

    def add(self, left: str, right: str, _text: bytes = b"") -> None:
        if self.count % self.step == 0:
            self.pairs.append((left, right))
            if len(self.pairs) == 2 * SAMPLE:
                del self.pairs[1::2]
                self.step *= 2
        self.count += 1


def form_of(lines: Sequence[str]) -> str:
    """The Unicode form of the lines, one of FORMS, or "" where all forms write them alike."""
    lines = [line for line in lines if not line.isascii()]
    composed = sum(not unicodedata.is_normalized("NFD", line) for line in lines)
    decomposed = sum(not unicodedata.is_normalized("NFC", line) for line in lines)
    share = decomposed / max(1, composed + decomposed)
    if 0.1 <= share <= 0.9:
        return "mixed"
    return "NFD" if share > 0.9 else "NFC" if composed else ""


def doubts(texts: Mapping[str, Sequence[str]], so: str) -> list[str]:
    """What may be wrong with these texts of one language, a sentence each; `so` says what comes of it."""
    samples = {name: lines[:: max(1, len(lines) // SAMPLE)] for name, lines in texts.items()}
    found = []
    for look, sign, fewest, share, undone in LOOKS:
        counts = {name: sum(1 for line in lines if sign.search(line)) for name, lines in samples.items()}
        if names := [name for name, count in counts.items() if count >= max(fewest, share * len(samples[name]))]:
            found.append(f"{', '.join(names)}: seems {look}; {so}; take the raw text, or undo it with `{undone}`")
    forms = {name: form for name, lines in samples.items() if (form := form_of(lines))}
    if len({*forms.values()}) > 1 or "mixed" in forms.values():
        said = ", ".join(f"{name} is in {FORMS[form]}" for name, form in forms.items())
        found.append(f"{said}: equal letters count as different ones; bring all into one form, as with `uconv -x nfc`")
    return found


def unlike(found: str, form: str) -> str | None:
    """A sentence where the form `found` of a text is not the form that its model was trained on, if that had one."""
    if form not in ("NFC", "NFD") or found in ("", form):
        return None
    return (
        f"text in {FORMS[found]}, where the model was trained on {FORMS[form]}: other letters to it; "
        f"convert the text, as with `uconv -x {form.lower()}`"
    )
