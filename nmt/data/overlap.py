"""How much of the held-out text occurs in the training text: counted and reported, never dropped."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

from nmt.data.splits import Pair


class Overlap:
    """Counts how often the lines of held-out sets occur in training pairs."""

    def __init__(self, sets: dict[str, Iterable[Pair]]) -> None:
        self.sets = {name: [(normalise(source), normalise(target)) for source, target in sets[name]] for name in sets}
        self.wanted = [{pair[side] for pairs in self.sets.values() for pair in pairs} - {""} for side in (0, 1)]
        self.pairs_with: tuple[Counter[str], Counter[str]] = (Counter(), Counter())  # by source and by target line

    def search(self, pairs: Iterable[Pair]) -> None:
        """Look for the lines in these training pairs, too."""
        for side in (0, 1):
            if wanted := self.wanted[side]:
                self.pairs_with[side].update(line for pair in pairs if (line := normalise(pair[side])) in wanted)

    def counts(self) -> dict[str, Any]:
        """For each set its size and, per side, how many of its lines were found, in how many training pairs."""
        found: dict[str, Any] = {}
        for name, pairs in self.sets.items():
            found[name] = {"lines": len(pairs)}
            for number, side in enumerate(("source", "target")):
                lines, seen = [pair[number] for pair in pairs], self.pairs_with[number]
                found[name][side] = {
                    "lines": sum(line in seen for line in lines),
                    "pairs": sum(seen[line] for line in {*lines}),
                }
        return found


def normalise(line: str) -> str:
    """The form in which held-out and training lines are compared: NFC, lower case, single spaces."""
    return unicodedata.normalize("NFC", " ".join(line.casefold().split()))


def overlap_note(name: str, lines: int, source: dict[str, int], target: dict[str, int]) -> str:
    """A sentence about one set of `Overlap.counts`."""
    if not source["pairs"] + target["pairs"]:
        return f"{name}: none of its {lines:,} lines occurs in the training text (ignoring case and white space)"
    return (
        f"{name}: of its {lines:,} lines, {source['lines']:,} sources and {target['lines']:,} targets also occur in the "
        f"training text, in {source['pairs']:,} and {target['pairs']:,} pairs (ignoring case and white space); none is dropped"
    )
