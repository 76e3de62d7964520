"""Geometry of the picture of a cluster: boxes to scale by price, and the tasks inside.

A box is twice as wide as it is high, and its area stands for its price. Lanes lie across it, one
for each resource that the instance has. A task is a ribbon that runs down through all lanes, in
each as wide as its share of the resource; room that nothing takes is on the right.

Lengths of boxes are in em, so that a style sheet scales all of them together. Ribbons are drawn in
units of a thousandth of their box.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, log, sqrt

from eva_wire.values.ids import MILLION

UNITS = 1_000
_ASPECT = 2
_LARGEST_EM2 = 340.0
"""Area of the largest box, which is then as wide as a telephone, or a third of a screen."""
_ALL_EM2 = 2_300.0
"""Area of all boxes together, which is then about a screen, ..."""
_EACH_EM2 = 20.0
"""... unless there are so many that each would be smaller than this."""
_STEP = 1.3
"""The scale grows and shrinks in steps, so that boxes keep their size while instances come and go.
"""
_SLOPE = 0.3
"""Part of the height between the tops of two lanes in which ribbons run from one to the next."""
_WIDE = 0.75
"""A ribbon is wide where it has this part of its greatest width."""
_CPU_MICRO_USD = 45_000
_GPU_MICRO_USD = 900_000


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """A part of a lane, in units of the box's width."""

    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Label:
    """Room for the name of a task, in em."""

    x: float
    y: float
    width: float
    height: float


def nominal_price(price: int, gpus: int, milli_cpus: int) -> int:
    """The price that a box is drawn for, in micro-dollars per hour.

    A machine of the operator's own may cost nothing. Its box is then as large as that of a usual
    instance with as many GPUs and CPUs.
    """
    return price or gpus * _GPU_MICRO_USD + milli_cpus * _CPU_MICRO_USD // 1_000 or 1


def scale_of(prices: Iterable[int]) -> float:
    """The area of a dollar an hour, in square em.

    Args:
        prices: Prices of the boxes, in micro-dollars per hour; each is above 0.
    """
    listed = sorted(prices)
    if not listed:
        return 1.0
    largest, total = listed[-1] / MILLION, sum(listed) / MILLION
    area = min(_LARGEST_EM2 / largest, max(_ALL_EM2, _EACH_EM2 * len(listed)) / total)
    return float(_STEP ** floor(log(area, _STEP)))


def size_of(price: int, scale: float) -> tuple[float, float]:
    """Width and height of a box, in em.

    Args:
        price: In micro-dollars per hour.
        scale: Area of a dollar an hour, in square em.
    """
    height = sqrt(price / MILLION * scale / _ASPECT)
    return round(_ASPECT * height, 2), round(height, 2)


def spans(demands: Sequence[Sequence[int]], capacities: Sequence[int]) -> list[list[LaneSpan]]:
    """The spans of each task, lane by lane.

    Args:
        demands: Amounts of each task, one for each lane.
        capacities: Of the instance, one for each lane; above 0.
    """
    rooms = [
        max(capacity, sum(of[lane] for of in demands)) for lane, capacity in enumerate(capacities)
    ]
    starts = [0.0] * len(rooms)
    placed = []
    for of in demands:
        widths = [UNITS * amount / room for amount, room in zip(of, rooms, strict=True)]
        placed.append([LaneSpan(start, width) for start, width in zip(starts, widths, strict=True)])
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    return placed


def ribbon(lanes: Sequence[LaneSpan]) -> str:
    """The outline of a task, as the data of an SVG path."""
    tops = _tops(len(lanes))
    lefts = [(span.start, top, bottom) for span, (top, bottom) in zip(lanes, tops, strict=True)]
    rights = [
        (span.start + span.width, top, bottom)
        for span, (top, bottom) in zip(lanes, tops, strict=True)
    ]
    path = f"M{lefts[0][0]:.0f} {lefts[0][1]:.0f}H{rights[0][0]:.0f}"
    for number, (x, top, bottom) in enumerate(rights):
        if number:
            path += _bend(rights[number - 1][0], rights[number - 1][2], x, top)
        path += f"V{bottom:.0f}"
    path += f"H{lefts[-1][0]:.0f}"
    for number in range(len(lefts) - 1, -1, -1):
        x, top, _ = lefts[number]
        path += f"V{top:.0f}"
        if number:
            above = lefts[number - 1]
            path += _bend(x, top, above[0], above[2])
    return path + "Z"


def _bend(x: float, y: float, to_x: float, to_y: float) -> str:
    """A curve from one lane to the next."""
    middle = (y + to_y) / 2
    return f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}"


def _tops(lanes: int) -> list[tuple[float, float]]:
    """Top and bottom of each lane, in units of the box's height."""
    height = UNITS / (lanes + _SLOPE * (lanes - 1))
    return [
        (number * height * (1 + _SLOPE), number * height * (1 + _SLOPE) + height)
        for number in range(lanes)
    ]


def lane_tops(lanes: int) -> list[tuple[int, int]]:
    """Top and height of each lane, in units of the box's height."""
    return [(round(top), round(bottom - top)) for top, bottom in _tops(lanes)]


def label_of(lanes: Sequence[LaneSpan], width: float, height: float) -> Label:
    """The room for a task's name: in the first lane in which its ribbon is wide.

    Args:
        lanes: Its spans.
        width: Of the box, in em.
        height: Of the box, in em.
    """
    widest = max(span.width for span in lanes)
    number = next(lane for lane, span in enumerate(lanes) if span.width >= _WIDE * widest)
    top, bottom = _tops(len(lanes))[number]
    span = lanes[number]
    return Label(
        round(span.start * width / UNITS, 2),
        round(top * height / UNITS, 2),
        round(span.width * width / UNITS, 2),
        round((bottom - top) * height / UNITS, 2),
    )
