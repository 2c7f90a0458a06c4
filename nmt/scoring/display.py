"""Scores as text for people, as JSON for programs, and sentence by sentence."""

from collections.abc import Sequence
from typing import Any

from nmt.formatting import counted, table
from nmt.lines import clean, is_blank, json_line
from nmt.scoring.metrics import Evaluation, Score, Text

Column = Sequence[Score]  # one metric's scores, one per system


def as_text(evaluation: Evaluation, title: str, columns: Sequence[Column]) -> list[str]:
    """A single score as one line; several as a table with a row per system, and the signatures below it."""
    names = [clean(name) for name, _ in evaluation.systems]
    if len(columns) == len(names) == 1:
        return [f"{clean(title)}: {columns[0][0]}"]
    cells = [["", *names]]
    signatures, notes = [], []
    for scores in columns:
        direction = " (lower is better)" if scores[0].lower_is_better else ""
        signatures.append((scores[0].metric, scores[0].signature + direction))
        cells.append([scores[0].metric, *(f"{score.value:.2f}" for score in scores)])
        if scores[0].resampled:
            cells.append(["95% interval", *(score.resampled for score in scores)])
        if scores[-1].p_value is not None:
            cells.append(["p", *("" if score.p_value is None else f"{score.p_value:.4f}" for score in scores)])
            notes = ["", f"p: how likely chance alone makes so large a difference from {names[0]} (paired bootstrap)"]
    rows = table([*zip(*cells, strict=True)], "<" + ">" * (len(cells) - 1))
    return [f"{clean(title)} ({counted(evaluation.lines, 'line')})", "", rows, "", table(signatures), *notes]


def as_json(evaluation: Evaluation, columns: Sequence[Column], confidence: bool) -> str:
    """A list with an object per system and metric; numbers are not rounded.

    With `confidence`, a text too short to resample has null for interval and p-value.
    """
    objects = []
    for (name, lines), scores in zip(evaluation.systems, zip(*columns, strict=True), strict=True):
        for score in scores:
            entry = _as_object(name, score) | {
                "lines": score.lines,
                "references": len(evaluation.references),
                "blank_lines": sum(map(is_blank, lines)),
                "blank_references": sum(map(all, evaluation.blank)),
                "fewer_references": sum(any(blank) and not all(blank) for blank in evaluation.blank),
            }
            if confidence:
                entry["confidence"] = {"mean": score.mean, "interval": score.interval} if score.resampled else None
            if confidence and len(evaluation.systems) > 1:
                entry |= {"p_value": score.p_value, "baseline": evaluation.systems[0][0]}
            objects.append(entry)
    return json_line(objects)


def sentences(evaluation: Evaluation, scores: Sequence[Sequence[Column]]) -> list[str]:
    """A JSON object per system, line and metric, from `scores` by metric, system and line."""
    lines = []
    for system, (name, hypotheses) in enumerate(evaluation.systems):
        texts = zip(hypotheses, *(references for _, references in evaluation.references), strict=True)
        for index, (hypothesis, *references) in enumerate(texts):
            for by_system in scores:
                scored = {"line": index + 1} | _as_object(name, by_system[system][index])
                lines.append(json_line(scored | {"hypothesis": hypothesis, "references": references}))
    return lines


def _as_object(name: str, score: Score) -> dict[str, Any]:
    return {"system": name, "metric": score.metric, "score": score.value, "signature": score.signature}


def examples(evaluation: Evaluation, system: Text, scores: Sequence[Score], count: int) -> list[str]:
    """The `count` worst and the `count` best sentences of a system, each shown once; of equal ones the first.

    Leaves out lines whose hypothesis and references are all blank.
    """
    name, hypotheses = system
    texts = [("reference", lines) for _, lines in evaluation.references] + [("hypothesis", hypotheses)]
    scored = [index for index in range(len(scores)) if not all(is_blank(lines[index]) for _, lines in texts)]
    if evaluation.source:
        texts.insert(0, ("source", evaluation.source))
    goodness = {index: (-1 if scores[index].lower_is_better else 1) * scores[index].value for index in scored}
    worst = sorted(scored, key=goodness.__getitem__)[: min(count, (len(scored) + 1) // 2)]
    best = sorted({*scored} - {*worst}, key=lambda index: (-goodness[index], index))[:count]
    lines = []
    for kind, chosen in (("worst", worst), ("best", best)):
        if chosen:
            lines += ["", f"{clean(name)}: {kind} sentences by {scores[0].metric} {scores[0].signature}"]
        for index in chosen:
            lines += ["", f"line {index + 1}, {scores[index].metric} {scores[index].value:.2f}"]
            lines += [f"  {label:<10}  {clean(text[index])}" for label, text in texts]
    return lines
