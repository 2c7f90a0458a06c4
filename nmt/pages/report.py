"""report.html: how a run went, on one page that needs a browser and nothing else.

It is drawn from config.json, metrics.jsonl and heldout/, so a lost page can be drawn again. Curves, tables and samples are
thinned: the page of a long run is hardly larger than that of a short one.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html import escape
from operator import itemgetter
from typing import Any

import numpy as np

from nmt.event_log import Event, EventLog
from nmt.formatting import duration
from nmt.lines import clean
from nmt.pages.chart import Chart, Curve, Point, thin
from nmt.pages.page import fill, text, visible
from nmt.saved_model import SavedModel, Text
from nmt.storage import replace_text

MAX_STAGES = 8  # translations of each sample, besides the best
MAX_ROWS = 200  # of a table

# The numbers in events, as columns of the tables.
LOGGED = ["loss", "epoch", "lr", "tokens_per_second", "tokens_per_update", "padding"]
VALIDATED = ["bleu", "perplexity", "valid_loss", "before bleu", "before perplexity"]


def write(model: SavedModel) -> None:
    """Write report.html anew. Raises OSError, and UsageError if the held-out text is damaged."""
    html = page(model.config, EventLog(model.directory.metrics_path).read(), model.heldout("valid"))
    replace_text(model.directory.report_path, html)


def page(config: dict[str, Any], log: Iterable[Event], heldout: Text | None) -> str:
    """The whole page. `heldout` is the validation text, as raw source and reference lines."""
    events = [event | {f"before {key}": value for key, value in event.get("before", {}).items()} for event in log]
    title = text(f"{config['source']} → {config['target']}, {config['data']['name']}")
    return fill(
        "report.html",
        head=fill("page.html", title=title),
        title=title,
        command=text(config.get("command", "")),
        headline=headline(config, events),
        notes="".join(f'<p class="note">{note}</p>\n' for note in notes(config, events)),
        curves=curves(events) if events else "",
        samples=samples(config, events, heldout) if heldout else "",
        settings=settings(config),
    )


def of_kind(events: Iterable[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def series(events: Iterable[Event], key: str) -> list[Point]:
    """(update, number) for the events that have the number."""
    return [(event["step"], event[key]) for event in events if key in event]


def clock(events: Iterable[Event]) -> Callable[[int], str]:
    """A function that says when an update was done, interpolated between the events; "" after the last of them."""
    updates, minutes = np.array([(0, 0.0), *series(events, "minutes")]).T
    return lambda update: "" if update > updates[-1] else written("minutes", float(np.interp(update, updates, minutes)))


def written(key: str, value: float) -> str:
    """A number of an event for a reader: BLEU with two decimals, others as whole numbers or with four digits."""
    if key == "minutes":
        return duration(60 * value)
    if key.endswith("bleu"):
        return f"{value:.2f}"
    return f"{value:,.0f}" if 1000 <= value < 1e6 else f"{value:.4g}"


def headline(config: dict[str, Any], events: list[Event]) -> str:
    """How far the run has come and how good it is, in a few figures."""
    validations, averages = of_kind(events, "validation"), of_kind(events, "average")
    points = [
        ("training time", "minutes", series(events, "minutes")[-1:]),
        ("best validation BLEU", "bleu", sorted(series(validations, "bleu"), key=itemgetter(1))[-1:]),
        ("BLEU of the weights to use", "bleu", series(averages, "bleu")[-1:]),
        ("lowest perplexity", "perplexity", sorted(series(validations, "perplexity"), key=itemgetter(1))[:1]),
    ]
    figures = [("updates", f"{events[-1]['step'] if events else 0:,}", f"of {config['training']['steps']:,}")]
    for name, key, found in points:
        figures += [(name, written(key, value), f"at update {update:,}") for update, value in found]
    items = (f"<div><dt>{name}</dt><dd>{figure}<small>{note}</small></dd></div>" for name, figure, note in figures)
    return f'<dl class="headline">{"".join(items)}</dl>'


def notes(config: dict[str, Any], events: list[Event]) -> Iterator[str]:
    """What explains gaps in the curves."""
    if not config["data"]["lines"].get("valid"):
        yield "There is no validation text: no BLEU, no perplexity, no sample translations."
    validations = of_kind(events, "validation")
    if failed := [event for event in validations if "validation_error" in event]:
        last = f"update {failed[-1]['step']:,}: {text(failed[-1]['validation_error'])}"
        yield f"{len(failed):,} of {len(validations):,} validations failed, the last one after {last}"


def curves(events: list[Event]) -> str:
    """The charts, the signature of the BLEU, and the numbers as tables."""
    training, validations = of_kind(events, "training"), of_kind(events, "validation")
    time, end = clock(events), max(1, events[-1]["step"])
    before = text(next((event["before name"] for event in validations if "before name" in event), ""))
    charts: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [  # title, unit, axis, names of curves by key
        ("Validation BLEU", "", {"low": 0}, {"bleu": "BLEU", "before bleu": before}),
        ("Loss", "nats per token, smoothed labels", {}, {"loss": "training", "valid_loss": "validation"}),
        ("Perplexity", "", {"logarithmic": True}, {"perplexity": "validation", "before perplexity": before}),
        ("Learning rate", "", {"low": 0}, {"lr": "rate"}),
        ("Speed", "target tokens/s", {"low": 0}, {"tokens_per_second": "tokens/s"}),
        ("Padding", "share of cells", {"low": 0}, {"padding": "share"}),
    ]
    figures = ""
    for title, unit, axis, names in charts:
        drawn = []
        for key, name in names.items():
            style = "training" if key in LOGGED else "before" if key.startswith("before") else "validation"
            if points := series(training if key in LOGGED else validations, key):
                drawn.append(Curve(name, style, points, noisy=style == "training" and key != "lr"))
        if drawn:
            figures += Chart(title, unit, drawn, time, end, partial(written, next(iter(names))), **axis).html()
    signature = ""
    if signed := [event for event in validations if "signature" in event]:
        size = f"{signed[-1]['lines']:,} held-out lines, beam {signed[-1]['beam']}"
        signature = f'<p class="note">BLEU: sacreBLEU of {size}, <code>{text(signed[-1]["signature"])}</code></p>'
    tables = table("Validations", validations, time, VALIDATED) + table("Training log", training, time, LOGGED)
    return f'<h2>Curves</h2>\n<div class="charts">\n{figures}</div>\n{signature}\n{tables}'


def table(name: str, events: list[Event], time: Callable[[int], str], columns: list[str]) -> str:
    """A table that opens on demand, thinned so that the lowest and highest number of the first key stay."""
    keys = [key for key in columns if any(key in event for event in events)]
    if not keys:
        return ""
    shown = thin(events, MAX_ROWS, lambda event: event.get(keys[0], 0))
    titles = "".join(f'<th scope="col">{key.replace("_", " ")}</th>' for key in ["update", "time", *keys])
    rows = []
    for event in shown:
        cells = "".join(f"<td>{written(key, event[key]) if key in event else '–'}</td>" for key in keys)
        rows.append(f'<tr><th scope="row">{event["step"]:,}</th><td>{time(event["step"])}</td>{cells}</tr>\n')
    return (
        f"<details><summary>{name} in numbers ({len(shown):,} of {len(events):,} lines of metrics.jsonl)</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>\n<thead><tr>{titles}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>\n"
    )


def samples(config: dict[str, Any], events: list[Event], heldout: Text) -> str:
    """A few held-out sentences, and their translations in the course of the run."""
    sampled = [event for event in of_kind(events, "validation") if event.get("samples")]
    if not sampled:
        return ""
    best = max(sampled, key=itemgetter("bleu"))
    spread = [sampled[round(place) - 1] for place in np.geomspace(1, len(sampled), MAX_STAGES)]  # dense at the start
    shown = [event for event in sampled if event is best or event in spread]

    def row(name: str, html: str, side: str, style: str = "") -> str:
        language = text(config[side])
        return f'<dt class="{style}">{name}</dt><dd class="{style}" dir="auto" lang="{language}">{html}</dd>\n'

    articles = []
    for number, sample in enumerate(sampled[-1]["samples"]):
        source, reference = (side[sample["line"] - 1] for side in heldout)
        rows = [row("source", text(source), "source", "given"), row("reference", text(reference), "target", "given")]
        for event in shown:
            name = f"{event['step']:,} <small>BLEU {event['bleu']:.1f}</small>"
            rows.append(row(name, compare(event["samples"][number]["translation"], reference), "target"))
        articles.append(f"<article><h3>Line {sample['line']:,}</h3>\n<dl>{''.join(rows)}</dl></article>\n")
    note = "Held-out sentences, translated after more and more updates. Words that the reference lacks are grey."
    return f'<h2>Samples</h2>\n<p class="note">{note}</p>\n<div class="samples">{"".join(articles)}</div>'


def compare(translation: str, reference: str) -> str:
    """The translation as HTML, with the words that the reference lacks in <i>."""
    known = {"", *re.findall(r"\w+", reference)}
    html = ""
    for other, word in re.findall(r"(\W*)(\w*)", visible(clean(translation))):
        html += escape(other) + (escape(word) if word in known else f"<i>{escape(word)}</i>")
    return html or "<i>(nothing)</i>"


def settings(config: dict[str, Any]) -> str:
    """All of config.json, a section for each of its tables."""
    run = {key: value for key, value in config.items() if not isinstance(value, dict)}
    sections = {"run": run} | {key: value for key, value in config.items() if isinstance(value, dict)}
    parts = ((text(name), definitions(content)) for name, content in sections.items())
    return "".join(f"<section><h3>{name}</h3>\n<dl>{facts}</dl></section>\n" for name, facts in parts)


def definitions(content: dict[str, Any], prefix: str = "") -> str:
    """A table and the tables in it, as names and values; of a digest the first digits, as in nmt's messages."""
    html = ""
    for key, value in content.items():
        name = prefix + key
        if isinstance(value, dict):
            html += definitions(value, f"{name} ")
            continue
        shown = f"{value:,}" if type(value) is int else value if isinstance(value, str) else json.dumps(value)
        html += f"<dt>{text(name)}</dt><dd>{text(shown[:12] if name.startswith('sha256') else shown)}</dd>"
    return html
