"""What the model looks at as it translates one sentence: a page that needs a browser and nothing else.

The page holds every weight, so that the reader can choose any attention, layer and head.
"""

import base64
import io
import json
import os
import sys
import zlib
from contextlib import nullcontext
from pathlib import Path

from nmt.destination import Destination
from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import decode_lines, is_blank, standard_input, standard_output
from nmt.pages.page import fill, text, visible
from nmt.pages.picture import picture
from nmt.reporting import Reporter
from nmt.translation import attentions
from nmt.translation.alignment import aligning_layer
from nmt.translation.attentions import AttentionMaps
from nmt.translation.splitting import sentences

FORMULA = (
    "<h2>How a head decides where to look</h2>\n"
    '<p class="formula">Attention(<i>Q</i>, <i>K</i>, <i>V</i>) = softmax(<i>QK</i><sup>⊤</sup> / '
    '√<span class="root"><i>d<sub>k</sub></i></span>) <i>V</i></p>'
)
ADDITIVE_FORMULA = (
    "<h2>How it decides where to look</h2>\n"
    '<p class="formula"><i>c<sub>t</sub></i> = softmax<sub><i>j</i></sub>(<i>v</i><sup>⊤</sup> tanh('
    "<i>W s</i><sub><i>t</i>−1</sub> + <i>U h<sub>j</sub></i>)) · <i>h</i></p>"
)
QUANTA = 65_535  # a weight is stored as so many 65,535ths


def write(model: Path, sentence: str, output: Path | None, svg: bool, device: str, reporter: Reporter) -> None:
    """Write the page of one sentence, or with `svg`, or to a .svg, the picture. "-" stands for stdin. Raises UsageError."""
    if output is None and sys.stdout and sys.stdout.isatty():
        raise UsageError("the output is not for a terminal; name a file, for example -o attention.html")
    destination = Destination(output) if output else None
    maps = attentions.attend(model, read_sentence(sentence, reporter), device)
    if len(sentences(maps.text, maps.languages[0])) > 1:
        reporter.warn("several sentences are shown as one here, but `nmt translate` translates them one by one")
    svg = svg or (output is not None and output.suffix.lower() == ".svg")
    with destination.open() if destination else nullcontext(standard_output()) as file:
        file.write((picture(maps) if svg else page(maps)).encode())
    if output:
        reporter.say(f"written to {output}")


def read_sentence(argument: str, reporter: Reporter) -> str:
    """The only line of the argument, or of stdin, that is not blank. Raises UsageError."""
    if argument == "-":
        name, stream = "standard input", standard_input()
        if stream.isatty():
            reporter.say("reading from the terminal: one sentence, then Ctrl-D")
    elif os.path.isfile(argument):  # Path.is_file() fails for long sentences
        raise UsageError(f"{argument} is a file; pipe a sentence of it in: `head -1 {argument} | nmt attention`")
    else:
        name, stream = "the sentence", io.BytesIO(os.fsencode(argument))
    found = [line for line in decode_lines(stream, name) if not is_blank(line)]
    if len(found) != 1:
        raise UsageError(f"{name} has {counted(len(found), 'line')} of text; give one sentence")
    return found[0]


def page(maps: AttentionMaps) -> str:
    """The whole page."""
    source, target = map(text, maps.languages)
    layers, heads = maps.cross.shape[:2]
    data: dict[str, object] = {name: list(map(visible, getattr(maps, name))) for name in ("source", "read", "written")}
    data |= {"mask": maps.mask} if maps.architecture == "decoder-only" else {}
    data |= {"layers": layers, "heads": heads, "d_model": maps.d_model, "layer": aligning_layer(layers), "weights": pack(maps)}
    recurrent = maps.architecture == "rnn"
    return fill(
        "attention.html",
        head=fill("page.html", title=f"{source} → {target}: {text(maps.text)}"),
        from_language=source,
        to_language=target,
        text=text(maps.text),
        translation=text(maps.translation),
        sizes=f"{counted(layers, 'layer')}, {counted(heads, 'head')}, <i>d</i><sub>model</sub> = {maps.d_model:,}; "
        f"{len(maps.source):,} source pieces, {len(maps.written):,} target pieces",
        formula=ADDITIVE_FORMULA if recurrent else FORMULA,
        attentions=fill(f"attention-{maps.architecture}.js"),
        explanation="" if recurrent else fill("attention-heads.js"),
        # Only "</script" and "<!--" could end the JSON early.
        data=json.dumps(data).replace("<", "\\u003c"),
        picture=picture(maps),
    )


def pack(maps: AttentionMaps) -> str:
    """All weights as base64 of deflated little-endian 16-bit integers, exact to 1e-5."""
    arrays = (maps.encoder, maps.decoder, maps.cross)
    quantized = b"".join((weights * QUANTA).round().astype("<u2").tobytes() for weights in arrays)
    return base64.b64encode(zlib.compress(quantized, 9)).decode()
