"""Models side by side, and what distinguishes them: a page for someone who learns what the Transformer is.

It shows numbers of the models and draws the ideas behind them. It needs a browser and nothing else.
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.config import ModelConfig
from nmt.describe import Subject, compared
from nmt.destination import Destination
from nmt.event_log import Event, EventLog
from nmt.model.transformer import sinusoids
from nmt.pages import report
from nmt.pages.chart import Chart, Curve, Scale, Values
from nmt.pages.page import fill, text, visible
from nmt.pages.picture import picture
from nmt.pages.positions import frequencies, heat_map
from nmt.pages.steps import attention_in_one_step, chain_of_cells
from nmt.reporting import Reporter
from nmt.translation.attentions import AttentionMaps, attend

COLOURS = 6  # compare.css has as many; further models repeat them
WORDS = range(5, 10)  # in the sentence that all models translate
FALLBACK = ["▁The", "▁old", "▁man", "▁reads", "▁a", "▁long", "▁book", "."]  # where no model can cut a sentence
SHOWN_POSITIONS = 64
MEANING = {
    "architecture": "what it consists of",
    "parameters": "numbers that training sets",
    "FLOPs per target token": "multiplications and additions of one forward pass",
    "steps to encode": "that must wait for one another",
    "steps to train": "with the whole target known",
    "steps to translate": "writing one token after another",
    "training tokens/s": "target tokens, on the machine where it was trained",
    "minutes": "of training, validations included",
    "validation perplexity": "lower is better; 1 would be certainty",
    "validation BLEU": "higher is better, up to 100",
}
ARCHITECTURES = {
    "transformer": "<b>Transformer</b> (2017). An encoder reads the source, all its pieces at once. A decoder writes the "
    "target; in every layer each of its positions looks at the target so far, and at the source.",
    "decoder-only": "<b>Decoder-only</b>, as in GPT (2018). One stack reads source and target as a single row of pieces, and "
    "goes on writing it. One attention does the work of the Transformer’s three.",
    "rnn": "<b>RNN with attention</b> (2015), which the Transformer replaced. It reads one piece after another into a state of "
    "fixed size, and before each piece that it writes it looks back at the source.",
}


class Shown(NamedTuple):
    """A sentence as one model translates it."""

    place: int  # the number of the model
    maps: AttentionMaps


def write(subjects: Sequence[Subject], output: Path, reporter: Reporter) -> None:
    """Write the page. Raises UsageError."""
    destination = Destination(output, "--page")
    chosen = sentence(subjects)
    shown = []
    if chosen:
        languages = next(subject.saved for subject in subjects if subject.saved).description.languages
        for place, subject in enumerate(subjects):
            if subject.saved and subject.saved.description.languages == languages:
                shown.append(Shown(place, attend(Path(subject.name), chosen[0])))
    html = page(subjects, chosen[1] if chosen else "", shown)
    with destination.open() as file:
        file.write(html.encode())
    reporter.say(f"written to {output}")


def sentence(subjects: Sequence[Subject]) -> tuple[str, str] | None:
    """A held-out sentence of about seven words, of the first trained model, and its reference translation; None without any."""
    for saved in (subject.saved for subject in subjects if subject.saved):
        for split in ("test", "valid"):
            pairs = list(zip(*(saved.heldout(split) or ([], [])), strict=True))
            short = [pair for pair in pairs if len(pair[0].split()) in WORDS and any(map(str.isalpha, pair[0]))]
            if short:
                return min(short, key=lambda pair: abs(len(pair[0].split()) - WORDS[len(WORDS) // 2]))
    return None


def names(subjects: Sequence[Subject]) -> list[str]:
    """The name of each subject as HTML: the last part of its path, or all of it where the last parts are alike."""
    last = [Path(subject.name).name or Path(subject.name).resolve().name for subject in subjects]
    alike = len({*last}) < len(last)
    return [text(subject.name if alike else name) for subject, name in zip(subjects, last, strict=True)]


def page(subjects: Sequence[Subject], reference: str, shown: Sequence[Shown]) -> str:
    """The whole page. `shown` are the translations of one sentence by some of the models."""
    titles = names(subjects)
    pieces = [visible(piece) for piece in shown[0].maps.source] if shown else FALLBACK
    model = subjects[0].model
    omegas = frequencies(model.d_model)
    pairs = [round(place) for place in np.linspace(0, len(omegas) // 2, 4)]
    data = {
        "pieces": len(pieces),
        "pairs": [{"number": pair, "omega": omegas[pair]} for pair in pairs],
    }
    n, d = len(pieces), model.d_model
    return fill(
        "compare.html",
        head=fill("page.html", title=" · ".join(titles)),
        chart_style=fill("chart.css"),
        style=fill("compare.css"),
        models="one model" if len(subjects) == 1 else f"{len(subjects)} models",
        table=facts(subjects, titles),
        architectures="".join(
            f"<p>{words}</p>\n" for name, words in ARCHITECTURES.items() if name in {one.model.architecture for one in subjects}
        ),
        curves=curves(subjects, titles),
        sentence=translations(reference, titles, shown),
        n=n,
        d=f"{d:,}",
        attention_cost=f"{n * n * d:,}",
        recurrent_cost=f"{n * d * d:,}",
        chain=chain_of_cells(pieces),
        attention=attention_in_one_step(pieces),
        tables=position_tables(subjects, titles),
        norms=norms(subjects, titles),
        data=json.dumps(data),
        chart_script=fill("chart.js"),
        script=fill("compare.js"),
    )


def key(place: int) -> str:
    """The mark that a model's curves have, too."""
    return f'<i class="key m{place % COLOURS}"></i>'


