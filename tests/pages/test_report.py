"""report.html: every number and sentence where a reader looks for it, whatever the run and whatever the text."""

import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from nmt.lines import clean, read_lines
from nmt.model_directory import ModelDirectory
from nmt.pages import report
from nmt.pages.chart import Curve, draw, linear_axis, logarithmic_axis, smooth, thin
from nmt.validation import sample

Event = dict[str, Any]
NAN = float("nan")
VOID = {"meta", "link", "br", "path"}  # path: closed in its own tag
HELDOUT = (["A man.", "Two dogs run."], ["Ein Mann.", "Zwei Hunde rennen."])


class Page(HTMLParser):
    """A parsed page. Fails where tags do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # (tag, text of it and of the tags in it), in order of their ends
        self._parts: list[str] = []
        self._begun: list[int] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self._begun.append(len(self._parts))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag
            self.texts.append((tag, "".join(self._parts[self._begun.pop() :])))

    def handle_data(self, data: str) -> None:
        self._parts.append(data)

    def all(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def config(**changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "command": "nmt train --data multi30k",
        "source": "en",
        "target": "de",
        "data": {"name": "multi30k", "lines": {"train": 29_000, "valid": 2}, "sha256": {"train": "0123456789abcdef"}},
        "model": {"layers": 3, "dropout": 0.1, "norm": "post"},
        "training": {"steps": 12_000, "adam_epsilon": 1e-9, "drop_duplicates": False},
        "versions": {"torch": "2.13.0"},
    } | changes


def training(step: int, **changes: Any) -> Event:
    numbers = {"loss": 8 - math.log(step), "lr": 1e-4, "tokens_per_second": 4321, "padding": 0.0312}
    return {"event": "training", "step": step, "epoch": 0} | numbers | changes


def validation(step: int, **changes: Any) -> Event:
    numbers = {"valid_loss": 4.125, "perplexity": 9.75, "bleu": 20.5, "signature": "nrefs:1", "lines": 2, "beam": 4}
    return {"event": "validation", "step": step, "minutes": step / 100} | numbers | changes


def sampled(step: int, *translations: str, **changes: Any) -> Event:
    lines = [{"line": line, "translation": text} for line, text in enumerate(translations, 1)]
    return validation(step, samples=lines, **changes)


def page(*events: Event, heldout: report.Heldout | None = HELDOUT, **changes: Any) -> Page:
    return Page(report.page(config(**changes), events, heldout))


def long_run(validations: int) -> list[Event]:
    """100,000 updates as the log has them: 5,000 lines and so many validations."""
    events = [training(step, loss=3 + 1e-4 * (step * 7919 % 100)) for step in range(20, 100_001, 20)]
    every = 100_000 // validations
    text = "Ein Satz von zwölf Wörtern steht hier als Übersetzung für alle da . " * 2
    return events + [sampled(every * k, text, text, bleu=(k * 7919) % 1000 / 40) for k in range(1, validations + 1)]


def test_the_weights_to_use_have_their_own_number() -> None:
    """Which is the average's, not that of a validation."""
    average = {"event": "average", "step": 40, "updates": [20, 40], "bleu": 13.57}
    shown = page(training(40), validation(40, bleu=12.34), average)
    figures = dict(zip(shown.all("dt"), shown.all("dd"), strict=True))
    assert figures["best validation BLEU"] == "12.34at update 40"
    assert figures["BLEU of the weights to use"] == "13.57at update 40"


def test_the_numbers_are_there() -> None:
    """What the log says of an update is read off the curves and stands in the tables; the rest is in the settings."""
    shown = page(training(20, loss=5.4321), training(40), validation(40, bleu=12.34), training(60))
    readings = shown.all("b")
    assert "update 20 · 12 straining 5.432" in readings
    assert "update 40 · 24 sBLEU 12.34" in readings
    assert "update 20 · 12 srate 1.00e-04" in readings
    assert "update 60tokens/s 4,321" in readings  # after the last event that tells the time
    assert "update 20 · 12 sshare 3.1%" in readings
    assert shown.all("tr")[1].startswith("40" + "24 s" + "12.34" + "9.75" + "4.125")
    assert shown.all("dd")[:4] == ["60of 12,000", "24 sat update 40", "12.34at update 40", "9.75at update 40"]
    settings = dict(zip(shown.all("dt")[4:], shown.all("dd")[4:], strict=True))
    assert (
        settings | {"lines train": "29,000", "sha256 train": "0123456789ab", "layers": "3", "norm": "post"} == settings
    )
    assert settings | {"adam_epsilon": "1e-09", "drop_duplicates": "false", "torch": "2.13.0"} == settings
    assert shown.all("h1") == ["en → de, multi30k"]
    assert "nmt train --data multi30k" in shown.all("code")


