"""Signs that one text is no translation of another: other numbers, or the same words over and over."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

MAX_REPEATED_PIECES, MIN_REPETITIONS, MIN_LOOP_PIECES = 8, 4, 8
# Digits with separated thousands, or digits alone. The digits behind a decimal point count as a number of their own.
_NUMBER = re.compile("(?<!\\d)\\d{1,3}(?:[.,'’\u066c \u00a0\u2009\u202f]\\d{3}(?!\\d))+|\\d+")
OFTEN_SPELLED_OUT = {"", *map(str, range(1, 13))}  # the numbers from 0 to 12, without leading zeros


def repeats(pieces: Sequence[object]) -> bool:
    """Whether one to eight pieces, or words, occur at least four times in a row, filling at least eight.

    A translation that does this while its source does not is caught in a loop.
    """
    for period in range(1, MAX_REPEATED_PIECES + 1):
        equal = 0  # consecutive pieces that equal the one `period` places earlier
        for earlier, later in zip(pieces, pieces[period:], strict=False):
            equal = equal + 1 if earlier == later else 0
            if equal + period >= max(MIN_LOOP_PIECES, MIN_REPETITIONS * period):
                return True
    return False


def numbers_of(texts: Iterable[str]) -> Counter[str]:
    """How often each number occurs in the texts, written in the digits 0 to 9 without leading zeros."""
    found = (match for text in texts for match in _NUMBER.findall(text))
    return Counter("".join(str(int(digit)) for digit in match if digit.isdecimal()).lstrip("0") for match in found)


def differ(source: Counter[str], target: Counter[str]) -> bool:
    """Whether numbers are missing, added or replaced. Small ones may be missing on one side, where they are spelled out."""
    missing, added = source - target, target - source
    return bool(missing and added) or not {*missing, *added} <= OFTEN_SPELLED_OUT
