"""How a sentence is read: by a recurrent network piece after piece, and by attention in one step. Two drawings of equal height.

They show the end; the page's script takes them back to any step. Each part that waits for a step has it as its `data-step`.
"""

from html import escape
from itertools import product

# In the units of the drawings, which are pixels on a wide screen.
WIDTH = 340
ROW = 34
LABEL_END = 118  # where the pieces' labels end
CELL = 190  # the middle of the chain
FROM, TO = 132, 312  # where attention's lines begin and end


def chain_of_cells(pieces: list[str]) -> str:
    """The recurrent network: each cell needs its piece, and the state of the cell before."""
    parts = ""
    for row in range(len(pieces)):
        y = _middle(row)
        if row:
            parts += f'<path data-step="{row + 1}" d="M{CELL} {y - ROW + 12}V{y - 12}m-4 -5l4 5l4 -5"/>'
        parts += f'<path data-step="{row + 1}" d="M{LABEL_END + 8} {y}H{CELL - 26}m-5 -4l5 4l-5 4"/>'
        parts += f'<rect data-step="{row + 1}" x="{CELL - 22}" y="{y - 12}" width="44" height="24" rx="5"/>'
        parts += f'<text x="{CELL}" y="{y + 5}" class="count">{row + 1}</text>'
    return _drawing("chain", "A chain of cells, one for each piece, each waiting for the one before", pieces, parts)


def attention_in_one_step(pieces: list[str]) -> str:
    """Attention: each piece looks at all pieces, and none waits for another."""
    parts = ""
    for left, right in product(range(len(pieces)), repeat=2):
        parts += f'<path data-step="1" d="M{FROM} {_middle(left)}L{TO} {_middle(right)}"/>'
    for row in range(len(pieces)):
        parts += f'<circle class="input" cx="{FROM}" cy="{_middle(row)}" r="4"/>'
        parts += f'<circle data-step="1" cx="{TO}" cy="{_middle(row)}" r="8"/>'
    return _drawing("all", "Lines from every piece to every piece, all drawn in one step", pieces, parts)


def _middle(row: int) -> int:
    return ROW * row + ROW // 2


def _drawing(style: str, label: str, pieces: list[str], parts: str) -> str:
    labels = "".join(
        f'<text x="{LABEL_END}" y="{_middle(row) + 5}" text-anchor="end">{escape(piece.replace("▁", "")) or "▁"}</text>'
        for row, piece in enumerate(pieces)
    )
    size = f"0 0 {WIDTH} {ROW * len(pieces)}"
    return f'<svg class="steps {style}" viewBox="{size}" role="img" aria-label="{label}">{labels}{parts}</svg>'
