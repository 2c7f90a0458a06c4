"""How scores are written: a line or a table for people, JSON for programs, and sentences to look at."""

from collections.abc import Sequence

from nmt.formatting import counted
from nmt.lines import clean, is_blank, json_line
from nmt.scoring.metrics import LOWER_IS_BETTER, Evaluation, Score

Column = Sequence[Score]  # one metric's scores of all systems


def as_text(evaluation: Evaluation, title: str, columns: Sequence[Column]) -> list[str]:
    """One score as a line, several as a table with a row for each system, and the signatures below it."""
    if len(columns) == len(evaluation.systems) == 1:
        return [f"{clean(title)}: {columns[0][0]}"]
    names = [clean(name) for name, _ in evaluation.systems]
    cells = [["", *names], *(cell for column in columns for cell in _cells(column))]
    width = max(len(column[0].metric) for column in columns)
    signatures = [f"{column[0].metric:<{width}}  {_signature(column[0])}" for column in columns]
    notes = []
    if columns[0][-1].confidence and len(names) > 1:
        notes = [
            "",
            f"p: how likely so large a difference from {names[0]} is by chance (paired bootstrap, 1,000 resamples)",
        ]
    return [f"{clean(title)} ({counted(evaluation.lines, 'line')})", "", *_aligned(cells), "", *signatures, *notes]


def _cells(column: Column) -> list[list[str]]:
    """One metric's columns of the table, each with its title first."""
    cells = [[column[0].metric, *(f"{score.value:.2f}" for score in column)]]
    sure = [score.confidence for score in column if score.confidence]
    if sure:
        cells.append(["95% interval", *(f"{one.mean:.2f} ± {one.interval:.2f}" for one in sure)])
    if len(sure) > 1:
        cells.append(["p", *("" if one.p_value is None else f"{one.p_value:.4f}" for one in sure)])
    return cells


def _signature(score: Score) -> str:
    return score.signature + " (lower is better)" * (score.metric == LOWER_IS_BETTER)


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Lines of these columns, side by side: names to the left, numbers to the right."""
    from rich.cells import cell_len  # a Chinese character takes two columns

    widths = [max(map(cell_len, column)) for column in columns]
    lines = []
    for first, *others in zip(*columns, strict=True):
        name = first + " " * (widths[0] - cell_len(first))
        cells = [name, *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def as_json(evaluation: Evaluation, columns: Sequence[Column], confidence: bool) -> str:
    """A list with an object for each system and metric; the numbers are not rounded.

    With `confidence`, null stands for the interval and the p-value of a text that is too short for them.
    """
    names = [name for name, _ in evaluation.systems]
    fewer = {place for places in evaluation.with_fewer_references.values() for place in places}
    blank = {"blank_references": len(evaluation.without_reference), "fewer_references": len(fewer)}
    found = []
    for place, (name, lines) in enumerate(evaluation.systems):
        for score in (column[place] for column in columns):
            one = {
                "system": name,
                "metric": score.metric,
                "score": score.value,
                "signature": score.signature,
                "lines": score.lines,
                "references": len(evaluation.references),
                "blank_lines": sum(map(is_blank, lines)),
                **blank,
            }
            if confidence:
                sure = score.confidence
                one["confidence"] = {"mean": sure.mean, "interval": sure.interval} if sure else None
                if len(names) > 1:
                    one |= {"p_value": sure.p_value if sure else None, "baseline": names[0]}
            found.append(one)
    return json_line(found)


def sentences(evaluation: Evaluation, scores: Sequence[Sequence[Column]]) -> list[str]:
    """A JSON object for each system, line and metric: `scores` of each system, metric and line."""
    found = []
    for (name, hypotheses), metrics in zip(evaluation.systems, scores, strict=True):
        references = zip(*(lines for _, lines in evaluation.references), strict=True)
        for number, (hypothesis, expected, *each) in enumerate(zip(hypotheses, references, *metrics, strict=True), 1):
            found += [
                json_line(
                    {
                        "line": number,
                        "system": name,
                        "metric": score.metric,
                        "score": score.value,
                        "signature": score.signature,
                        "hypothesis": hypothesis,
                        "references": expected,
                    }
                )
                for score in each
            ]
    return found


def examples(
    evaluation: Evaluation, name: str, hypotheses: Sequence[str], scores: Sequence[Score], count: int
) -> list[str]:
    """The `count` worst and best sentences of a system, none of them twice; of equal ones the first.

    A line that should be blank and is has nothing to show, and is left out.
    """
    sign = -1 if scores[0].metric == LOWER_IS_BETTER else 1
    everything = [hypotheses, *(lines for _, lines in evaluation.references)]
    told = [place for place in range(len(scores)) if not all(is_blank(lines[place]) for lines in everything)]
    worst_first = sorted(told, key=lambda place: (sign * scores[place].value, place))
    worst = worst_first[: min(count, (len(told) + 1) // 2)]
    best = sorted({*worst_first} - {*worst}, key=lambda place: (-sign * scores[place].value, place))[:count]
    texts = [("source", evaluation.source)] if evaluation.source else []
    texts += [*(("reference", lines) for _, lines in evaluation.references), ("hypothesis", hypotheses)]
    shown = []
    for kind, places in (("worst", worst), ("best", best)):
        shown += ["", f"{clean(name)}: {kind} sentences by {scores[0].metric} {scores[0].signature}"] if places else []
        for place in places:
            shown += ["", f"line {place + 1}, {scores[place].metric} {scores[place].value:.2f}"]
            shown += [f"  {label:<10}  {clean(lines[place])}" for label, lines in texts]
    return shown
