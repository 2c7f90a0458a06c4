"""Signs that text is not raw: escaped, tokenised, cut into subwords, or in another Unicode form than the text it belongs to.

The user is told, with a way out. The text itself is used as it is.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence

SAMPLED_LINES = 1_000  # evenly spread, of each text
FORMS = {"NFC": "composed Unicode (NFC)", "NFD": "decomposed Unicode (NFD)", "mixed": "composed and decomposed Unicode"}
UNESCAPE = "python3 -c 'import html, sys; [print(html.unescape(line), end=\"\") for line in sys.stdin]'"
# What a text looks like, the sign in a line, in how many lines and what share of them it must occur, and what undoes it.
LOOKS = (
    ("cut into subwords (@@)", re.compile(r"\w@@(?: |$)"), 1, 0.2, "sed -E 's/@@( |$)//g'"),
    ("cut into subwords (▁)", re.compile("▁"), 1, 0.2, "sed 's/ //g; s/▁/ /g; s/^ //'"),
    ("tokenised (spaces before full stops and commas)", re.compile(r"\w [.,](?: |$)"), 5, 0.2, "sacremoses detokenize"),
    ("escaped (&apos; and the like)", re.compile(r"&(?:[a-z]{2,5}|#\d{2,5});"), 3, 0.01, UNESCAPE),
)


class Sample:
    """Evenly spread pairs of a text of any length: all of a few, or between SAMPLED_LINES and twice as many."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self.count, self.step = 0, 1

    def add(self, pair: tuple[str, str]) -> None:
        """Offer the next pair; every `step`-th is taken."""
        if self.count % self.step == 0:
            self.pairs.append(pair)
            if len(self.pairs) == 2 * SAMPLED_LINES:
                del self.pairs[1::2]
                self.step *= 2
        self.count += 1


def form_of(lines: Sequence[str]) -> str:
    """The Unicode form of the lines, one of FORMS; "" if their text is the same in all forms."""
    lines = [line for line in lines if not line.isascii()]
    composed = sum(not unicodedata.is_normalized("NFD", line) for line in lines)
    decomposed = sum(not unicodedata.is_normalized("NFC", line) for line in lines)
    share = decomposed / max(1, composed + decomposed)
    if 0.1 <= share <= 0.9:
        return "mixed"
    return "NFD" if share > 0.9 else "NFC" if composed else ""


def doubts(texts: Mapping[str, Sequence[str]], consequence: str) -> list[str]:
    """Sentences on what may be wrong with these texts (by name) of one language, and what `consequence` it has."""
    samples = {name: lines[:: max(1, len(lines) // SAMPLED_LINES)] for name, lines in texts.items()}
    found = []
    for look, sign, least, share, undo in LOOKS:
        counts = {name: sum(1 for line in lines if sign.search(line)) for name, lines in samples.items()}
        if names := [name for name, count in counts.items() if count >= max(least, share * len(samples[name]))]:
            found.append(f"{', '.join(names)}: seems {look}; {consequence}; take the raw text, or undo it with `{undo}`")
    forms = {name: form for name, lines in samples.items() if (form := form_of(lines))}
    if len({*forms.values()}) > 1 or "mixed" in forms.values():
        named = ", ".join(f"{name} is in {FORMS[form]}" for name, form in forms.items())
        found.append(f"{named}: equal letters count as different; convert all, for example with `uconv -x nfc`")
    return found


def unlike(found: str, form: str) -> str | None:
    """A sentence if text in the form `found` goes to a model that was trained on text in another `form`."""
    if form not in ("NFC", "NFD") or found in ("", form):
        return None
    advice = f"convert it, for example with `uconv -x {form.lower()}`"
    return f"text in {FORMS[found]}, but the model was trained on {FORMS[form]}; {advice}"
