"""A curve over updates as HTML and inline SVG, which needs no script and no file but the page's own style.

The SVG is stretched to whatever room it gets, and what must not be stretched (labels, dots, the values under the pointer) is
HTML placed by percentages. Each point that can be asked for its values is an element that shows them on hover or focus.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar

Row = TypeVar("Row")
Point = tuple[int, float]  # update, value

DRAWN = 300  # points of a curve
ASKED = 80  # points of it that show their values
DOTTED = 40  # up to so many points are marked on the curve
BEGINNING = 0.02  # of the updates, whose values may lie above the plot
WINDOW = 0.01  # of the points of a noisy curve, on either side, over which it is smoothed
WIDTH, HEIGHT = 1000, 400  # of the SVG's own coordinates


@dataclass(frozen=True)
class Curve:
    """Finite values over updates, in order of updates. The style is a class of report.html."""

    name: str  # as HTML
    style: str
    points: list[Point]
    noisy: bool = False  # drawn faintly, with its moving mean over it


def thin(rows: Sequence[Row], limit: int, value: Callable[[Row], float]) -> list[Row]:
    """At most `limit` of the rows (4 or more), in order: the first, the last, and each stretch's lowest and highest."""
    if len(rows) <= limit:
        return list(rows)
    stretches = (limit - 2) // 2
    kept = {0, len(rows) - 1}
    for number in range(stretches):
        stretch = range(number * len(rows) // stretches, (number + 1) * len(rows) // stretches)
        kept |= {find(stretch, key=lambda place: value(rows[place])) for find in (min, max)}
    return [rows[place] for place in sorted(kept)]


def smooth(points: Sequence[Point], window: int) -> list[Point]:
    """Each point's mean with up to `window` neighbours on either side, at the beginning as many on the one as on the other."""
    sums = [0.0, *accumulate(value for _, value in points)]
    smoothed = []
    for place, (update, _) in enumerate(points):
        first = max(0, place - window)
        after = min(len(points), 2 * place - first + 1)
        smoothed.append((update, (sums[after] - sums[first]) / (after - first)))
    return smoothed


def round_step(span: float, count: int) -> float:
    """The smallest of 1, 2, 2.5, 5, 10 and so on that divides the span into at most `count` parts."""
    power = 10.0 ** math.floor(math.log10(span / count))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10, 20) if factor * power * count >= span)


def multiples(step: float, low: float, high: float) -> list[float]:
    """The multiples of a step from low to high, without the dust of binary fractions."""
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [float(f"{number * step:.10g}") for number in range(first, last + 1)]


def linear_axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """(lowest, highest, ticks) of an axis that holds these values and ends a little above them."""
    high = high if high > low else low + 1
    high += 0.05 * (high - low)
    return low, high, multiples(round_step(high - low, 4), low, high)


def logarithmic_axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """The same for an axis of equal ratios, which begins a little below them."""
    low, high = low / 1.1, high * 1.1
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [
        factor * 10.0**decade for decade in decades for factor in (1, 2, 5) if low <= factor * 10.0**decade <= high
    ]
    ticks = ticks[:: math.ceil(len(ticks) / 6)] if ticks else []
    return low, high, ticks if len(ticks) > 2 else multiples(round_step(high - low, 4), low, high)