def facts(subjects: Sequence[Subject], titles: Sequence[str]) -> str:
    """The table of facts: a column for each model."""
    head = "".join(f'<th scope="col">{key(place)}{title}</th>' for place, title in enumerate(titles))
    rows = ""
    for name, values in compared(subjects).items():
        meaning = next((words for start, words in MEANING.items() if name.startswith(start)), "")
        cells = "".join(
            f"<td>{text(value).replace(', ', '<br>') if name == 'architecture' else text(value)}</td>" for value in values
        )
        rows += f'<tr><th scope="row">{name}<small>{meaning}</small></th>{cells}</tr>\n'
    return f"<table>\n<thead><tr><td></td>{head}</tr></thead>\n<tbody>{rows}</tbody></table>"


def validations(subject: Subject) -> list[Event]:
    """The validations of a trained model's run, up to the checkpoint if it is one."""
    if not subject.saved:
        return []
    log = EventLog(subject.saved.directory.metrics_path).read()
    last = subject.saved.update
    return [
        event for event in log if event["event"] == "validation" and "bleu" in event and (last is None or event["step"] <= last)
    ]


def curves(subjects: Sequence[Subject], titles: Sequence[str]) -> str:
    """BLEU and perplexity over updates and over minutes, a curve for each trained model."""
    logs = [validations(subject) for subject in subjects]
    if not any(logs):
        return '<p class="note">None of these has been trained and validated, so there is no curve to draw.</p>'
    figures = ""
    charts: list[tuple[str, str, Scale]] = [("Validation BLEU", "bleu", "zero"), ("Validation perplexity", "perplexity", "log")]
    for title, number, scale in charts:
        for over, unit in (("step", "update"), ("minutes", "minute")):
            drawn = []
            for place, log in enumerate(logs):
                values: Values = {event[over]: event[number] for event in log if over in event and number in event}
                if values:
                    drawn.append(Curve(titles[place], f"m{place % COLOURS}", values))
            if drawn:
                end = max(x for curve in drawn for x in curve.values) or 1
                label = partial(report.written, number)
                chart = Chart(title, f"over {unit}s", scale, drawn, None, end, label, over=unit)  # type: ignore[arg-type]
                figures += chart.html()
    return f'<div class="charts">\n{figures}</div>'


