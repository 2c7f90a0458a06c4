"""report.html: how a run went, on one page that needs a browser and nothing else.

It is drawn from config.json, metrics.jsonl and heldout/, so a lost page can be drawn again. Curves, tables and samples are
thinned: the page of a long run is hardly larger than that of a short one.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html import escape
from operator import itemgetter
from typing import Any

import numpy as np

from nmt.describe import sections
from nmt.event_log import Event, EventLog
from nmt.formatting import duration
from nmt.lines import clean
from nmt.pages.chart import Chart, Curve, Scale, Values, thin
from nmt.pages.page import fill, text, visible
from nmt.saved_model import SavedModel, Text
from nmt.storage import replace_text

MAX_STAGES = 8  # translations of each sample, besides the best
MAX_ROWS = 200  # of a table
LOSS_UNIT = "nats per token, smoothed labels"

# The numbers in events, as columns of the tables.
LOGGED = ["loss", "epoch", "lr", "tokens_per_second", "tokens_per_update", "padding"]
VALIDATED = ["bleu", "perplexity", "valid_loss", "before bleu", "before perplexity"]


def write(model: SavedModel, heldout: Text | None) -> None:
    """Write report.html anew, with samples from the validation text. Raises OSError."""
    html = page(model.config, EventLog(model.directory.metrics_path).read(), heldout)
    replace_text(model.directory.report_path, html)


def page(config: dict[str, Any], log: Iterable[Event], heldout: Text | None) -> str:
    """The whole page. `heldout` is the validation text, as raw source and reference lines."""
    events = [event | {f"before {key}": value for key, value in event.get("before", {}).items()} for event in log]
    validations = of_kind(events, "validation")
    title = text(f"{config['source']} → {config['target']}, {config['data']['name']}")
    return fill(
        "report.html",
        head=fill("page.html", title=title),
        chart_style=fill("chart.css"),
        chart_script=fill("chart.js"),
        title=title,
        command=text(config.get("command", "")),
        headline=headline(config, events, validations),
        notes="".join(f'<p class="note">{note}</p>\n' for note in notes(config, validations)),
        curves=curves(events, validations) if events else "",
        samples=samples(config, validations, heldout) if heldout else "",
        settings=settings(config),
    )


def of_kind(events: Iterable[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def series(events: Iterable[Event], key: str) -> Values:
    """The number by update, of the events that have it."""
    return {event["step"]: event[key] for event in events if key in event}


def clock(events: Iterable[Event]) -> Callable[[float], str]:
    """A function that says when an update was done, interpolated between the events; "" after the last of them."""
    updates, minutes = zip((0, 0.0), *series(events, "minutes").items(), strict=True)
    return lambda update: "" if update > updates[-1] else written("minutes", float(np.interp(update, updates, minutes)))


def written(key: str, value: float) -> str:
    """A number of an event for a reader: BLEU with two decimals, others as whole numbers or with four digits."""
    if key == "minutes":
        return duration(60 * value)
    if key.endswith("bleu"):
        return f"{value:.2f}"
    return f"{value:,.0f}" if 1000 <= value < 1e6 else f"{value:.4g}"


def headline(config: dict[str, Any], events: list[Event], validations: list[Event]) -> str:
    """How far the run has come and how good it is, in a few figures."""
    figures = [("updates", f"{events[-1]['step'] if events else 0:,}", f"of {config['training']['steps']:,}")]
    for name, key, numbers, choose in (
        ("training time", "minutes", series(events, "minutes"), max),
        ("best validation BLEU", "bleu", series(validations, "bleu"), max),
        ("BLEU of the weights to use", "bleu", series(of_kind(events, "average")[-1:], "bleu"), max),
        ("lowest perplexity", "perplexity", series(validations, "perplexity"), min),
    ):
        if numbers:
            update = choose(numbers, key=numbers.__getitem__)
            figures.append((name, written(key, numbers[update]), f"at update {update:,}"))
    items = (f"<div><dt>{name}</dt><dd>{figure}<small>{note}</small></dd></div>" for name, figure, note in figures)
    return f'<dl class="headline">{"".join(items)}</dl>'


def notes(config: dict[str, Any], validations: list[Event]) -> Iterator[str]:
    """What explains gaps in the curves."""
    if not config["data"]["lines"].get("valid"):
        yield "There is no validation text: no BLEU, no perplexity, no sample translations."
    if failed := [event for event in validations if "validation_error" in event]:
        last = f"update {failed[-1]['step']:,}: {text(failed[-1]['validation_error'])}"
        yield f"{len(failed):,} of {len(validations):,} validations failed, the last one after {last}"


def curves(events: list[Event], validations: list[Event]) -> str:
    """The charts, the signature of the BLEU, and the numbers as tables."""
    training = of_kind(events, "training")
    time, end = clock(events), max(1, events[-1]["step"])
    before = text(next((event["before name"] for event in validations if "before name" in event), ""))
    charts: list[tuple[str, str, Scale, list[tuple[str, str, str]]]] = [  # title, unit; key, style and name of the curves
        ("Validation BLEU", "", "zero", [("bleu", "validation", "BLEU"), ("before bleu", "before", before)]),
        ("Loss", LOSS_UNIT, "fit", [("loss", "training", "training"), ("valid_loss", "validation", "validation")]),
        ("Perplexity", "", "log", [("perplexity", "validation", "validation"), ("before perplexity", "before", before)]),
        ("Learning rate", "", "zero", [("lr", "training", "rate")]),
        ("Speed", "target tokens/s", "zero", [("tokens_per_second", "training", "tokens/s")]),
        ("Padding", "share of cells", "zero", [("padding", "training", "share")]),
    ]
    figures = ""
    for title, unit, scale, names in charts:
        by_key = [(name, style, series(training + validations, key)) for key, style, name in names]
        if drawn := [Curve(*curve) for curve in by_key if curve[2]]:
            figures += Chart(title, unit, scale, drawn, time, end, partial(written, names[0][0])).html()
    signature = ""
    if signed := [event for event in validations if "signature" in event]:
        size = f"{signed[-1]['lines']:,} held-out lines, beam {signed[-1]['beam']}"
        signature = f'<p class="note">BLEU: sacreBLEU of {size}, <code>{text(signed[-1]["signature"])}</code></p>'
    tables = table("Validations", validations, time, VALIDATED) + table("Training log", training, time, LOGGED)
    return f'<h2>Curves</h2>\n<div class="charts">\n{figures}</div>\n{signature}\n{tables}'


def table(name: str, events: list[Event], time: Callable[[float], str], columns: list[str]) -> str:
    """A table that opens on demand, thinned so that the lowest and highest number of the first key stay."""
    keys = [key for key in columns if any(key in event for event in events)]
    if not keys:
        return ""
    titles = "".join(f'<th scope="col">{key.replace("_", " ")}</th>' for key in ["update", "time", *keys])
    shown = thin(series(events, keys[0]), MAX_ROWS)
    rows = ""
    for event in (event for event in events if event["step"] in shown):
        cells = "".join(f"<td>{written(key, event[key]) if key in event else '–'}</td>" for key in keys)
        rows += f'<tr><th scope="row">{event["step"]:,}</th><td>{time(event["step"])}</td>{cells}</tr>\n'
    return (
        f"<details><summary>{name} in numbers ({len(shown):,} of {len(events):,} lines of metrics.jsonl)</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>\n<thead><tr>{titles}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div></details>\n"
    )


def samples(config: dict[str, Any], validations: list[Event], heldout: Text) -> str:
    """A few held-out sentences, and their translations in the course of the run."""
    sampled = [event for event in validations if event.get("samples")]
    if not sampled:
        return ""
    best = max(sampled, key=itemgetter("bleu"))
    spread = [sampled[round(place) - 1] for place in np.geomspace(1, len(sampled), MAX_STAGES)]  # dense at the start
    shown = [event for event in sampled if event is best or event in spread]

    source_language, target_language = text(config["source"]), text(config["target"])
    articles = ""
    for number, sample in enumerate(sampled[-1]["samples"]):
        source, reference = (side[sample["line"] - 1] for side in heldout)
        rows = [("source", "given", source_language, text(source)), ("reference", "given", target_language, text(reference))]
        for event in shown:
            name = f"{event['step']:,} <small>BLEU {event['bleu']:.1f}</small>"
            rows.append((name, "", target_language, compare(event["samples"][number]["translation"], reference)))
        articles += f"<article><h3>Line {sample['line']:,}</h3>\n<dl>"
        for name, style, language, html in rows:
            articles += f'<dt class="{style}">{name}</dt><dd class="{style}" dir="auto" lang="{language}">{html}</dd>\n'
        articles += "</dl></article>\n"
    note = "Held-out sentences, translated after more and more updates. Words that the reference lacks are grey."
    return f'<h2>Samples</h2>\n<p class="note">{note}</p>\n<div class="samples">{articles}</div>'


def compare(translation: str, reference: str) -> str:
    """The translation as HTML, with the words that the reference lacks in <i>."""
    known = {"", *re.findall(r"\w+", reference)}
    html = ""
    for other, word in re.findall(r"(\W*)(\w*)", visible(clean(translation))):
        html += escape(other) + (escape(word) if word in known else f"<i>{escape(word)}</i>")
    return html or "<i>(nothing)</i>"


def settings(config: dict[str, Any]) -> str:
    """All of config.json, a section for each of its tables."""
    html = ""
    for name, rows in sections(config, "run").items():
        facts = "".join(f"<dt>{text(key)}</dt><dd>{text(value)}</dd>" for key, value in rows)
        html += f"<section><h3>{text(name)}</h3>\n<dl>{facts}</dl></section>\n"
    return html
