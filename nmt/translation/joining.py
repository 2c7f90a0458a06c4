"""Put together again: from the hypotheses of what was searched by itself to the translations of a line."""

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from nmt.data.vocabulary import Vocabulary
from nmt.ids import EOS
from nmt.translation.alignment import align
from nmt.translation.hypothesis import Hypothesis

CUT, LIMIT, REPETITION, NUMBERS = "cut", "limit", "repetition", "numbers"
FLAGS = {  # what a reader should know of a translation, and how it is told
    CUT: "too long for one search, so translated in parts",
    LIMIT: "ended by the length limit, so perhaps incomplete",
    REPETITION: "says the same thing over and over",
    NUMBERS: "has other numbers than its source",
}

UNIT, TIMES, STRETCH = 8, 4, 8  # see `repeats`
# A number with its thousands set apart, or digits alone: what stands behind a decimal point is a number by itself.
_NUMBER = re.compile("(?<!\\d)\\d{1,3}(?:[.,'’\u066c \u00a0\u2009\u202f]\\d{3}(?!\\d))+|\\d+")
SPELLED = {"", *map(str, range(1, 13))}  # numbers from 0 to 12, which many a text writes as words


@dataclass(frozen=True)
class Details:
    """What the model says of a translation, piece by piece."""

    pieces: list[str]  # as SentencePiece writes them, with the EOS of each part
    log_probabilities: list[float]  # of each of them
    alignment: str  # "0-0 1-2": which word of the source each word comes from, both counted from 0 between spaces


@dataclass(frozen=True)
class Translation:
    """One translation of a line.

    Where a line was searched in sentences or parts, its score, log-probability and tokens are the sums of theirs. What was
    copied adds nothing.
    """

    text: str
    score: float  # by which translations are ranked
    log_probability: float  # natural logarithm, EOS included
    tokens: int  # pieces, EOS included: score = log_probability / length_penalty(tokens, alpha), if searched at once
    flags: list[str]  # of FLAGS
    details: Details | None = None  # where they were asked for


@dataclass
class Segment:
    """What goes through search at once: a sentence, or a part of one that is too long."""

    ids: list[int]
    cut: bool  # whether it is but a part
    hypotheses: list[Hypothesis] = field(default_factory=list)  # the best first


@dataclass(frozen=True)
class Gap:
    """What stands between two sentences, or parts of one."""

    source: str
    target: str


Line = list[str | Gap | Segment]  # a line taken apart: what is copied, what stands between, and what is translated
_Choice = tuple["_Choice", Hypothesis] | None  # one from each list so far, the last of them outermost


def join(
    line: Line, vocabulary: Vocabulary, count: int, details: bool = False, keeps_numbers: bool = True
) -> list[Translation]:
    """The `count` best translations of a line whose parts have their hypotheses, or as many as there are.

    The same text may be spelled in several ways: it counts once, with the best one's score. `keeps_numbers` is whether they
    should be those of the source.
    """
    segments = [piece for piece in line if isinstance(piece, Segment)]
    numbers = numbers_of(vocabulary.decode(segment.ids) for segment in segments) if keeps_numbers else None
    found: dict[str, Translation] = {}
    for chosen in k_best([segment.hypotheses for segment in segments], count):
        translation = _translation(line, segments, chosen, vocabulary, details, numbers)
        found.setdefault(translation.text, translation)
    return list(found.values())


