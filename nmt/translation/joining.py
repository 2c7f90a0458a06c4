"""From the hypotheses of sentences, each searched by itself, to the translations of a line."""

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from nmt.data.vocabulary import Vocabulary
from nmt.ids import EOS
from nmt.signs import differ, numbers_of, repeats
from nmt.translation.alignment import align
from nmt.translation.hypothesis import Hypothesis

FLAGS = {  # what a reader should know of a translation, and the warning that says so
    "cut": "too long for one search, so translated in parts",
    "limit": "ended by the length limit, so perhaps incomplete",
    "repetition": "repeats the same words over and over",
    "numbers": "has other numbers than its source",
}


@dataclass(frozen=True)
class Translation:
    """One translation of a line. Score, log-probability and tokens are sums over its sentences; what is copied adds 0."""

    text: str
    score: float  # ranks the translations; of a single sentence log_probability / length_penalty(tokens, alpha)
    log_probability: float  # natural logarithm, including EOS
    tokens: int  # pieces, including EOS
    flags: list[str]  # keys of FLAGS
    details: dict[str, Any] | None = None  # if SearchOptions.details, as from `_details`


@dataclass
class Segment:
    """What is searched at once: a sentence, or a part of one that is too long."""

    ids: list[int]
    is_part: bool
    hypotheses: list[Hypothesis] = field(default_factory=list)  # best first


Copied = tuple[str, str]  # what is not searched, in the source and in the translation: only the white space may differ
Line = list[Copied | Segment]  # the parts of a line in order


def join(
    line: Line, vocabulary: Vocabulary, count: int, details: bool = False, keeps_numbers: bool = True
) -> list[Translation]:
    """The `count` best translations of a line whose segments have their hypotheses, or fewer if there are no more.

    No text occurs twice, though several hypotheses may spell it: the best one counts. If `keeps_numbers`, a translation with
    other numbers than the source is flagged.
    """
    segments = [piece for piece in line if isinstance(piece, Segment)]
    numbers = numbers_of(vocabulary.decode(segment.ids) for segment in segments) if keeps_numbers else None
    translations: dict[str, Translation] = {}
    for chosen in k_best([segment.hypotheses for segment in segments], count):
        texts = [vocabulary.decode(hypothesis.ids) for hypothesis in chosen]
        remaining = iter(texts)
        text = "".join(next(remaining) if isinstance(piece, Segment) else piece[1] for piece in line)
        if text not in translations:
            translations[text] = Translation(
                text,
                sum((hypothesis.score for hypothesis in chosen), 0.0),
                sum((hypothesis.log_probability for hypothesis in chosen), 0.0),
                sum(len(hypothesis.ids) + 1 for hypothesis in chosen),
                _flags(segments, chosen, numbers is not None and differ(numbers, numbers_of(texts))),
                _details(line, chosen, vocabulary) if details else None,
            )
    return list(translations.values())


def _flags(segments: list[Segment], chosen: list[Hypothesis], numbers_differ: bool) -> list[str]:
    pairs = zip(segments, chosen, strict=True)
    holds = {
        "cut": any(segment.is_part for segment in segments),
        "limit": any(hypothesis.at_limit for hypothesis in chosen),
        "repetition": any(repeats(hypothesis.ids) and not repeats(segment.ids) for segment, hypothesis in pairs),
        "numbers": numbers_differ,
    }
    return [flag for flag in FLAGS if holds[flag]]


def _details(line: Line, chosen: list[Hypothesis], vocabulary: Vocabulary) -> dict[str, Any]:
    """The model's view of a translation:

    pieces             as SentencePiece writes them, with an EOS for each sentence
    log_probabilities  one for each piece
    alignment          "0-0 1-2": source word and target word, separated by spaces and counted from 0
    """
    pieces: list[str] = []
    log_probabilities: list[float] = []
    links: list[str] = []
    remaining = iter(chosen)
    source = target = ""  # of the line so far
    for piece in line:
        if isinstance(piece, Segment):
            hypothesis = next(remaining)
            assert hypothesis.forced is not None
            pieces += vocabulary.pieces([*hypothesis.ids, EOS])
            log_probabilities += hypothesis.forced.log_probabilities
            before, after = (len(re.findall("[^ ]+ ", text)) for text in (source, target))  # words that a space ended
            pairs = align(hypothesis.forced.attention, piece.ids, hypothesis.ids, vocabulary)
            links += [f"{before + i}-{after + j}" for i, j in pairs]
            texts = vocabulary.decode(piece.ids), vocabulary.decode(hypothesis.ids)
        else:
            texts = piece
        source, target = source + texts[0], target + texts[1]
    return {"pieces": pieces, "log_probabilities": log_probabilities, "alignment": " ".join(links)}


def k_best(lists: Sequence[Sequence[Hypothesis]], k: int) -> list[list[Hypothesis]]:
    """The k choices of one hypothesis from each list with the greatest sums of scores, best first.

    Exact: a choice from the first lists that is not among their k best has k better ones, whatever follows.
    """
    best: list[tuple[float, list[Hypothesis]]] = [(0.0, [])]
    for hypotheses in lists:
        longer = [(total + each.score, [*chosen, each]) for total, chosen in best for each in hypotheses]
        best = heapq.nlargest(k, longer, key=itemgetter(0))
    return [chosen for _, chosen in best]
