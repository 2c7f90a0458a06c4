"""Charts of curves over updates, as HTML and inline SVG that need no script and no other file.

The SVG stretches to the room it gets. What must not stretch (labels, dots, the values at the pointer) is HTML positioned by
percentages. Each point that can be read off is an element that shows its values on hover and focus.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np

Row = TypeVar("Row")
Point = tuple[int, float]  # update, value

MAX_DRAWN_POINTS = 300  # of a curve
MAX_READABLE_POINTS = 80  # of a curve: those that show their values
EARLY_SHARE = 0.02  # the share of updates at the start whose values may lie above the plot
SMOOTHING_SHARE = 0.01  # the share of a noisy curve's points averaged on either side of each


@dataclass(frozen=True)
class Curve:
    """Values over updates, in order of updates. The style is a class of report.html."""

    name: str  # HTML
    style: str
    points: list[Point]
    noisy: bool = False  # drawn faintly, with its moving average on top


def thin(rows: Sequence[Row], limit: int, value: Callable[[Row], float]) -> list[Row]:
    """At most `limit` (4 or more) of the rows in order: the first, the last, and the lowest and highest of equal stretches."""
    if len(rows) <= limit:
        return list(rows)
    stretches = np.array_split(np.arange(len(rows)), (limit - 2) // 2)
    extremes = {choose(stretch, key=lambda place: value(rows[place])) for stretch in stretches for choose in (min, max)}
    return [rows[place] for place in sorted({0, len(rows) - 1} | extremes)]


def smooth(points: Sequence[Point], window: int) -> list[Point]:
    """Replace each value by the mean of itself and up to `window` values on either side."""
    values, kernel = [value for _, value in points], np.ones(2 * window + 1)
    means = np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")
    return [(update, mean) for (update, _), mean in zip(points, means.tolist(), strict=True)]


def multiples(low: float, high: float, count: int) -> list[float]:
    """The multiples, from low to high, of the smallest round step that gives at most `count` steps."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10, 20) if factor * power * count >= span)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [float(f"{number * step:.10g}") for number in range(first, last + 1)]  # 0.3, not 0.30000000000000004


def axis(low: float, high: float, logarithmic: bool) -> tuple[float, float, list[float]]:
    """(lowest, highest, ticks) of an axis for these values; a logarithmic axis also begins a little below them."""
    if not logarithmic:
        high += 0.05 * (high - low) or 1
    else:
        low, high = low / 1.1, high * 1.1
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) > 2:
            return low, high, ticks[:: math.ceil(len(ticks) / 6)]
    return low, high, multiples(low, high, 4)


@dataclass(frozen=True)
class Chart:
    """Curves from update 0 to `end` as a figure. Every curve has points.

    `time` says when an update was done, `label` formats a value, and `low` is where the axis begins. Without `low`, the axis
    fits all but the first updates, whose high values would flatten the rest: the curve enters the plot from above.

    Places are percentages from the plot's left and top edges.
    """

    title: str
    unit: str
    curves: Sequence[Curve]
    time: Callable[[int], str]
    end: int
    label: Callable[[float], str]
    low: float | None = None
    logarithmic: bool = False

    def html(self) -> str:
        newest = max(curve.points[-1][0] for curve in self.curves)
        latest = self._reading(newest, [(curve, curve.points[-1][1]) for curve in self.curves])
        ends = ((curve.name, *(self.label(curve.points[place][1]) for place in (0, -1))) for curve in self.curves)
        summary = "; ".join(f"{name} from {first} to {last}" for name, first, last in ends)
        return (
            f"<figure><figcaption><h3>{self.title} <small>{self.unit}</small></h3><p>{latest}</p></figcaption>"
            '<div class="plot"><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
            f'aria-label="{self.title}: {summary}">{self._paths()}</svg>{self._labels()}'
            f'<div class="points" role="listbox" aria-orientation="horizontal" aria-label="{self.title}, point by point">'
            f"{self._readable_points()}</div></div></figure>\n"
        )

    @cached_property
    def _axis(self) -> tuple[float, float, list[float]]:
        points = [point for curve in self.curves for point in curve.points]
        late = [value for update, value in points if self.low is not None or update > EARLY_SHARE * self.end]
        values = late or [value for _, value in points]
        return axis(min(values) if self.low is None else self.low, max(values), self.logarithmic)

    def _x(self, update: float) -> float:
        return 100 * update / self.end

    def _y(self, value: float) -> float:
        low, high, at = map(math.log, (*self._axis[:2], value)) if self.logarithmic else (*self._axis[:2], value)
        return 100 * (high - at) / (high - low)

    def _reading(self, update: int, values: Sequence[tuple[Curve, float]]) -> str:
        """When an update was done, and the curves' values there."""
        when = " · ".join(filter(None, [f"update {update:,}", self.time(update)]))
        named = ((curve.style, curve.name, self.label(value)) for curve, value in values)
        return f"<span>{when}</span>" + "".join(f'<em class="{a}"><span>{b} </span>{c}</em>' for a, b, c in named)

    def _paths(self) -> str:
        """Grid and curves."""
        grid = "".join(f"M0 {self._y(tick):.2f}h100" for tick in self._axis[2])
        paths = [f'<path class="grid" d="{grid}"/><path class="axis" d="M0 100h100"/>']
        for curve in self.curves:
            points = curve.points
            if curve.noisy:
                paths.append(self._path(f"{curve.style} faint", points))
                points = smooth(points, round(SMOOTHING_SHARE * len(points)))
            paths.append(self._path(curve.style, points))
        return "".join(paths)

    def _path(self, style: str, points: Sequence[Point]) -> str:
        drawn = thin(points, MAX_DRAWN_POINTS, lambda point: point[1])
        places = "L".join(f"{self._x(update):.2f} {self._y(value):.2f}" for update, value in drawn)
        return f'<path class="{style}" d="M{places}h.01"/>'  # shows as a dot where there is one point

    def _labels(self) -> str:
        """The labels of both axes."""
        labels = [f'<span class="y" style="top:{self._y(tick):.2f}%">{tick:,.10g}</span>' for tick in self._axis[2]]
        for update in (int(tick) for tick in multiples(0, self.end, 3) if tick.is_integer()):
            style = "x last" if update > 0.95 * self.end else "x"  # the last label ends within the plot
            place = f"left:{self._x(update):.2f}%"
            labels.append(f'<span class="{style}" style="{place}">{update:,}<br>{self.time(update)}</span>')
        return "".join(labels) + '<span class="unit">update<br>time</span>'

    def _readable_points(self) -> str:
        """The points that show their values, each in a column that reaches half the way to its neighbours."""
        kept = (thin(curve.points, MAX_READABLE_POINTS, lambda point: point[1]) for curve in self.curves)
        updates = sorted({update for points in kept for update, _ in points})
        edges = [0.0, *(self._x((left + right) / 2) for left, right in pairwise(updates)), 100.0]
        by_update = [(curve, dict(curve.points)) for curve in self.curves]
        columns: list[str] = []
        for update, (left, right) in zip(updates, pairwise(edges), strict=True):
            values = [(curve, found[update]) for curve, found in by_update if update in found]
            places = ((curve.style, max(0, self._y(value))) for curve, value in values)
            dots = (f'<i class="{style}" style="top:{top:.2f}%"></i>' for style, top in places)
            columns.append(
                f'<span role="option" tabindex="{-1 if columns else 0}" style="--x:{self._x(update):.2f}%">'
                f'<u style="left:{left:.2f}%;width:{right - left:.2f}%"></u>{"".join(dots)}'
                f"<b>{self._reading(update, values)}</b></span>"
            )
        return "".join(columns)