def draw(
    title: str,
    unit: str,
    curves: list[Curve],
    time: Callable[[int], str],
    end: int,
    label: Callable[[float], str],
    low: float | None = None,
    logarithmic: bool = False,
) -> str:
    """A figure of the curves that have points, from update 0 to `end`; "" if none has.

    `time` tells when an update was done, `label` writes a value, `low` is where the axis begins. Without it the axis is
    made for all but the first updates, from which the curve comes in from above: they would make all the rest look flat.
    """
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    points = [point for curve in curves for point in curve.points]
    values = [value for update, value in points if low is not None or update > BEGINNING * end]
    values = values or [value for _, value in points]
    axis = logarithmic_axis if logarithmic else linear_axis
    bottom, top, ticks = axis(min(values) if low is None else low, max(values))
    scale = math.log if logarithmic else float

    def across(update: float) -> float:
        return update / end

    def down(value: float) -> float:
        return (scale(top) - scale(value)) / (scale(top) - scale(bottom))

    def reading(when: str, update: int, found: list[tuple[Curve, float]]) -> str:
        when = " · ".join(filter(None, [f"{when} {update:,}", time(update)]))
        return f"<span>{when}</span>" + "".join(
            f'<em class="{curve.style}"><span>{curve.name} </span>{label(value)}</em>' for curve, value in found
        )

    def place(point: Point) -> str:
        return f"{WIDTH * across(point[0]):.1f} {HEIGHT * down(point[1]):.1f}"

    def path(style: str, points: list[Point]) -> str:
        places = map(place, thin(points, DRAWN, lambda point: point[1]))
        return f'<path class="{style}" d="M{"L".join(places)}"/>'

    grid = "".join(f"M0 {HEIGHT * down(tick):.1f}h{WIDTH}" for tick in ticks)
    paths = [f'<path class="grid" d="{grid}"/><path class="axis" d="M0 {HEIGHT}h{WIDTH}"/>']
    for curve in curves:
        if curve.noisy:
            paths.append(path(curve.style + " faint", curve.points))
            paths.append(path(curve.style, smooth(curve.points, round(WINDOW * len(curve.points)))))
        else:
            paths.append(path(curve.style, curve.points))
        if len(curve.points) <= DOTTED:
            dots = "".join(f"M{place(point)}h.01" for point in curve.points)
            paths.append(f'<path class="{curve.style} dots" d="{dots}"/>')
    labels = [f'<span class="y" style="top:{down(tick):.2%}">{tick:,.10g}</span>' for tick in ticks]
    labels += [
        f'<span class="x{" last" if tick > 0.95 * end else ""}" style="left:{across(tick):.2%}">'
        f"{tick:,.0f}<br>{time(int(tick))}</span>"
        for tick in multiples(max(1, round_step(end, 3)), 0, end)
    ]
    last = [(curve, curve.points[-1][1]) for curve in curves]
    summary = "; ".join(
        f"{curve.name} from {label(curve.points[0][1])} to {label(curve.points[-1][1])}, "
        f"lowest {label(min(value for _, value in curve.points))}, "
        f"highest {label(max(value for _, value in curve.points))}"
        for curve in curves
    )
    newest = max(curve.points[-1][0] for curve in curves)
    return (
        f"<figure><figcaption><h3>{title} <small>{unit}</small></h3><p>{reading('by update', newest, last)}</p></figcaption>"
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{title}: {summary}">{"".join(paths)}</svg>'
        f'{"".join(labels)}<span class="unit">update<br>time</span>'
        f'<div class="points" role="listbox" aria-orientation="horizontal" aria-label="{title}, point by point">'
        f"{_points(curves, across, down, reading)}</div></div></figure>\n"
    )


def _points(
    curves: list[Curve],
    across: Callable[[float], float],
    down: Callable[[float], float],
    reading: Callable[[str, int, list[tuple[Curve, float]]], str],
) -> str:
    """What can be asked for its values: each point a column as wide as half the way to its neighbours."""
    updates = sorted({update for curve in curves for update, _ in thin(curve.points, ASKED, lambda point: point[1])})
    values = [dict(curve.points) for curve in curves]
    places = [across(update) for update in updates]
    edges = [0.0, *((left + right) / 2 for left, right in pairwise(places)), 1.0]
    points = []
    for number, update in enumerate(updates):
        found = [(curve, at[update]) for curve, at in zip(curves, values, strict=True) if update in at]
        dots = "".join(f'<i class="{curve.style}" style="top:{max(0, down(value)):.2%}"></i>' for curve, value in found)
        points.append(
            f'<span role="option" tabindex="{-1 if number else 0}" style="--x:{places[number]:.2%}">'
            f'<u style="left:{edges[number]:.2%};width:{edges[number + 1] - edges[number]:.2%}"></u>'
            f"{dots}<b>{reading('update', update, found)}</b></span>"
        )
    return "".join(points)