def test_samples_side_by_side() -> None:
    """Each sentence comes with its source, its reference, and its translations in order; words not in the reference in <i>."""
    shown = page(sampled(40, "Ein Ein Hund.", ""), sampled(80, "Ein Mann!", "Zwei Hunde rennen."))
    [first, second] = shown.all("article")
    assert first.split("\n") == [
        "Line 1", "sourceA man.", "referenceEin Mann.", "40 BLEU 20.5Ein Ein Hund.", "80 BLEU 20.5Ein Mann!", "",
    ]  # fmt: skip
    assert second.split("\n")[3:5] == ["40 BLEU 20.5(nothing)", "80 BLEU 20.5Zwei Hunde rennen."]
    assert shown.all("i").count("Ein Hund.") == 1


def test_of_many_validations_the_telling_ones_are_shown() -> None:
    """The first, the last and the best validation are among the samples, and no more than fit."""
    events = [sampled(step, f"nach {step}", bleu=float(step == 330)) for step in range(10, 1001, 10)]
    shown = [int(text.split()[1]) for text in page(*events).all("dd") if text.startswith("nach")]
    assert shown == sorted(shown)
    assert {10, 330, 1000} <= set(shown)
    assert len(shown) <= report.STAGES + 1


HOSTILE = [
    "<script>alert(1)</script> & \"quoted\" 'too' $title ${body} $$",
    "</dd></dl><h1>broken &lt;",
    "<!-- not a comment",
    "مرحبا بالعالم \u202e txet \u200f",
    "שלום עולם",
    "a\u2028b\u2029c\u0085d\x00e\x1bf",
    "很长的句子没有空格",
    "x" * 300,
    "\U0001f600 e\u0301",
]


def everywhere(text: str) -> Page:
    """A page that has this text wherever text comes from outside."""
    events = [
        training(20),
        sampled(40, text),
        validation(60, before={"name": text, "bleu": 1.0, "perplexity": 2.0}),
        {"event": "validation", "step": 80, "validation_error": text},
    ]
    return page(*events, heldout=([text], [text]), command=text, data={"name": text, "lines": {"valid": 1}})


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text(text: str) -> None:
    """Whatever a corpus, a model, a file name or an error says is read as it is written, and is never markup."""
    shown, harmless = everywhere(text), everywhere("x y")
    assert [tag for tag, _ in shown.tags if tag != "i"] == [tag for tag, _ in harmless.tags if tag != "i"]
    for tag in ("h1", "code", "dd"):
        assert [found for found in shown.all(tag) if clean(text) in found]
    assert [found for found in shown.all("p") if clean(text) in found]
    # Words are put apart by one space, as a browser shows them.
    assert shown.all("article")[0].split("\n")[3] == f"40 BLEU 20.5{' '.join(clean(text).split())}"
    assert {attributes.get("dir") for tag, attributes in shown.tags if tag == "dd" and "lang" in attributes} == {"auto"}
    assert not set("\u2028\u2029\u0085\x00\x1b") & set(shown.html)


def test_very_long_text_is_cut() -> None:
    """A line of a million characters does not make a page of them, and lone surrogates do not stop it."""
    long = "wort " * 200_000
    html = report.page(config(), [sampled(40, long), sampled(80, "\ud800 " + long)], ([long], [long]))
    assert len(html.encode()) < 50_000
    assert "…" in html


