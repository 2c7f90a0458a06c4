"""The encoder-decoder attention of one sentence as an SVG that stands alone: for a README, and for browsers without scripts.

Its colours repeat those of page.html, because some programs that draw SVG do not know CSS variables.
"""

import unicodedata
from html import escape

import numpy as np

from nmt.pages.page import fill, visible
from nmt.translation.alignment import aligning_layer
from nmt.translation.attentions import AttentionMaps

# In pixels.
CELL = 26
MARGIN = 18
LABEL_GAP = 9
FONT_SIZE = 14  # as in picture.svg

SLANT = 0.71  # sine and cosine of the 45 degrees by which column labels are rotated
WORD_START = "\u2581"  # SentencePiece's mark
MIN_VISIBLE_OPACITY = 0.004


def picture(maps: AttentionMaps) -> str:
    """A map of the written pieces (rows) and source pieces (columns). Darkness is the mean weight of the heads that align."""
    layer = aligning_layer(len(maps.cross))
    weights: np.ndarray = maps.cross[layer].mean(0)  # [T, S]
    opacities = weights / weights.max()
    rows, columns = list(map(visible, maps.written)), list(map(visible, maps.source))
    map_width, map_height = CELL * len(columns), CELL * len(rows)
    left = MARGIN + LABEL_GAP + max(map(label_width, rows))
    top = MARGIN + FONT_SIZE + round(SLANT * max(map(label_width, columns)))
    # The last column labels may reach beyond the map's right edge.
    overhang = max(SLANT * label_width(name) - CELL * place for place, name in enumerate(reversed(columns)))
    cells = []
    for row, column in np.argwhere(opacities >= MIN_VISIBLE_OPACITY):
        place = f'x="{CELL * column}" y="{CELL * row}" width="{CELL}" height="{CELL}"'
        cells.append(f'<rect {place} fill-opacity="{opacities[row, column]:.3f}"/>')
    grid = [f"M0 {y}h{map_width}" for y in range(0, map_height + 1, CELL)]
    grid += [f"M{x} 0v{map_height}" for x in range(0, map_width + 1, CELL)]
    labels, strongest = [], []
    for row, name in enumerate(rows):
        y, most = CELL * (row + 0.5) + FONT_SIZE / 3, weights[row].argmax()
        labels.append(label(name, f'x="{-LABEL_GAP}" y="{y:.1f}" text-anchor="end"'))
        strongest.append(f"{plain(name)} at {plain(columns[most])}, {weights[row, most]:.2f}")
    for column, name in enumerate(columns):
        x = CELL * (column + 0.5) + FONT_SIZE / 4
        labels.append(label(name, f'transform="translate({x:.1f} {-LABEL_GAP}) rotate(-45)"'))
    return fill(
        "picture.svg",
        width=left + map_width + max(MARGIN, round(overhang)),
        height=top + map_height + MARGIN,
        text=escape(visible(maps.text)),
        translation=escape(visible(maps.translation)),
        layer=f"{layer + 1} of {len(maps.cross)}",
        heads=maps.cross.shape[1],
        strongest=escape("; ".join(strongest)),
        left=left,
        top=top,
        map_width=map_width,
        map_height=map_height,
        cells="\n".join(cells),
        grid="".join(grid),
        labels="\n".join(labels),
    )


def plain(piece: str) -> str:
    """A piece for reading: without the mark of a word's start."""
    return piece.replace(WORD_START, " ").strip() or WORD_START


def label(piece: str, place: str) -> str:
    style = ' class="mark"' if piece in ("<s>", "</s>") else ""
    start = f'<tspan class="start">{WORD_START}</tspan>'
    return f"<text{style} {place}>{escape(piece).replace(WORD_START, start)}</text>"


def label_width(piece: str) -> int:
    """About how wide the piece is drawn, in pixels: there is no font here to measure."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in piece)
    lower = sum(map(str.islower, piece))
    return round(FONT_SIZE * (wide + 0.58 * lower + 0.7 * (len(piece) - wide - lower)))
