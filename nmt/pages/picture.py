"""The encoder-decoder attention of one sentence as an SVG that needs nothing else: for a README, and for a page without script.

Its colours are report.html's, told twice instead of by variables, which some programs that draw SVG do not know.
"""

import unicodedata
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from nmt.translation.alignment import aligning_layer

if TYPE_CHECKING:
    from nmt.translation.attentions import AttentionMaps

CELL = 26  # in the SVG's units, as the next three
MARGIN = 18  # around the picture
GAP = 9  # between labels and cells
SIZE = 14  # of the type
SLANT = 0.71  # of the columns' names: sine and cosine of 45 degrees
START = "\u2581"  # SentencePiece's mark of a word's start
FAINT_START = f'<tspan class="start">{START}</tspan>'
FAINTEST = 0.004  # of the darkest: what is lighter cannot be seen

STYLE = (
    ".nmt text{font:14px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','Noto Sans',Arial,sans-serif;fill:#1d1d1b}"
    ".nmt .paper{fill:#fdfdfb}.nmt .blank{fill:#f3f2ed}.nmt .weight{fill:#1b5fa8}.nmt .grid{stroke:#fdfdfb}"
    ".nmt .mark{fill:#65645e}.nmt .start{fill:#b9b7ae}"
    "@media (prefers-color-scheme:dark){.nmt text{fill:#e9e7e1}"
    ".nmt .paper{fill:#171715}.nmt .blank{fill:#211f1d}.nmt .weight{fill:#82b7f0}.nmt .grid{stroke:#171715}"
    ".nmt .mark{fill:#a19e95}.nmt .start{fill:#57554e}}"
)


def visible(text: str) -> str:
    """The text without what neither UTF-8 nor XML can hold."""
    return "".join(
        "\ufffd" if unicodedata.category(sign) in ("Cc", "Cs") or sign in "\ufffe\uffff" else sign for sign in text
    )


def picture(maps: "AttentionMaps") -> str:
    """Rows are the pieces written, columns the source's; darkness is the weight, the mean of all heads of `aligning_layer`."""
    layer = aligning_layer(len(maps.cross))
    weights: np.ndarray = maps.cross[layer].mean(0)  # [T, S]
    darkest = float(weights.max())
    rows, columns = list(map(visible, maps.written)), list(map(visible, maps.source))
    left = MARGIN + width(rows) + GAP
    top = MARGIN + round(SLANT * width(columns)) + SIZE
    right, bottom = left + CELL * len(columns), top + CELL * len(rows)
    # The names of the last columns lean out over the right edge.
    out = max(SLANT * width([name]) - CELL * place for place, name in enumerate(reversed(columns)))
    across, down = right + max(MARGIN, round(out)), bottom + MARGIN

    labels = [
        label(name, f'x="{left - GAP}" y="{top + CELL * (row + 0.5) + SIZE / 3:.1f}" text-anchor="end"')
        for row, name in enumerate(rows)
    ]
    for column, name in enumerate(columns):
        x, y = left + CELL * (column + 0.5) + SIZE / 4, top - GAP
        labels.append(label(name, f'transform="translate({x:.1f} {y}) rotate(-45)"'))
    cells = [
        f'<rect x="{left + CELL * column}" y="{top + CELL * row}" width="{CELL}" height="{CELL}" '
        f'fill-opacity="{weights[row, column] / darkest:.3f}"/>'
        for row, column in np.argwhere(weights >= FAINTEST * darkest)
    ]
    grid = "".join(f"M{left} {top + CELL * row}H{right}" for row in range(len(rows) + 1))
    grid += "".join(f"M{left + CELL * column} {top}V{bottom}" for column in range(len(columns) + 1))
    title = f"What the model looks at as it translates “{visible(maps.text)}” into “{visible(maps.translation)}”"
    strongest = "; ".join(
        f"{plain(name)} at {plain(columns[row.argmax()])}, {row.max():.2f}"
        for name, row in zip(rows, weights, strict=True)
    )
    description = (
        f"Encoder-decoder attention, layer {layer + 1} of {len(maps.cross)}, mean of {maps.cross.shape[1]} heads. "
        f"Each piece of the translation, and the piece of the source that it looks at most: {strongest}."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="nmt" viewBox="0 0 {across} {down}" width="{across}" '
            f'height="{down}" role="img" aria-labelledby="picture-title picture-description">',
            f'<title id="picture-title">{escape(title)}</title>',
            f'<desc id="picture-description">{escape(description)}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{across}" height="{down}" rx="8"/>',
            f'<rect class="blank" x="{left}" y="{top}" width="{right - left}" height="{bottom - top}"/>',
            '<g class="weight">',
            *cells,
            "</g>",
            f'<path class="grid" d="{grid}"/>',
            *labels,
            "</svg>\n",
        ]
    )


def plain(piece: str) -> str:
    """A piece for reading: U+2581, which begins a word, is a space."""
    return piece.replace(START, " ").strip() or START


def label(piece: str, place: str) -> str:
    """A piece as text whose marks of a word's start are faint."""
    kind = ' class="mark"' if piece in ("<s>", "</s>") else ""
    return f"<text{kind} {place}>{escape(piece).replace(START, FAINT_START)}</text>"


def width(pieces: Sequence[str]) -> int:
    """About how wide the widest of them is drawn: there is nothing here to measure type with."""

    def of(sign: str) -> float:
        return 1.0 if unicodedata.east_asian_width(sign) in "WF" else 0.58 if sign.islower() else 0.7

    return round(SIZE * max(sum(map(of, piece)) for piece in pieces))
