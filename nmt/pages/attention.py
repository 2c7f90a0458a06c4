"""What the model looks at as it translates one sentence: a page that needs a browser and nothing else.

The page holds every weight, so that any attention, layer and head can be chosen, and draws the chosen one alone.
"""

import base64
import io
import json
import os
import sys
import zlib
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nmt import lines
from nmt.destination import Destination
from nmt.errors import UsageError
from nmt.pages.page import fill
from nmt.pages.picture import picture, visible
from nmt.reporting import Reporter
from nmt.translation.alignment import aligning_layer

if TYPE_CHECKING:
    from nmt.translation.attentions import AttentionMaps

STEPS = 65_535  # between a weight of 0 and of 1
SHORT = 26  # up to so many pieces a side, map and explanation stand side by side


def write(model: Path, text: str, output: Path | None, svg: bool, device: str, reporter: Reporter) -> None:
    """Write the page, or the picture, of a sentence; of `text` "-" the one on stdin. Raises UsageError."""
    if output is None and sys.stdout is not None and sys.stdout.isatty():
        kind, name = ("picture", "attention.svg") if svg else ("page", "attention.html")
        raise UsageError(f"a {kind} is nothing to read on a terminal; name a file, for example -o {name}")
    destination = None if output is None else Destination(output)
    if destination and not destination.is_file:
        raise UsageError(f"--output {output}: not a file; name one")
    if output is not None and output.suffix.lower() in ((".html", ".htm") if svg else (".svg",)):
        raise UsageError(
            f"--output {output}: " + ("--svg writes no page" if svg else "a page is no picture; add --svg")
        )
    sentence = read_sentence(text, reporter)
    from nmt.translation.attentions import attend
    from nmt.translation.splitting import sentences

    maps = attend(model, sentence, device)
    if len(sentences(maps.text, maps.languages[0])) > 1:
        reporter.warn("shown as one sentence, though it holds several: `nmt translate` takes them one by one")
    drawn = picture(maps) if svg else page(maps)
    if destination is None:
        lines.standard_output().write(drawn.encode())
        return
    with destination.open() as out:
        out.write(drawn.encode())
    reporter.say(f"written to {output}" if svg else f"written to {output}: open it in a browser")


def read_sentence(text: str, reporter: Reporter) -> str:
    """The one line that is not blank, of the argument or of stdin. Raises UsageError."""
    if text == "-":
        if sys.stdin is not None and sys.stdin.isatty():
            reporter.say("reading from the terminal: one sentence, then Ctrl-D")
        name, stream = "standard input", lines.standard_input()
    else:
        if os.path.isfile(text):  # and not Path, which fails for a long sentence
            raise UsageError(
                f"{text} is a file; give the sentence itself, or pipe it in: `head -1 {text} | nmt attention`"
            )
        name, stream = "the sentence", io.BytesIO(os.fsencode(text))  # the bytes as they were typed
    found = list(islice((line for line in lines.decode_lines(stream, name) if not lines.is_blank(line)), 2))
    if not found:
        raise UsageError(f'{name} is blank; give a sentence, for example `nmt attention "A man sleeps." -o page.html`')
    if len(found) > 1:
        raise UsageError(f"{name} holds more than one line; give one sentence at a time, for example by `head -1`")
    return found[0]


def page(maps: "AttentionMaps") -> str:
    """The whole page."""
    source, target = maps.languages
    layers, heads = maps.cross.shape[:2]
    data = {
        "source": list(map(visible, maps.source)),
        "read": list(map(visible, maps.read)),
        "written": list(map(visible, maps.written)),
        "layers": layers,
        "heads": heads,
        "d_model": maps.d_model,
        "layer": aligning_layer(layers),
        "weights": pack([maps.encoder, maps.decoder, maps.cross]),
    }
    return fill(
        "attention.html",
        title=f"{text(source)} → {text(target)}: {text(maps.text)}",
        from_language=text(source),
        to_language=text(target),
        text=text(maps.text),
        translation=text(maps.translation),
        sizes=f"{layers} layer{'s' * (layers > 1)}, {heads} head{'s' * (heads > 1)}, <i>d</i><sub>model</sub> = "
        f"{maps.d_model:,}; {len(maps.source):,} source pieces, {len(maps.written):,} target pieces",
        shape="short" if max(len(maps.source), len(maps.written)) <= SHORT else "long",
        # In a script element nothing but "</script" and "<!--" could end what JSON begins.
        data=json.dumps(data).replace("<", "\\u003c"),
        picture=picture(maps),
    )


def text(value: str) -> str:
    """Anything from outside as HTML."""
    return escape(visible(lines.clean(value)))


def pack(maps: list[np.ndarray]) -> str:
    """Weights, one map after the other, as base64 of deflated little-endian 16-bit integers: none is off by 1e-5."""
    numbers = b"".join((weights * STEPS).round().astype("<u2").tobytes() for weights in maps)
    return base64.b64encode(zlib.compress(numbers, 9)).decode()
