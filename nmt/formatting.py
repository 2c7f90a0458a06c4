"""Numbers as a person reads them, and the two forms in which results are told: text, and JSON for programs."""

from collections.abc import Sequence
from typing import Any

from nmt.errors import UsageError


def duration(seconds: float) -> str:
    """For a person: 40 s, 12 min, 3.5 h, 2.1 days."""
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
    """line 3; lines 3, 7; of many the first ten."""
    shown = ", ".join(map(str, numbers[:10]))
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"


def blank_lines(numbers: Sequence[int], count: int) -> str:
    """2 of 1,000 lines are blank (lines 3, 7)."""
    verb = "is" if len(numbers) == 1 else "are"
    return f"{len(numbers):,} of {counted(count, 'line')} {verb} blank ({line_numbers(numbers)})"


def format_perplexity(value: float) -> str:
    return f"{value:,.2f}" if value < 1e6 else f"{value:.2e}"


def table(rows: list[tuple[str, Any]]) -> str:
    """Lines of a label and its value, aligned."""
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"  {label:<{width}}  {value}" for label, value in rows)


def check_format(name: str) -> None:
    """Raises UsageError for a --format that is none."""
    if name not in ("text", "json"):
        raise UsageError(f"--format {name}: must be text or json")