def _translation(
    line: Line,
    segments: list[Segment],
    chosen: list[Hypothesis],
    vocabulary: Vocabulary,
    details: bool,
    numbers: Counter[str] | None,
) -> Translation:
    texts = [vocabulary.decode(hypothesis.ids) for hypothesis in chosen]
    following = iter(texts)
    facts = {
        CUT: any(segment.cut for segment in segments),
        LIMIT: any(hypothesis.at_limit for hypothesis in chosen),
        REPETITION: any(
            repeats(hypothesis.ids) and not repeats(segment.ids)
            for segment, hypothesis in zip(segments, chosen, strict=True)
        ),
        NUMBERS: numbers is not None and differ(numbers, numbers_of(texts)),
    }
    return Translation(
        "".join(next(following) if isinstance(piece, Segment) else _copied(piece)[1] for piece in line),
        sum((hypothesis.score for hypothesis in chosen), 0.0),
        sum((hypothesis.log_probability for hypothesis in chosen), 0.0),
        sum(len(hypothesis.ids) + 1 for hypothesis in chosen),
        [flag for flag, holds in facts.items() if holds],
        _details(line, chosen, vocabulary) if details else None,
    )


def _copied(piece: str | Gap) -> tuple[str, str]:
    """What stands in the source and in the translation."""
    return (piece, piece) if isinstance(piece, str) else (piece.source, piece.target)


def _details(line: Line, chosen: list[Hypothesis], vocabulary: Vocabulary) -> Details:
    pieces: list[str] = []
    log_probabilities: list[float] = []
    links: list[str] = []
    following = iter(chosen)
    source = target = ""  # so far
    for piece in line:
        if not isinstance(piece, Segment):
            left, right = _copied(piece)
            source, target = source + left, target + right
            continue
        hypothesis = next(following)
        assert hypothesis.forced is not None
        pieces += vocabulary.pieces([*hypothesis.ids, EOS])
        log_probabilities += hypothesis.forced.log_probabilities
        for i, j in align(hypothesis.forced.attention, piece.ids, hypothesis.ids, vocabulary):
            links.append(f"{i + _words(source)}-{j + _words(target)}")
        source, target = source + vocabulary.decode(piece.ids), target + vocabulary.decode(hypothesis.ids)
    return Details(pieces, log_probabilities, " ".join(links))


def _words(text: str) -> int:
    """How many words have ended."""
    return len(re.findall("[^ ]+ ", text))


def k_best(lists: Sequence[Sequence[Hypothesis]], k: int) -> list[list[Hypothesis]]:
    """The k choices of one hypothesis from each list whose summed scores are the greatest, the best first.

    Exact: of the first lists, a choice that is not among the k best can be bettered k times whatever follows.
    """
    best: list[tuple[float, _Choice]] = [(0.0, None)]
    for hypotheses in lists:
        longer = [(total + found.score, (before, found)) for total, before in best for found in hypotheses]
        best = heapq.nlargest(k, longer, key=itemgetter(0))
    return [_unlinked(choice) for _, choice in best]


def _unlinked(choice: _Choice) -> list[Hypothesis]:
    chosen: list[Hypothesis] = []
    while choice is not None:
        choice, hypothesis = choice
        chosen.append(hypothesis)
    return chosen[::-1]


def repeats(ids: Sequence[int]) -> bool:
    """Whether the same one to eight pieces stand at least four times in a row, over eight pieces or more.

    A translation that does this while its source does not is caught in a loop.
    """
    for unit in range(1, UNIT + 1):
        same = 0  # pieces in a row that stood `unit` pieces earlier too
        for earlier, later in zip(ids, ids[unit:], strict=False):
            same = same + 1 if earlier == later else 0
            if same + unit >= max(STRETCH, TIMES * unit):
                return True
    return False


def numbers_of(texts: Iterable[str]) -> Counter[str]:
    """How often each number stands in the texts: its digits as 0 to 9 whatever the script, without leading zeros."""
    found = (match for text in texts for match in _NUMBER.findall(text))
    return Counter("".join(str(int(digit)) for digit in match if digit.isdecimal()).lstrip("0") for match in found)


def differ(source: Counter[str], target: Counter[str]) -> bool:
    """Whether numbers are missing, added or replaced. A small one alone may be spelled out on one side."""
    missing, added = source - target, target - source
    return bool(missing and added) or not {*missing, *added} <= SPELLED
