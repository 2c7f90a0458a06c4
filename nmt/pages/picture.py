"""The encoder-decoder attention of one sentence as an SVG that stands alone: for a README, and for browsers without scripts.

Its colours repeat those of page.html, because some programs that draw SVG do not know CSS variables.
"""

from html import escape

import numpy as np
from rich.cells import cell_len

from nmt.pages.page import fill, visible
from nmt.translation.alignment import aligning_layer
from nmt.translation.attentions import AttentionMaps

# In pixels.
CELL = 26
MARGIN = 18
LABEL_GAP = 9
FONT_SIZE = 14  # as in picture.svg

SLANT = 0.71  # sine and cosine of the 45 degrees by which column labels are rotated


WHAT = {"transformer": "Encoder-decoder attention", "decoder-only": "Attention of the target to the source"}


def picture(maps: AttentionMaps, prefix: str = "picture") -> str:
    """A map of the written pieces (rows) and source pieces (columns). Darkness is the mean weight of the heads that align.

    `prefix` begins its ids, which must differ from those of other pictures on the same page.
    """
    layer, heads = aligning_layer(len(maps.cross)), maps.cross.shape[1]
    of_layer = f", layer {layer + 1} of {len(maps.cross)}, mean of {heads} heads"
    weights: np.ndarray = maps.cross[layer].mean(0)  # [T, S]
    rows, columns = list(map(visible, maps.written)), list(map(visible, maps.source))
    map_width, map_height = CELL * len(columns), CELL * len(rows)
    left = MARGIN + LABEL_GAP + max(map(label_width, rows))
    top = MARGIN + FONT_SIZE + round(SLANT * max(map(label_width, columns)))
    # The last column labels may reach beyond the map's right edge.
    overhang = max(SLANT * label_width(name) - CELL * place for place, name in enumerate(reversed(columns)))
    cells = []
    for (row, column), opacity in np.ndenumerate(weights / weights.max()):
        place = f'x="{CELL * column}" y="{CELL * row}" width="{CELL}" height="{CELL}"'
        cells.append(f'<rect {place} fill-opacity="{opacity:.3f}"/>')
    labels = []
    for row, name in enumerate(rows):
        labels.append(label(name, f'x="{-LABEL_GAP}" y="{CELL * (row + 0.5) + FONT_SIZE / 3:.1f}" text-anchor="end"'))
    for column, name in enumerate(columns):
        x = CELL * (column + 0.5) + FONT_SIZE / 4
        labels.append(label(name, f'transform="translate({x:.1f} {-LABEL_GAP}) rotate(-45)"'))
    return fill(
        "picture.svg",
        width=left + map_width + max(MARGIN, round(overhang)),
        height=top + map_height + MARGIN,
        text=escape(visible(maps.text)),
        translation=escape(visible(maps.translation)),
        prefix=prefix,
        what=WHAT[maps.architecture] + of_layer if maps.architecture in WHAT else "Additive attention",
        left=left,
        top=top,
        map_width=map_width,
        map_height=map_height,
        cells="\n".join(cells),
        labels="\n".join(labels),
    )


def label(piece: str, place: str) -> str:
    style = ' class="mark"' if piece in ("<s>", "</s>") else ""
    # SentencePiece marks the start of a word by U+2581.
    html = escape(piece).replace("\u2581", '<tspan class="start">\u2581</tspan>')
    return f"<text{style} {place}>{html}</text>"


def label_width(piece: str) -> int:
    """About how wide the piece is drawn, in pixels: there is no font here to measure."""
    return round(0.65 * FONT_SIZE * cell_len(piece))