@pytest.mark.parametrize("validations", [67, 2_000])
def test_a_long_run_makes_a_small_page(validations: int) -> None:
    """A run of 100,000 updates stays under 500 kB, with its best and worst validations and its spike."""
    events = long_run(validations)
    events[2_500]["loss"], events[4_000]["loss"] = 7.777, 1.111
    events[5_000 + validations // 2]["bleu"] = 99.0
    html = report.page(config(), events, HELDOUT)
    assert len(html.encode()) < 500_000
    shown = Page(html)
    readings, rows = "\n".join(shown.all("b")), "\n".join(shown.all("tr"))
    for value in ("7.777", "1.111", "99.00"):
        assert value in readings
        assert value in rows


def test_nothing_is_fetched() -> None:
    """The page names no other place, and forbids itself to load from one."""
    shown = page(*long_run(10))
    assert not re.search(r"https?:|//\w|@import|url\(", shown.html)
    assert {tag for tag, _ in shown.tags} & {"img", "iframe", "object", "embed", "base"} == set()
    assert not [name for _, attributes in shown.tags for name in attributes if name in ("src", "srcset", "action")]
    assert [attributes["href"] for _, attributes in shown.tags if "href" in attributes] == ["data:,"]
    policies = [attributes["content"] for _, attributes in shown.tags if "http-equiv" in attributes]
    assert [policy for policy in policies if policy and policy.startswith("default-src 'none'")]


def test_numbers_that_are_none() -> None:
    """NaN, infinity, null and missing numbers are neither drawn nor named; the others are."""
    events = [training(20, loss=NAN, lr=None), training(40, loss=math.inf), training(60, loss=6.5)]
    del events[0]["padding"]
    shown = page(*events, validation(60, bleu=NAN, perplexity=1e304, valid_loss=-math.inf, minutes=None))
    assert not re.search(r"\b(nan|inf|None)\b", shown.html)
    assert "update 60training 6.500" in shown.all("b")
    assert shown.all("h3")[:2] == ["Loss nats a token, smoothed labels", "Perplexity "]
    assert shown.all("tr")[-3].startswith("20" + "0" + "–" + "–")


@pytest.mark.parametrize(
    ("events", "charts"),
    [
        ([], []),
        ([training(20)], ["Loss", "Learning rate", "Speed", "Padding"]),
        (
            [training(1, loss=0.0, lr=0.0, tokens_per_second=0, padding=0.0)],
            ["Loss", "Learning rate", "Speed", "Padding"],
        ),
        ([validation(0)], ["Validation BLEU", "Loss", "Perplexity"]),
        ([validation(5, bleu=0.0), validation(100)], ["Validation BLEU", "Loss", "Perplexity"]),
    ],
)
def test_the_shortest_runs(events: list[Event], charts: list[str]) -> None:
    """Nothing yet, one line, or nothing but zeros: a page of as many charts as there are numbers for."""
    shown = page(*events)
    assert len(shown.all("figure")) == len(charts)
    assert all(title.startswith(chart) for title, chart in zip(shown.all("h3"), charts, strict=False))


def test_without_validation_text() -> None:
    """The page says why there is no BLEU; the validations that only tell the time still do."""
    data = {"name": "mine", "lines": {"train": 3}}
    shown = page(training(20), {"event": "validation", "step": 20, "minutes": 3.0}, heldout=None, data=data)
    assert [text for text in shown.all("p") if "no validation text" in text]
    assert "3 minat update 20" in shown.all("dd")
    assert "BLEU" not in "".join(shown.all("figure"))


def test_failed_validations_are_told_of() -> None:
    """Each of a few failures is named with its update; of many the last, with their number."""
    failed = [{"event": "validation", "step": step, "validation_error": f"error {step}"} for step in range(10, 60, 10)]
    few = page(validation(5), *failed[:2]).all("p")
    assert [text for text in few if "failed" in text] == [
        f"The validation of update {step} failed: error {step}" for step in (10, 20)
    ]
    many = [text for text in page(validation(5), *failed).all("p") if "failed" in text]
    assert many[0].startswith("5 of 6 validations failed")
    assert [text.rpartition(" ")[2] for text in many[1:]] == ["30", "40", "50"]


def test_what_a_resumed_run_writes_again_counts_once() -> None:
    """Of two events of one update the later one is shown."""
    shown = page(training(20, loss=5.111), training(40, loss=4.111), training(40, loss=4.222), training(60, loss=4.0))
    assert "4.111" not in shown.html
    assert [text for text in shown.all("b") if "training" in text] == [
        "update 20training 5.111", "update 40training 4.222", "update 60training 4.000",
    ]  # fmt: skip


def test_a_finetuned_run_has_two_curves() -> None:
    """BLEU and perplexity on the text that the model was trained for before stand beside those on the new text."""
    before = {"name": "newstest2013", "bleu": 25.5, "perplexity": 5.25}
    shown = page(validation(0, before=before), validation(40, before=before | {"bleu": 24.25}))
    assert "update 40 · 24 sBLEU 20.50newstest2013 24.25" in shown.all("b")
    assert "update 40 · 24 svalidation 9.75newstest2013 5.25" in shown.all("b")
    assert "BLEU, newstest2013" in shown.all("th")
    assert "newstest2013" not in page(validation(40)).html


def test_charts_can_be_read_without_seeing_and_without_a_mouse() -> None:
    """Each chart has a name with its extremes, and one stop of the tab key, from which the arrows go on."""
    shown = page(*(training(step) for step in range(20, 201, 20)), validation(100, bleu=7.0), validation(200, bleu=3.0))
    names = [attributes["aria-label"] for tag, attributes in shown.tags if tag == "svg"]
    assert names[0] == "Validation BLEU: BLEU from 7.00 to 3.00, lowest 3.00, highest 7.00"
    stops = [attributes for _, attributes in shown.tags if attributes.get("role") == "option"]
    assert sum(attributes["tabindex"] == "0" for attributes in stops) == len(shown.all("figure")) == 6
    assert all(attributes["tabindex"] in ("0", "-1") for attributes in stops)


def test_a_real_run(overfitted: Path, tmp_path: Path) -> None:
    """From the directory alone: the held-out lines, their last translations and BLEU; also where the log is torn."""
    model = shutil.copytree(overfitted, tmp_path / "model", ignore=shutil.ignore_patterns("checkpoints"))
    report.write(ModelDirectory(model))
    html = (model / "report.html").read_text(encoding="utf-8")
    shown = Page(html)
    last = json.loads((model / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"{last['bleu']:.2f}" in "".join(shown.all("b"))
    assert len(shown.all("article")) == len(last["samples"]) == 4
    sources, references = (list(read_lines(model / "heldout" / f"valid.{side}.gz")) for side in ("en", "de"))
    for article, logged in zip(shown.all("article"), last["samples"], strict=True):
        assert f"source{sources[logged['line'] - 1]}\n" in article
        assert f"reference{references[logged['line'] - 1]}\n" in article
        assert article.endswith(f"{logged['translation']}\n")
    with (model / "metrics.jsonl").open("a") as log:
        log.write('{"event": "training", "step": 420, "lo')
    report.write(ModelDirectory(model))
    assert (model / "report.html").read_text(encoding="utf-8") == html
    (model / "heldout" / "valid.en.gz").write_bytes(b"damaged")
    report.write(ModelDirectory(model))
    rest = Page((model / "report.html").read_text(encoding="utf-8"))
    assert len(rest.all("figure")) == 6
    assert rest.all("article") == []


def test_thinning_keeps_what_stands_out() -> None:
    """First, last, lowest and highest stay, in order, within the limit; few rows stay as they are."""
    values = [(step, float(step * 7919 % 1000)) for step in range(5_000)]
    values[1_234] = (1_234, -1.0)
    values[4_321] = (4_321, 2_000.0)
    kept = thin(values, 100, lambda point: point[1])
    assert len(kept) <= 100
    assert kept == sorted(kept)
    assert {values[0], values[1_234], values[4_321], values[-1]} <= set(kept)
    assert thin(values[:100], 100, lambda point: point[1]) == values[:100]


def test_smoothing() -> None:
    """A constant stays what it is, a line too up to the last few, and a jump becomes a slope."""
    assert smooth([(step, 3.0) for step in range(9)], 2) == [(step, 3.0) for step in range(9)]
    assert smooth([(step, float(step)) for step in range(9)], 2)[:7] == [(step, float(step)) for step in range(7)]
    assert [value for _, value in smooth([(0, 0.0), (1, 0.0), (2, 0.0), (3, 3.0), (4, 3.0), (5, 3.0)], 1)] == [
        0, 0, 1, 2, 3, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 31.8), (2.7, 8.3), (0, 7e-4), (3.999, 4), (0, 1e300), (5, 5)])
def test_linear_axes(low: float, high: float) -> None:
    """An axis holds all values, with two to six round ticks on it."""
    bottom, top, ticks = linear_axis(low, high)
    assert bottom <= low <= high < top
    assert 2 <= len(ticks) <= 6
    assert all(bottom <= tick * (1 + 1e-9) and tick <= top for tick in ticks)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2.5, 318), (6.1, 6.9), (4.6, 35), (1, 1e304), (1.5, 40_000)])
