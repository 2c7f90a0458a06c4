"""report.html: how a run went, on one page that needs a browser and nothing else.

It is drawn from what the model directory holds (config.json, metrics.jsonl, heldout/), so that a lost page is one call away.
Curves, tables and samples are thinned: the page of a long run is hardly larger than that of a short one.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

import numpy as np

from nmt import lines
from nmt.errors import UsageError
from nmt.formatting import counted, duration, format_perplexity
from nmt.model_directory import ModelDirectory
from nmt.pages.chart import Curve, Point, draw, thin
from nmt.pages.page import fill

Event = dict[str, Any]
Heldout = tuple[list[str], list[str]]
Time = Callable[[int], str]
Column = tuple[str, Callable[[float], str], tuple[str, ...]]  # title, format of its numbers, their place in an event

SENTENCES = 5  # samples on the page
STAGES = 8  # translations of each
ROWS = 200  # of a table
LONGEST = 400  # characters of a text
FAILURES = 3  # that are told in full
HUGE = 1e305  # a value beyond it is as little drawn as NaN


def write(directory: ModelDirectory) -> None:
    """Write report.html anew from what the directory holds."""
    try:
        heldout = directory.read_heldout("valid")
    except UsageError:  # the curves do not need it
        heldout = None
    html = page(directory.read_config(), directory.events(), heldout)
    lines.replace_text(directory.report_path, html)


def page(config: dict[str, Any], events: Iterable[Event], heldout: Heldout | None) -> str:
    """The whole page. `heldout` is the validation text, raw source and reference lines."""
    kinds: dict[str, dict[int, Event]] = {"training": {}, "validation": {}, "average": {}}
    for event in events:
        if event["event"] in kinds:  # by update, so that what was written twice counts once
            kinds[event["event"]][event["step"]] = event
    training, validations, averages = ([found[update] for update in sorted(found)] for found in kinds.values())
    title = text(f"{config['source']} → {config['target']}, {config['data']['name']}")
    body = [
        f"<header>\n<h1>{title}</h1>\n<p><code>{text(config.get('command', ''))}</code></p>",
        headline(config, training, validations, averages),
        *notes(config, validations),
        "</header>\n<main>",
        curves(training, validations) if training or validations else '<p class="note">Nothing is logged yet.</p>',
        samples(config, validations, heldout) if heldout else "",
        settings(config),
        "</main>",
    ]
    return fill("report.html", title, body="\n".join(filter(None, body)))


def text(value: object) -> str:
    """Anything from outside as HTML."""
    return escape(shorten(str(value)))


def shorten(string: str) -> str:
    """Without control characters and what UTF-8 cannot hold, and no more of it than a page can bear."""
    string = lines.clean(string).encode("utf-8", "replace").decode()
    return string if len(string) <= LONGEST else string[:LONGEST] + "…"


def number(event: Event, *keys: str) -> float | None:
    """The number under this key, or key within key; None where there is none that can be drawn."""
    value: Any = event
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and abs(value) < HUGE else None


def series(events: list[Event], *keys: str) -> list[Point]:
    """(update, value) of the events that have such a number."""
    return [(event["step"], value) for event in events if (value := number(event, *keys)) is not None]


def clock(events: list[Event]) -> Time:
    """When an update was done, from the events that say so and evenly between them; "" after the last of them."""
    updates, minutes = np.array([(0, 0.0), *sorted(series(events, "minutes"))]).T

    def time(update: int) -> str:
        return "" if update > updates[-1] else duration(60 * float(np.interp(update, updates, minutes)))

    return time


def headline(config: dict[str, Any], training: list[Event], validations: list[Event], averages: list[Event]) -> str:
    """How far the run has come and how good it is, in a few figures."""
    done = max((events[-1]["step"] for events in (training, validations) if events), default=0)
    figures = [("updates", f"{done:,}", f"of {config['training']['steps']:,}")]

    def add(name: str, point: Point, form: Callable[[float], str]) -> None:
        figures.append((name, form(point[1]), f"at update {point[0]:,}"))

    if minutes := series([*training, *validations], "minutes"):
        add("training time", max(minutes), lambda value: duration(60 * value))
    if scores := series(validations, "bleu"):
        add("best validation BLEU", max(scores, key=lambda point: point[1]), "{:.2f}".format)
    if scores := series(averages, "bleu"):
        add("BLEU of the weights to use", scores[-1], "{:.2f}".format)
    if perplexities := series(validations, "perplexity"):
        add("lowest perplexity", min(perplexities, key=lambda point: point[1]), format_perplexity)
    elif losses := series(training, "loss"):
        add("training loss", losses[-1], "{:.3f}".format)
    items = (f"<div><dt>{name}</dt><dd>{value}<small>{place}</small></dd></div>" for name, value, place in figures)
    return f'<dl class="headline">{"".join(items)}</dl>'


def notes(config: dict[str, Any], validations: list[Event]) -> list[str]:
    """What a reader should know before wondering at the curves."""
    said = []
    if not config["data"].get("lines", {}).get("valid"):
        said.append("There is no validation text: no BLEU, no perplexity, no sample translations.")
    failed = [event for event in validations if "validation_error" in event]
    if len(failed) > FAILURES:
        said.append(f"{len(failed):,} of {counted(len(validations), 'validation')} failed; the last of them:")
    for event in failed[-FAILURES:]:
        said.append(f"The validation of update {event['step']:,} failed: {text(event['validation_error'])}")
    return [f'<p class="note">{sentence}</p>' for sentence in said]


def curves(training: list[Event], validations: list[Event]) -> str:
    """The curves, what the BLEU is a BLEU of, and the numbers as tables."""
    time = clock([*training, *validations])
    end = max(1, *(event["step"] for event in [*training, *validations]))
    before = next((event["before"]["name"] for event in reversed(validations) if event.get("before")), "")

    def trained(key: str, name: str, scale: float = 1, noisy: bool = True) -> Curve:
        return Curve(name, "training", [(update, scale * value) for update, value in series(training, key)], noisy)

    def validated(key: str, name: str) -> list[Curve]:
        """Of the run's own text, and of the one that the model was trained for before."""
        old = Curve(text(before), "before", series(validations, "before", key))
        return [Curve(name, "validation", series(validations, key)), old]

    loss = [trained("loss", "training"), Curve("validation", "validation", series(validations, "valid_loss"))]
    rate = [trained("lr", "rate", noisy=False)]
    speed, padding = [trained("tokens_per_second", "tokens/s")], [trained("padding", "share", 100)]
    perplexity = validated("perplexity", "validation")
    charts = [
        draw("Validation BLEU", "", validated("bleu", "BLEU"), time, end, "{:.2f}".format, low=0),
        draw("Loss", "nats a token, smoothed labels", loss, time, end, "{:.3f}".format),
        draw("Perplexity", "", perplexity, time, end, format_perplexity, logarithmic=True),
        draw("Learning rate", "", rate, time, end, "{:.2e}".format, low=0),
        draw("Speed", "target tokens/s", speed, time, end, "{:,.0f}".format, low=0),
        draw("Padding", "% of cells", padding, time, end, "{:.1f}%".format, low=0),
    ]
    columns: list[Column] = [
        ("BLEU", "{:.2f}".format, ("bleu",)),
        ("perplexity", format_perplexity, ("perplexity",)),
        ("loss", "{:.3f}".format, ("valid_loss",)),
        (f"BLEU, {text(before)}", "{:.2f}".format, ("before", "bleu")),
    ]
    parts = [
        f'<h2>Curves</h2>\n<div class="charts">\n{"".join(charts)}</div>',
        *(
            f'<p class="note">BLEU: sacreBLEU of {event["lines"]:,} held-out lines, beam {event["beam"]}, '
            f"<code>{text(event['signature'])}</code></p>"
            for event in [event for event in validations if "signature" in event][-1:]
        ),
        table("Validations", validations, time, "bleu", columns if before else columns[:-1]),
        table(
            "Training log",
            training,
            time,
            "loss",
            [
                ("epoch", "{:,.0f}".format, ("epoch",)),
                ("loss", "{:.3f}".format, ("loss",)),
                ("learning rate", "{:.2e}".format, ("lr",)),
                ("tokens/s", "{:,.0f}".format, ("tokens_per_second",)),
                ("tokens an update", "{:,.0f}".format, ("tokens_per_update",)),
                ("padding", "{:.2%}".format, ("padding",)),
            ],
        ),
    ]
    return "\n".join(filter(None, parts))


