"""report.html: every number and sentence is where a reader looks for it, whatever the run and the text."""

import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from nmt.event_log import Event
from nmt.lines import clean, read_lines
from nmt.pages import report
from nmt.saved_model import SavedModel, Text

HELDOUT = (["A man.", "Two dogs run."], ["Ein Mann.", "Zwei Hunde rennen."])


class Page(HTMLParser):
    """A parsed page. Fails if tags do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # (tag, all text inside), in order of the end tags
        self._open: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "br", "path"}:  # which have no end tag
            self._open.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            opened, text = self._open.pop()
            assert opened == tag
            self.texts.append((tag, text))
            self.handle_data(text)

    def handle_data(self, data: str) -> None:
        if self._open:
            tag, text = self._open[-1]
            self._open[-1] = (tag, text + data)

    def all(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def config(**changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "command": "nmt train --data multi30k",
        "source": "en",
        "target": "de",
        "data": {"name": "multi30k", "lines": {"train": 29_000, "valid": 2}, "sha256": {"train": 4 * "0123456789abcdef"}},
        "training": {"steps": 12_000, "adam_epsilon": 1e-9, "drop_duplicates": False},
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


def page(*events: Event, heldout: Text | None = HELDOUT, **changes: Any) -> Page:
    return Page(report.page(config(**changes), events, heldout))


def long_run(validations: int) -> list[Event]:
    """100,000 updates as the log has them: 5,000 lines and so many validations."""
    events = [training(step, loss=3 + 1e-4 * (step * 7919 % 100)) for step in range(20, 100_001, 20)]
    every = 100_000 // validations
    text = "Ein Satz von zwölf Wörtern steht hier als Übersetzung für alle da . " * 2
    return events + [sampled(every * k, text, text, bleu=(k * 7919) % 1000 / 40) for k in range(1, validations + 1)]


def test_the_numbers_are_there() -> None:
    """Every number of the log is in a curve and in a table, the main ones in the headline, and every setting in a list."""
    average = {"event": "average", "step": 60, "updates": [20, 40], "bleu": 13.57}
    first = training(20, loss=5.4321), validation(20, bleu=14.5, perplexity=3.5)
    shown = page(*first, training(40), validation(40, bleu=12.34), training(60), average)
    assert {
        "update 20 · 12 straining 5.432validation 4.125",
        "update 40 · 24 sBLEU 12.34",
        "update 20 · 12 srate 0.0001",
        "update 60tokens/s 4,321",  # after the last event with a time
        "update 20 · 12 sshare 0.0312",
    } <= set(shown.all("b"))
    assert "4024 s12.349.754.125\n" in shown.all("tbody")[0]
    assert "2012 s5.43200.00014,3210.0312\n" in shown.all("tbody")[1]
    assert shown.all("h1") == ["en → de, multi30k"]
    assert {"nmt train --data multi30k", "nrefs:1"} <= set(shown.all("code"))
    assert {
        ("updates", "60of 12,000"),
        ("training time", "24 sat update 40"),
        ("best validation BLEU", "14.50at update 20"),
        ("BLEU of the weights to use", "13.57at update 60"),
        ("lowest perplexity", "3.5at update 20"),
        ("lines train", "29,000"),
        ("sha256 train", "0123456789ab"),
        ("adam_epsilon", "1e-09"),
        ("drop_duplicates", "False"),
    } <= set(zip(shown.all("dt"), shown.all("dd"), strict=True))


def test_samples_side_by_side() -> None:
    """Each sentence has its source, its reference and its translations in order; words that the reference lacks are in <i>."""
    shown = page(sampled(40, "Ein Hund.", ""), sampled(80, "Ein Mann!", "Zwei Hunde rennen."))
    [first, second] = shown.all("article")
    assert first == "Line 1\nsourceA man.\nreferenceEin Mann.\n40 BLEU 20.5Ein Hund.\n80 BLEU 20.5Ein Mann!\n"
    assert second.split("\n")[3:5] == ["40 BLEU 20.5(nothing)", "80 BLEU 20.5Zwei Hunde rennen."]
    assert "Ein <i>Hund</i>." in shown.html


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
    before = {"name": text, "bleu": 1.0, "perplexity": 2.0}
    failed = {"event": "validation", "step": 80, "validation_error": text}
    events = training(20), sampled(40, text), validation(60, before=before), failed
    return page(*events, heldout=([text], [text]), command=text, data={"name": text, "lines": {"valid": 1}})


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text(text: str) -> None:
    """Whatever a corpus, a model, a file name or an error says is shown as it is, and is never markup."""
    shown = everywhere(text)
    assert [tag for tag, _ in shown.tags if tag != "i"] == [tag for tag, _ in everywhere("x y").tags if tag != "i"]
    for tag in ("h1", "code", "dd", "p", "article"):
        assert [found for found in shown.all(tag) if clean(text) in found]
    assert {attributes.get("dir") for tag, attributes in shown.tags if tag == "dd" and "lang" in attributes} == {"auto"}
    assert not set("\u2028\u2029\u0085\x00\x1b") & set(shown.html)


@pytest.mark.parametrize("validations", [67, 2_000])
def test_a_long_run_makes_a_small_page(validations: int) -> None:
    """A run of 100,000 updates stays under 500 kB, with its best and worst validations and its spike. Nothing is fetched."""
    events = long_run(validations)
    events[2_500]["loss"], events[4_000]["loss"] = 7.777, 1.111
    events[5_000 + validations // 2]["bleu"] = 99.0
    shown = page(*events)
    assert len(shown.html.encode()) < 500_000
    for tag in ("b", "tr"):
        assert all(value in "\n".join(shown.all(tag)) for value in ("7.777", "1.111", "99.00"))
    assert not re.search(r"https?:|//\w|@import|url\(|src=", shown.html)
    assert "default-src 'none'" in shown.html


def test_a_real_run(overfitted: Path, tmp_path: Path) -> None:
    """The page of a model directory has the held-out lines, their last translations and BLEU, even if the log is torn."""
    model = shutil.copytree(overfitted, tmp_path / "model", ignore=shutil.ignore_patterns("checkpoints"))
    with (model / "metrics.jsonl").open("a") as log:
        log.write('{"event": "training", "step": 420, "lo')
    saved = SavedModel.open(model)
    report.write(saved, saved.heldout("valid"))
    shown = Page((model / "report.html").read_text(encoding="utf-8"))
    last = json.loads((model / "metrics.jsonl").read_text().splitlines()[-2])
    assert f"{last['bleu']:.2f}" in "".join(shown.all("b"))
    source, reference = (list(read_lines(model / "heldout" / f"valid.{language}.gz")) for language in ("en", "de"))
    for article, logged in zip(shown.all("article"), last["samples"], strict=True):
        place = logged["line"] - 1
        assert f"source{source[place]}\nreference{reference[place]}\n" in article
        assert article.endswith(f"{logged['translation']}\n")