def translations(reference: str, titles: Sequence[str], shown: Sequence[Shown]) -> str:
    """One sentence with its reference, and for each model its translation and its map."""
    if not shown:
        return '<p class="note">No trained model with held-out text is among these, so there is nothing to translate.</p>'
    source, target = map(text, shown[0].maps.languages)
    html = (
        f'<dl class="given"><dt>source</dt><dd dir="auto" lang="{source}">{text(shown[0].maps.text)}</dd>'
        f'<dt>reference</dt><dd dir="auto" lang="{target}">{text(reference)}</dd></dl>\n<div class="maps">'
    )
    for place, maps in shown:
        html += (
            f"<article><h3>{key(place)}{titles[place]}</h3>"
            f'<p class="translation" dir="auto" lang="{target}">{report.compare(maps.translation, reference)}</p>\n'
            f"{picture(maps, f'map-{place}')}<p>{map_note(maps)}</p></article>\n"
        )
    return html + "</div>"


def map_note(maps: AttentionMaps) -> str:
    """What is special about the map of this architecture."""
    if maps.architecture == "rnn":
        return "Its only attention. The state that looks is that of the step before, which has not read the last piece yet."
    if maps.architecture == "decoder-only":
        return (
            "The share of its one softmax that goes to the source; the rest goes to the target so far, so rows differ in sum."
        )
    return "Encoder-decoder attention, the mean of the heads in one layer. Each row sums to 1."


def position_tables(subjects: Sequence[Subject], titles: Sequence[str]) -> str:
    """The sinusoids, and beside them each learned table, as heat maps."""
    d_model = subjects[0].model.d_model
    html = position_table(
        sinusoids(SHOWN_POSITIONS, d_model).numpy(),
        "Sinusoids",
        "Computed, never learned: fast waves on the left, slow ones on the right. There is a row for any position.",
    )
    for title, subject in zip(titles, subjects, strict=True):
        if subject.saved and is_learned(subject.model):
            embedding = subject.saved.network().get_submodule("embedding")
            table = embedding.get_parameter("positions")[:SHOWN_POSITIONS].detach().numpy()
            html += position_table(
                table / (3 * table.std()),
                f"Learned by {title}",
                f"Drawn at random, then trained. Rows that no training sentence reached are still the noise they were drawn "
                f"as, and after position {subject.model.max_positions - 1:,} there are no more.",
            )
    return html


def is_learned(model: ModelConfig) -> bool:
    """Whether the network has a table of learned positions."""
    return model.positions == "learned" and model.architecture != "rnn"


def position_table(table: np.ndarray, title: str, note: str) -> str:
    """A table [positions, D] as a figure."""
    rows, columns = table.shape
    label = f"{title}: {rows} positions from top to bottom, {columns} dimensions from left to right"
    return (
        f'<figure><h3>{title}</h3><div class="heat"><span>position<br>0<b>{rows - 1}</b></span>'
        f'<img alt="{label}" src="{heat_map(table)}"></div>'
        f'<p class="axis">dimension 0 <span>to {columns - 1}</span></p><p>{note}</p></figure>\n'
    )


def norms(subjects: Sequence[Subject], titles: Sequence[str]) -> str:
    """Which of the models have which norm."""
    found: dict[str, list[str]] = {"post": [], "pre": [], "rnn": []}
    for title, subject in zip(titles, subjects, strict=True):
        found["rnn" if subject.model.architecture == "rnn" else subject.model.norm].append(title)
    words = {"post": "Post-LN here: {}.", "pre": "Pre-LN here: {}.", "rnn": "Neither, for it has no such layers: {}."}
    return " ".join(words[norm].format(", ".join(models)) for norm, models in found.items() if models)
