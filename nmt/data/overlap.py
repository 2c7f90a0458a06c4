"""How much of the held-out text stands in the training text too: counted and told, never dropped."""

import os
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nmt.data.encoding import normalise
from nmt.data.splits import Pair
from nmt.lines import read_lines

PATIENCE = 30  # seconds for the fetch of newstest2012


@dataclass(frozen=True)
class HeldOutSets:
    """Sets of held-out pairs by name, ready to be looked for among training pairs."""

    lines: dict[str, tuple[list[str], list[str]]]  # normalised, per side

    @classmethod
    def of(cls, sets: dict[str, Iterable[Pair]]) -> "HeldOutSets":
        lines = {}
        for name, pairs in sets.items():
            normalised = [(normalise(source), normalise(target)) for source, target in pairs]
            lines[name] = ([source for source, _ in normalised], [target for _, target in normalised])
        return cls(lines)

    @property
    def watched(self) -> tuple[frozenset[str], frozenset[str]]:
        """All lines of each side; blank ones are no sign of anything."""
        source, target = (frozenset(line for sides in self.lines.values() for line in sides[side]) for side in (0, 1))
        return source - {""}, target - {""}

    def count(self, met: tuple[Counter[str], Counter[str]]) -> dict[str, Any]:
        """For each set its size, and per side how many of its lines were met, in how many training pairs."""
        return {
            name: {"lines": len(sides[0])}
            | {
                side: {
                    "lines": sum(1 for line in sides[number] if line in met[number]),
                    "pairs": sum(met[number][line] for line in set(sides[number])),
                }
                for number, side in enumerate(("source", "target"))
            }
            for name, sides in self.lines.items()
        }


def describe_overlap(overlap: dict[str, Any]) -> list[str]:
    """A sentence for each set."""
    return [_sentence(name, **found) for name, found in overlap.items()]


def _sentence(name: str, lines: int, source: dict[str, int], target: dict[str, int]) -> str:
    if not source["pairs"] + target["pairs"]:
        return f"{name}: none of its {lines:,} lines stands in the training text (case and white space aside)"
    return (
        f"{name}: of its {lines:,} lines {source['lines']:,} sources and {target['lines']:,} targets stand in the training "
        f"text too, in {source['pairs']:,} and {target['pairs']:,} pairs (case and white space aside); none was dropped"
    )


def newstest2012(source: str, target: str) -> list[Pair] | str:
    """The test set of 2012 through sacrebleu, from its own store or the network, or why it cannot be had."""
    answer: list[list[Pair] | str] = []

    def fetch() -> None:
        try:
            from pathlib import Path

            if "SACREBLEU" not in os.environ:
                Path.home()  # raises where there is none, of which sacrebleu would make a folder named ~
            from sacrebleu.utils import get_files

            sides = [list(read_lines(Path(path))) for path in get_files("wmt12", f"{source}-{target}")[:2]]
            answer.append(list(zip(*sides, strict=True)))
        except (Exception, SystemExit) as error:  # it raises what urllib does, and exits where a sum is wrong
            answer.append(str(error) or type(error).__name__)

    fetching = threading.Thread(target=fetch, daemon=True)  # it would wait for a silent network without end
    fetching.start()
    fetching.join(PATIENCE)
    return answer[0] if answer else f"no answer within {PATIENCE} s"
