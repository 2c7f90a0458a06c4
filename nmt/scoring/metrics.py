"""Scores to trust: sacreBLEU on detokenised text against raw references, always with its signature."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import is_blank
from nmt.writing import tokenizer_for

METRICS = ("bleu", "chrf", "ter")
FEWEST = 30  # lines for an interval: resamples of few lines are too alike, and of 10 its 95% hold in fewer than 90 of 100 texts
LOWER_IS_BETTER = "TER"  # it counts edits; the others count what is right

Text = tuple[str, Sequence[str]]  # what to call it, and its lines


@dataclass(frozen=True)
class Evaluation:
    """What is scored: the translations of one or more systems, and what they should be, line by line.

    Raises UsageError where line counts differ or there is nothing to score: sacreBLEU's own interface would score the shorter
    part, even with 100.
    """

    systems: Sequence[Text]  # the first is the baseline that others are compared with
    references: Sequence[Text]
    source: Sequence[str] | None = None  # where it is known

    def __post_init__(self) -> None:
        for name, lines in self.systems:
            for reference, expected in self.references:
                if len(lines) != len(expected):
                    raise UsageError(
                        f"{name} has {counted(len(lines), 'line')} but {reference} has {len(expected):,}: they must line up"
                    )
            if not lines:
                raise UsageError(f"{name}: holds no lines to score")

    @property
    def lines(self) -> int:
        return len(self.systems[0][1])

    @property
    def without_reference(self) -> list[int]:
        """The places of lines of which every reference is blank."""
        return _blank(self.references)[1]

    @property
    def with_fewer_references(self) -> dict[str, list[int]]:
        """By reference, the places of lines that are blank in it, and not in another one."""
        blank, everywhere = _blank(self.references)
        return {
            name: places
            for (name, _), found in zip(self.references, blank, strict=True)
            if (places := sorted({*found} - {*everywhere}))
        }


@dataclass(frozen=True)
class Confidence:
    """What 1,000 bootstrap resamples of the sentences tell of a score (Koehn 2004)."""

    mean: float  # of their scores
    interval: float  # half the width of the range that holds 95% of them
    p_value: float | None  # of the difference from the first system, two-sided; None for that itself


@dataclass(frozen=True)
class Score:
    """A score, and everything needed to compute it again."""

    metric: str
    value: float  # from 0 to 100; TER may exceed that
    signature: str
    lines: int
    confidence: Confidence | None = None

    def __str__(self) -> str:
        sure = self.confidence
        interval = f"; 95% interval {sure.mean:.2f} ± {sure.interval:.2f}" if sure else ""
        return f"{self.metric} {self.value:.2f} ({counted(self.lines, 'line')}{interval}) {self.signature}"


def create(metric: str, references: Sequence[Text], lowercase: bool = False, of_sentences: bool = False) -> Any:
    """sacreBLEU's metric of that name in METRICS, with its default settings but for references that write no spaces: these
    are taken apart by the tokeniser that is made for them, which the signature tells.

    BLEU of sentences counts no longer n-grams than there are (effective order), or it would be near 0 for short ones.
    """
    from sacrebleu.metrics import BLEU, CHRF, TER

    tokenizer = tokenizer_for(chain.from_iterable(lines for _, lines in references))
    if metric == "bleu":
        return BLEU(lowercase=lowercase, tokenize=tokenizer, effective_order=of_sentences)
    if metric == "chrf":
        return CHRF(lowercase=lowercase)
    unspaced = tokenizer != "13a"
    return TER(normalized=unspaced, asian_support=unspaced)  # it ignores case by default


def corpus_scores(evaluation: Evaluation, metric: Any, confidence: bool = False) -> list[Score]:
    """The score of each system by a sacreBLEU metric, in order; with `confidence` of FEWEST lines and more."""
    references = _usable(evaluation.references)
    if confidence and evaluation.lines >= FEWEST:
        return _resampled(evaluation, references, metric)
    results = [metric.corpus_score(lines, references) for _, lines in evaluation.systems]
    return [Score(result.name, result.score, str(metric.get_signature()), evaluation.lines) for result in results]


def too_short_for_bleu(references: Sequence[Text]) -> bool:
    """Whether no line has four words in a row, so that BLEU is 0 even of the references themselves."""
    bleu = create("bleu", references)
    return all(len(bleu.tokenizer(line).split()) < bleu.max_ngram_order for _, lines in references for line in lines)


def _blank(references: Sequence[Text]) -> tuple[list[list[int]], list[int]]:
    """The places of blank lines, by reference, and those of lines that are blank in all of them."""
    blank = [[place for place, line in enumerate(lines) if is_blank(line)] for _, lines in references]
    return blank, sorted(set(blank[0]).intersection(*blank[1:]))


def _usable(references: Sequence[Text]) -> list[list[str | None]]:
    """The lines of each reference, None where one is blank though another is not: to sacreBLEU, no reference of that line.

    To be as short as that one, or empty, would else be right. Where all are blank, nothing is the right translation.
    """
    blank, everywhere = _blank(references)
    usable: list[list[str | None]] = [list(lines) for _, lines in references]
    for lines, places in zip(usable, blank, strict=True):
        for place in {*places} - {*everywhere}:
            lines[place] = None
    return usable


def check_seed() -> None:
    """Raises UsageError for a seed in the environment that sacreBLEU would not resample with."""
    # sacreBLEU takes 0 for no seed, but not in its signature, and fails without a word of explanation for others.
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    if not (seed.isascii() and seed.isdigit() and seed.strip("0") and len(seed) < 20):
        raise UsageError(f"SACREBLEU_SEED={seed}: must be a whole number above 0; unset it for sacreBLEU's own, 12345")


def _resampled(evaluation: Evaluation, references: list[list[str | None]], metric: Any) -> list[Score]:
    from sacrebleu.significance import PairedTest

    signatures, results = PairedTest(evaluation.systems, {"": metric}, references, test_type="bs")()
    [(name, signature)] = signatures.items()
    baseline = results[name][0].score
    scores = []
    for result in results[name]:
        # sacreBLEU counts differences beyond the observed one, of which equal systems have none: it would give them 0.001.
        p_value = 1.0 if result.p_value is not None and result.score == baseline else result.p_value
        sure = Confidence(float(result.mean), float(result.ci), p_value)
        scores.append(Score(name, result.score, str(signature), evaluation.lines, sure))
    return scores


def sentence_scores(hypotheses: Sequence[str], references: Sequence[Text], metric: Any) -> list[Score]:
    """The score of each line by itself, of lines that line up; `metric` is one `of_sentences`."""
    scores = []
    for hypothesis, *expected in zip(hypotheses, *_usable(references), strict=True):
        result = metric.sentence_score(hypothesis, expected)
        scores.append(Score(result.name, result.score, str(metric.get_signature()), lines=1))
    return scores


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Corpus BLEU of detokenised lines against one or more reference sets, each with a line for every hypothesis."""
    named = [(f"reference {number}", lines) for number, lines in enumerate(references, 1)]
    [score] = corpus_scores(Evaluation([("the hypothesis", hypotheses)], named), create("bleu", named))
    return score
