"""Charts of curves over updates or minutes, as HTML and inline SVG that need no script and no other file.

The SVG stretches to the room it gets. What must not stretch (labels, dots, the values at the pointer) is HTML positioned by
percentages. Each point that can be read off is an element that shows its values on hover and focus.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

Values = dict[float, float]  # by update or minute, in order
Scale = Literal["zero", "fit", "log"]  # of the values: linear from 0 or as it fits, or logarithmic

MAX_DRAWN_POINTS = 300  # of a curve
MAX_READABLE_POINTS = 80  # of a curve: those that show their values
EARLY_SHARE = 0.02  # the share of updates at the start whose values may lie above the plot
SMOOTHING_SHARE = 0.01  # the share of a noisy curve's values averaged on either side of each


class Curve(NamedTuple):
    """Values by place, at least one. Those of the style "training" are noisy: drawn faintly, below their moving average."""

    name: str  # HTML
    style: str  # a class of the page
    values: Values


def thin(values: Values, limit: int) -> Values:
    """At most `limit` (4 or more) of the values: the first, the last, and the lowest and highest of equal stretches."""
    updates = [*values]
    if len(updates) <= limit:
        return values
    stretches = np.array_split(updates, (limit - 2) // 2)
    extremes = {choose(stretch, key=values.__getitem__) for stretch in stretches for choose in (min, max)}
    return {update: values[update] for update in sorted({updates[0], updates[-1]} | extremes)}


def smooth(values: Values) -> Values:
    """Replace each value by the mean of itself and its neighbours."""
    kernel = np.ones(2 * round(SMOOTHING_SHARE * len(values)) + 1)
    means = np.convolve([*values.values()], kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")
    return dict(zip(values, means.tolist(), strict=True))


def multiples(low: float, high: float, count: int) -> list[float]:
    """The multiples, from low to high, of the smallest round step that gives at most `count` steps."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10, 20) if factor * power * count >= span)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [float(f"{number * step:.10g}") for number in range(first, last + 1)]  # 0.3, not 0.30000000000000004


@dataclass(frozen=True)
class Chart:
    """Curves from update (or minute) 0 to `end` as a figure.

    `time` says when an update was done, if that is one time for all curves, and `label` formats a value. Unless it
    begins at zero, the axis fits all but the first updates, whose high values would flatten the rest: the curve enters the plot
    from above.

    Places are percentages from the plot's left and top edges.
    """

    title: str
    unit: str
    scale: Scale
    curves: Sequence[Curve]
    time: Callable[[float], str] | None
    end: float
    label: Callable[[float], str]
    over: Literal["update", "minute"] = "update"

    def html(self) -> str:
        newest = max(update for curve in self.curves for update in curve.values) if self.time else None
        latest = [(curve, curve.values[max(curve.values)]) for curve in self.curves]
        summary = "; ".join(f"{curve.name}, at last {self.label(last)}" for curve, last in latest)
        return (
            f"<figure><figcaption><h3>{self.title} <small>{self.unit}</small></h3><p>{self._reading(newest, latest)}</p>"
            '</figcaption><div class="plot"><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
            f'aria-label="{self.title}: {summary}">{self._paths()}</svg>{self._labels()}'
            f'<div class="points" role="listbox" aria-orientation="horizontal" aria-label="{self.title}, point by point">'
            f"{self._readable_points()}</div></div></figure>\n"
        )

    @cached_property
    def _axis(self) -> tuple[float, float, list[float]]:
        """Its lowest and highest value, and its ticks. A logarithmic axis also begins a little below the curves."""
        points = [point for curve in self.curves for point in curve.values.items()]
        late = [value for update, value in points if self.scale == "zero" or update > EARLY_SHARE * self.end]
        values = late or [value for _, value in points]
        low, high = 0 if self.scale == "zero" else min(values), max(values)
        if self.scale != "log":
            high += 0.05 * (high - low) or 1
            return low, high, multiples(low, high, 4)
        low, high = low / 1.1, high * 1.1
        ticks = [factor * 10.0**power for power in range(-9, 99) for factor in (1, 2, 5)]
        ticks = [tick for tick in ticks if low <= tick <= high]
        return low, high, ticks[:: math.ceil(len(ticks) / 6)] if len(ticks) > 2 else multiples(low, high, 4)

    def _x(self, update: float) -> float:
        return 100 * update / self.end

    def _y(self, value: float) -> float:
        place = math.log if self.scale == "log" else float
        low, high, _ = self._axis
        return 100 * (place(high) - place(value)) / (place(high) - place(low))

    def _reading(self, update: float | None, values: Sequence[tuple[Curve, float]]) -> str:
        """When an update was done, and the curves' values there. None is each curve's end."""
        when = "at the end"
        if update is not None:
            place = f"{update:,}" if self.over == "update" else f"{update:,.1f}"
            when = " · ".join(filter(None, [f"{self.over} {place}", self.time(update) if self.time else ""]))
        named = (f'<em class="{one.style}"><span>{one.name} </span>{self.label(value)}</em>' for one, value in values)
        return f"<span>{when}</span>{''.join(named)}"

    def _paths(self) -> str:
        """Grid and curves."""
        grid = "".join(f"M0 {self._y(tick):.2f}h100" for tick in self._axis[2])
        html = f'<path class="grid" d="{grid}"/><path class="axis" d="M0 100h100"/>'
        for curve in self.curves:
            noisy = curve.style == "training"
            if noisy:
                html += self._path("training faint", curve.values)
            html += self._path(curve.style, smooth(curve.values) if noisy else curve.values)
        return html

    def _path(self, style: str, values: Values) -> str:
        drawn = thin(values, MAX_DRAWN_POINTS).items()
        places = "L".join(f"{self._x(update):.2f} {self._y(value):.2f}" for update, value in drawn)
        return f'<path class="{style}" d="M{places}h.01"/>'  # shows as a dot where there is one point

    def _labels(self) -> str:
        """The labels of both axes."""
        html = "".join(f'<span class="y" style="top:{self._y(tick):.2f}%">{tick:,.10g}</span>' for tick in self._axis[2])
        for update in multiples(0, self.end, 3):
            if self.over == "update" and not update.is_integer():
                continue
            style = "x last" if update > 0.95 * self.end else "x"  # the last label ends within the plot
            html += f'<span class="{style}" style="left:{self._x(update):.2f}%">{update:,.10g}{self._below(update)}</span>'
        return html + f'<span class="unit">{self.over}{"<br>time" if self.time else ""}</span>'

    def _below(self, update: float) -> str:
        """The second line of a label."""
        return f"<br>{self.time(update)}" if self.time else ""

    def _readable_points(self) -> str:
        """The points that show their values, each in a column that reaches half the way to its neighbours."""
        updates = sorted({update for curve in self.curves for update in thin(curve.values, MAX_READABLE_POINTS)})
        edges = [0.0, *(self._x((left + right) / 2) for left, right in pairwise(updates)), 100.0]
        html = ""
        for update, (left, right) in zip(updates, pairwise(edges), strict=True):
            values = [(curve, curve.values[update]) for curve in self.curves if update in curve.values]
            dots = (f'<i class="{one.style}" style="top:{max(0, self._y(value)):.2f}%"></i>' for one, value in values)
            html += (
                f'<span role="option" tabindex="{-1 if html else 0}" style="--x:{self._x(update):.2f}%">'
                f'<u style="left:{left:.2f}%;width:{right - left:.2f}%"></u>{"".join(dots)}'
                f"<b>{self._reading(update, values)}</b></span>"
            )
        return html