def test_logarithmic_axes(low: float, high: float) -> None:
    """The same, for ratios."""
    bottom, top, ticks = logarithmic_axis(low, high)
    assert 0 < bottom < low <= high < top
    assert 2 <= len(ticks) <= 6
    assert all(bottom <= tick <= top for tick in ticks)


def test_the_first_updates_do_not_flatten_the_rest() -> None:
    """A loss that starts high comes in from above; a spike later on is within the plot."""
    points = [(step, 9.0 if step <= 10 else 7.0 if step == 700 else 3.0) for step in range(10, 1001, 10)]
    [line] = re.findall(
        r'<path class="training" d="M([^"]+)"',
        draw("Loss", "", [Curve("training", "training", points)], str, 1000, str),
    )
    heights = [float(place.split()[1]) for place in line.split("L")]
    assert heights[0] < 0
    assert min(heights[1:]) >= 0
    assert max(heights) == 400


@pytest.mark.parametrize(
    ("blank", "count", "chosen"),
    [([], 8, [1, 3, 5, 7]), ([1, 3], 8, [0, 4, 5, 7]), ([0], 3, [1, 2]), ([], 1, [0])],
)
def test_lines_to_sample(blank: list[int], count: int, chosen: list[int]) -> None:
    """Evenly spread over the lines with text on both sides, four at the most."""
    source = ["\u200b" if place in blank and place % 2 else "text" for place in range(count)]
    reference = [" " if place in blank and not place % 2 else "Text" for place in range(count)]
    assert sample(source, reference) == chosen