def table(name: str, events: list[Event], time: Time, key: str, columns: list[Column]) -> str:
    """The events as a table that opens on demand, thinned so that the lowest and highest of `key` are in it."""
    if not events:
        return ""
    shown = thin(events, ROWS, lambda event: number(event, key) or 0)
    count = f"{len(events):,}" if len(shown) == len(events) else f"{len(shown):,} of {len(events):,}"
    head = "".join(f'<th scope="col">{title}</th>' for title in ("update", "time", *(title for title, _, _ in columns)))
    rows = []
    for event in shown:
        values = ((form, number(event, *keys)) for _, form, keys in columns)
        cells = "".join(f"<td>{'–' if value is None else form(value)}</td>" for form, value in values)
        update = event["step"]
        rows.append(f'<tr><th scope="row">{update:,}</th><td>{time(update)}</td>{cells}</tr>\n')
    return (
        f"<details><summary>{name} in numbers ({count} line{'s' * (len(events) > 1)} of metrics.jsonl)</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def samples(config: dict[str, Any], validations: list[Event], heldout: Heldout) -> str:
    """How the translations of a few held-out sentences came to be what they are."""
    sampled = [event for event in validations if event.get("samples")]
    if not sampled:
        return ""
    shown = stages(sampled)

    def row(name: str, html: str, side: str, style: str = "") -> str:
        language = text(config[side])
        return f'<dt class="{style}">{name}</dt><dd class="{style}" dir="auto" lang="{language}">{html}</dd>\n'

    articles = []
    for line in [sample["line"] for sample in sampled[-1]["samples"]][:SENTENCES]:
        source, reference = (side[line - 1] for side in heldout)
        rows = [row("source", text(source), "source", "given"), row("reference", text(reference), "target", "given")]
        for event in shown:
            bleu = number(event, "bleu")
            name = f"{event['step']:,}" + ("" if bleu is None else f" <small>BLEU {bleu:.1f}</small>")
            rows += [
                row(name, compare(sample["translation"], reference), "target")
                for sample in event["samples"]
                if sample["line"] == line
            ]
        articles.append(f"<article><h3>Line {line:,}</h3>\n<dl>{''.join(rows)}</dl></article>\n")
    return (
        '<h2>Samples</h2>\n<p class="note">The same held-out sentences, translated after so many updates. Words that the '
        f'reference has too are in full ink, others in grey.</p>\n<div class="samples">{"".join(articles)}</div>'
    )


def stages(events: list[Event]) -> list[Event]:
    """The first, the last, the best, and some between, closer together at the beginning, where most happens."""
    last = len(events) - 1
    best = max(range(len(events)), key=lambda place: number(events[place], "bleu") or 0)
    spread = {round(last ** (step / (STAGES - 2))) for step in range(STAGES - 1)} if last >= STAGES else range(last)
    return [events[place] for place in sorted({0, best, last, *spread})]


def compare(translation: str, reference: str) -> str:
    """The translation as HTML, its words that the reference lacks in <i>; whole where words cannot be told apart."""

    def bare(word: str) -> str:
        return word.strip(".,;:!?\"'()[]«»„“”‚‘’–—…¡¿") or word

    left = Counter(map(bare, shorten(reference).split()))
    if len(left) < 2:  # one word, or a script without spaces
        return text(translation)
    words = []
    for word in shorten(translation).split():
        there = left[bare(word)] > 0
        left[bare(word)] -= 1
        words.append(escape(word) if there else f"<i>{escape(word)}</i>")
    return " ".join(words).replace("</i> <i>", " ") or "<i>(nothing)</i>"


def settings(config: dict[str, Any]) -> str:
    """All of config.json, a section for each of its tables."""
    sections = {"run": {key: value for key, value in config.items() if not isinstance(value, dict)}}
    sections |= {key: value for key, value in config.items() if isinstance(value, dict)}
    parts = []
    for name, content in sections.items():
        rows = (f"<dt>{text(key)}</dt><dd>{text(value)}</dd>" for key, value in flatten(content))
        parts.append(f"<section><h3>{text(name)}</h3>\n<dl>{''.join(rows)}</dl></section>\n")
    return f'<h2>Settings</h2>\n<div class="settings">\n{"".join(parts)}</div>'


def flatten(content: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """(name, value) of a table and of the tables in it; hashes by their first digits, as nmt's messages have them."""
    rows = []
    for key, value in content.items():
        name = f"{prefix} {key}".strip()
        if isinstance(value, dict):
            rows += flatten(value, name)
        elif isinstance(value, str | float):
            rows.append((name, str(value)[:12] if name.startswith("sha256") else str(value)))
        else:
            rows.append((name, f"{value:,}" if type(value) is int else json.dumps(value)))
    return rows
