"""sacreBLEU's metrics on detokenised text against raw references; every score carries its signature."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import is_blank
from nmt.writing import tokenizer_for

METRICS = ("bleu", "chrf", "ter")
# Resamples of few lines are too alike: with 10 lines, the 95% interval holds in fewer than 90 of 100 texts.
MIN_CONFIDENCE_LINES = 30

Text = tuple[str, Sequence[str]]  # a name and its lines


def check_aligned(text: Text, other: Text) -> None:
    """Raises UsageError unless both have the same number of lines, and at least one.

    sacreBLEU's Python interface scores the shorter part of unequal texts, even with 100.
    """
    (name, lines), (other_name, other_lines) = text, other
    if len(lines) != len(other_lines):
        found = counted(len(lines), "line")
        raise UsageError(f"{name} has {found} but {other_name} has {len(other_lines):,}: they must line up")
    if not lines:
        raise UsageError(f"{name}: holds no lines to score")


@dataclass(frozen=True)
class Evaluation:
    """Translations by one or more systems, and references for them, line by line. Raises UsageError unless all line up."""

    systems: Sequence[Text]  # the first is the baseline of the significance test
    references: Sequence[Text]
    source: Sequence[str] | None = None  # None if unknown

    def __post_init__(self) -> None:
        for system in self.systems:
            for reference in self.references:
                check_aligned(system, reference)

    @property
    def lines(self) -> int:
        return len(self.systems[0][1])

    @cached_property
    def blank(self) -> list[list[bool]]:
        """For each line, which of its references are blank."""
        return [list(map(is_blank, texts)) for texts in zip(*(lines for _, lines in self.references), strict=True)]

    @property
    def reference_streams(self) -> list[list[str | None]]:
        """The lines of each reference, with None, sacreBLEU's "no reference here", for a blank one beside others with text.

        Scored as an empty reference, such a line would reward short output. A line that is blank in every reference stays:
        its right translation is blank.
        """
        return [
            [None if blank[place] and not all(blank) else line for line, blank in zip(lines, self.blank, strict=True)]
            for place, (_, lines) in enumerate(self.references)
        ]


@dataclass(frozen=True)
class Score:
    """A score and everything needed to reproduce it."""

    metric: str
    value: float  # from 0 to 100; TER may exceed 100
    signature: str
    lines: int
    # Of 1,000 bootstrap resamples of the sentences (Koehn 2004), if they were asked for:
    mean: float | None = None
    interval: float | None = None  # half the width of the range that holds 95% of the resampled scores
    p_value: float | None = None  # two-sided, of the difference from the first system; None for that system

    @property
    def lower_is_better(self) -> bool:
        return self.metric == "TER"

    @property
    def resampled(self) -> str:
        """The 95% interval as people read it, if there is one."""
        return f"{self.mean:.2f} ± {self.interval:.2f}" if self.interval is not None else ""

    def __str__(self) -> str:
        interval = f"; 95% interval {self.resampled}" if self.resampled else ""
        return f"{self.metric} {self.value:.2f} ({counted(self.lines, 'line')}{interval}) {self.signature}"


def make_metric(metric: str, references: Sequence[Text], lowercase: bool = False, for_sentences: bool = False) -> Any:
    """sacreBLEU's metric of this name in METRICS, with default settings.

    References in a script without spaces get the tokeniser for that script, which the signature names. `for_sentences` gives
    BLEU effective order: it counts no longer n-grams than a sentence has, or short sentences would score near 0.
    """
    from sacrebleu.metrics import BLEU, CHRF, TER

    tokenizer = tokenizer_for(chain.from_iterable(lines for _, lines in references))
    if metric == "bleu":
        return BLEU(lowercase=lowercase, tokenize=tokenizer, effective_order=for_sentences)
    if metric == "chrf":
        return CHRF(lowercase=lowercase)
    unspaced = tokenizer != "13a"
    return TER(normalized=unspaced, asian_support=unspaced)  # ignores case by default


def corpus_scores(evaluation: Evaluation, metric: Any, confidence: bool = False) -> list[Score]:
    """The score of each system, in order; with `confidence`, resampled if there are at least MIN_CONFIDENCE_LINES."""
    if not confidence or evaluation.lines < MIN_CONFIDENCE_LINES:
        results = [metric.corpus_score(lines, evaluation.reference_streams) for _, lines in evaluation.systems]
        return [Score(result.name, result.score, str(metric.get_signature()), evaluation.lines) for result in results]
    from sacrebleu.significance import PairedTest

    signatures, results = PairedTest(evaluation.systems, {"": metric}, evaluation.reference_streams, test_type="bs")()
    [(name, signature)] = signatures.items()
    baseline = results[name][0].score
    scores = []
    for result in results[name]:
        # sacreBLEU counts resamples that differ by more than the observed difference, and so gives equal systems 0.001.
        p_value = 1.0 if result.p_value is not None and result.score == baseline else result.p_value
        of_resamples = float(result.mean), float(result.ci), p_value
        scores.append(Score(name, result.score, str(signature), evaluation.lines, *of_resamples))
    return scores


def sentence_scores(evaluation: Evaluation, metric: Any) -> list[list[Score]]:
    """For each system, the scores of its lines, one by one; `metric` is made `for_sentences`."""
    scores: list[list[Score]] = []
    for _, lines in evaluation.systems:
        scores.append([])
        for hypothesis, *references in zip(lines, *evaluation.reference_streams, strict=True):
            result = metric.sentence_score(hypothesis, references)
            # The signature belongs to this sentence: it counts the sentence's references.
            scores[-1].append(Score(result.name, result.score, str(metric.get_signature()), lines=1))
    return scores


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Corpus BLEU of detokenised lines against one or more references. Raises UsageError unless all line up."""
    named = [(f"reference {number}", lines) for number, lines in enumerate(references, 1)]
    [score] = corpus_scores(Evaluation([("the hypothesis", hypotheses)], named), make_metric("bleu", named))
    return score
