"""Lines of plots, as data of SVG paths. A plot is drawn in units of a thousandth of its sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

from eva_wire.text.moments import date_of
from eva_wire.values.durations import span

UNITS = 1_000
_MARGIN = 0.06
_DAY_MS = 86_400_000

Points = Sequence[tuple[int, float]]
"""Times and values, oldest first."""


@dataclass(frozen=True, slots=True)
class AxisTick:
    """A value of an axis.

    Attributes:
        at: Per cent of the way along the axis.
        text: The value.
    """

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A line.

    Attributes:
        name: Name of the figure; also its class.
        path: The line.
        area: The line closed along the bottom.
        last: The newest value, in words.
    """

    name: str
    path: str
    area: str
    last: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over time.

    Attributes:
        rows: Ticks of the values, from the top.
        columns: Ticks of the times.
        summary: The newest values in a sentence, for those who do not see it.
        since: How long ago it begins, in words.
    """

    curves: tuple[Curve, ...]
    rows: tuple[AxisTick, ...]
    columns: tuple[AxisTick, ...]
    summary: str
    since: str


@dataclass(frozen=True, slots=True)
class SmallPlot:
    """One line without axes.

    Attributes:
        least: The least value, in words.
        most: The greatest value, in words.
        last: The newest value, in words.
    """

    name: str
    path: str
    area: str
    least: str
    most: str
    last: str


def steps(
    points: Sequence[tuple[int, float | None]], least: tuple[int, float], most: tuple[int, float]
) -> str:
    """A line of steps: a value holds until the next one, and there is a gap where there is none.

    Args:
        points: Times and values, oldest first.
        least: Time and value at the bottom left.
        most: Time and value at the top right.
    """
    path, before = "", None
    for at_ms, value in points:
        x, y = _place((at_ms, value or 0.0), least, most)
        if before is not None:
            path += f"H{x}"
        if value is None:
            before = None
            continue
        if before is None:
            path += f"M{x} {y}"
        elif y != before:
            path += f"V{y}"
        before = y
    return path if before is None else f"{path}H{UNITS}"


def small(name: str, points: Points) -> SmallPlot | None:
    """A line between its least and greatest value; `None` if there are fewer than two points."""
    shown = [(at_ms, value) for at_ms, value in points if isfinite(value)]
    if len(shown) < 2:
        return None
    values = [value for _, value in shown]
    low, high = min(values), max(values)
    pad = (high - low) * _MARGIN or abs(high) * _MARGIN or 1.0
    least, most = (shown[0][0], low - pad), (shown[-1][0], high + pad)
    places = [_place(point, least, most) for point in shown]
    path = "M" + "L".join(f"{x} {y}" for x, y in places)
    area = f"{path}V{UNITS}H{places[0][0]}Z"
    return SmallPlot(name, path, area, f"{low:.4g}", f"{high:.4g}", f"{values[-1]:.4g}")


def closed(path: str) -> str:
    """A line closed along the bottom, from the left edge of the plot's line to its right edge."""
    return f"{path}V{UNITS}H{path[1:].split(' ', maxsplit=1)[0]}Z" if path else ""


def nice_top(most: float) -> float:
    """The next round number: 1, 1.5, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    if most <= 0:
        return 1.0
    power = 10.0 ** floor(log10(most))
    factors = (1, 1.5, 2, 3, 4, 5, 6, 8)
    return next((each * power for each in factors if each * power >= most), 10 * power)


def times(first_ms: int, last_ms: int) -> tuple[AxisTick, ...]:
    """Ticks of times: the beginning, the middle and the end, by the clock in UTC."""
    if last_ms <= first_ms:
        return ()
    form = "%H:%M" if last_ms - first_ms < _DAY_MS else "%b %d, %H:%M"
    if last_ms - first_ms < 600_000:
        form = "%H:%M:%S"
    quarter = (last_ms - first_ms) // 4
    return tuple(
        AxisTick(25 * number, f"{date_of(first_ms + number * quarter):{form}}")
        for number in range(5)
    )


def ago(first_ms: int, now: int) -> str:
    """How long a plot reaches back."""
    return span(now - first_ms)


def _place(
    point: tuple[int, float], least: tuple[int, float], most: tuple[int, float]
) -> tuple[int, int]:
    at_ms, value = point
    wide, high = max(1, most[0] - least[0]), most[1] - least[1] or 1.0
    x = UNITS * (at_ms - least[0]) / wide
    y = UNITS * (1 - (value - least[1]) / high)
    return round(max(0, min(UNITS, x))), round(max(0, min(UNITS, y)))
