"""How much of the held-out text occurs in the training text: counted and reported, never dropped."""

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nmt.data.network import answer_within
from nmt.data.splits import Pair
from nmt.lines import read_lines

NEWSTEST_TIMEOUT = 30  # seconds to fetch newstest2012


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
        return {
            name: {"lines": len(pairs)}
            | {
                side: {
                    "lines": sum(pair[number] in self.pairs_with[number] for pair in pairs),
                    "pairs": sum(self.pairs_with[number][line] for line in {pair[number] for pair in pairs}),
                }
                for number, side in enumerate(("source", "target"))
            }
            for name, pairs in self.sets.items()
        }


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


def newstest2012(source: str, target: str) -> list[Pair] | str:
    """The WMT test set of 2012, from sacreBLEU's store or the network, or the reason why it is not available."""

    def fetch() -> list[Pair] | str:
        try:
            if "SACREBLEU" not in os.environ:
                Path.home()  # raises if there is none; sacreBLEU would create a folder named ~
            from sacrebleu.utils import get_files

            sides = [list(read_lines(Path(path))) for path in get_files("wmt12", f"{source}-{target}")[:2]]
            return list(zip(*sides, strict=True))
        except (Exception, SystemExit) as error:  # whatever urllib raises; sacreBLEU exits if a checksum is wrong
            return str(error) or type(error).__name__

    answer = answer_within(NEWSTEST_TIMEOUT, fetch)
    return f"no answer within {NEWSTEST_TIMEOUT} s" if answer is None else answer
