"""Numbers and tables as people read them, and the check of --format."""

from collections.abc import Sequence

from nmt.errors import UsageError


def duration(seconds: float) -> str:
    """40 s, 12 min, 3.5 h, 2.1 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def counted(number: int, unit: str) -> str:
    """1 update, 2,000 updates."""
    return f"{number:,} {unit}{'s' * (number != 1)}"


def line_numbers(numbers: Sequence[int]) -> str:
    """line 3; lines 3, 7; at most ten numbers, then how many more there are."""
    shown = ", ".join(map(str, numbers[:10]))
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"


def blank_lines(numbers: Sequence[int], count: int) -> str:
    """2 of 1,000 lines are blank (lines 3, 7)."""
    verb = "is" if len(numbers) == 1 else "are"
    return f"{len(numbers):,} of {counted(count, 'line')} {verb} blank ({line_numbers(numbers)})"


def table(rows: Sequence[Sequence[str]], align: str = "<<") -> str:
    """Indented lines of cells, two spaces between columns. `align` has "<" or ">" per column: flush left or flush right."""
    from rich.cells import cell_len  # a Chinese character is two columns wide

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, align, strict=True)
        line = "".join(f"  {cell:{side}{width + len(cell) - cell_len(cell)}}" for cell, width, side in cells)
        lines.append(line.rstrip())
    return "\n".join(lines)


def check_format(name: str) -> None:
    """Raises UsageError unless this is a value of --format."""
    if name not in ("text", "json"):
        raise UsageError(f"--format {name}: must be text or json")
