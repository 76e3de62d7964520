"""Packing and scaling out (Stratus, sections 4.2 and 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from eva_master.model.catalog import Offering
from eva_master.packing.bins.open_instances import Mask
from eva_master.packing.valuation.task_classes import PricedShape, ShapePrices
from eva_master.packing.valuation.vectors import vector
from eva_policies.stratus.bins import Bins, bin_of
from eva_wire.values.ids import MILLION, RunId

_LARGEST_GROUP = 256
"""Tasks of a candidate group at most."""


def pack(bins: Bins, runs: Sequence[RunId]) -> None:
    """Place task runs: on instances that end when they do, on others, on new ones.

    The longest task comes first. In the first pass a task joins the instance of its own bin whose
    end is the closest to its own, or else one of the nearest greater bin with room, which it does
    not prolong. Remaining tasks prolong an instance of the nearest lesser bin. Of several instances
    the one with the most room is taken, so that it is filled further. For the rest instances are
    acquired, bin by bin. More urgent jobs come before all this.

    Args:
        bins: The instances with their tasks.
        runs: Task runs, the most urgent first.
    """

    def order(run: RunId) -> tuple[int, int]:
        return -bins.jobs[bins.runs[run].job].priority, -bin_of(bins.left[run])

    first = sorted(runs, key=lambda run: (*order(run), -bins.left[run]))
    rest = _pack_up_and_down(bins, first)
    for _, members in groupby(rest, key=order):
        # The new instances of greater bins may have room.
        _scale_out(bins, _pack_up_and_down(bins, list(members)))
    # Where little is on sale, only instances of lesser bins may have room.
    _pack_up_and_down(bins, [run for run in rest if run not in bins.row_of])


def _pack_up_and_down(bins: Bins, runs: Sequence[RunId]) -> list[RunId]:
    """Fill instances that hold tasks; returns the task runs that did not fit."""
    rest = [run for run in runs if not _joined(bins, run, lesser=False)]
    # One that was just made to last longer may be of a greater bin by now.
    return [
        run
        for run in rest
        if not _joined(bins, run, lesser=False) and not _joined(bins, run, lesser=True)
    ]


def _joined(bins: Bins, run: RunId, *, lesser: bool) -> bool:
    """Whether the task run found room on an instance that holds a task."""
    rest_ms, own = bins.left_on_rows(run)
    of_row = bins.bins()
    fits = bins.fitting(bins.priced(run))
    fits &= (of_row >= 0) & (of_row < own) if lesser else of_row >= own
    rows = np.flatnonzero(fits)
    if not rows.size:
        return False
    nearest = of_row[rows].max() if lesser else of_row[rows].min()
    rows = rows[of_row[rows] == nearest]
    same = rows[own[rows] == nearest]
    if same.size:
        rows = same
        best = np.argmin(np.abs(bins.longest()[rows] - rest_ms[rows]))
    else:
        best = np.argmax(bins.free()[rows] @ bins.prices.unit_price)
    bins.put(run, int(rows[best]))
    return True


def _scale_out(bins: Bins, runs: list[RunId]) -> None:
    """Acquire instances for task runs of one bin, the most efficient one first.

    The candidate groups are the first task, the first two, the first three, and so on; each is
    matched with every type on sale that holds it.
    """
    while runs:
        shapes = [bins.priced(run) for run in runs[:_LARGEST_GROUP]]
        best_group = _most_efficient(bins.prices, bins.on_sale(), shapes)
        if best_group is None:
            del runs[0]  # No offering on sale holds it.
            continue
        size, offering = best_group
        row = bins.open(offering)
        for run in runs[:size]:
            bins.put(run, row)
        del runs[:size]


def _most_efficient(
    prices: ShapePrices, sale: Sequence[Offering], shapes: Sequence[PricedShape]
) -> tuple[int, Offering] | None:
    """Size of the group and offering that put the most to use for a dollar.

    A group's use of an instance is its amount of the constraining resource, at the least price of a
    unit on sale: a lower bound of its cost elsewhere. For a group with a task that runs faster on
    some families than on others the use is its worth there. Of equals the larger group is taken,
    then the cheaper offering.
    """
    if not sale:
        return None
    family = np.array([prices.families[offering.type.family] for offering in sale])
    capacity = np.array([vector(offering.type.capacity) for offering in sale], dtype=np.int64)
    price = np.array([max(1, offering.price) for offering in sale], dtype=np.int64)
    # Groups in rows, offerings in columns, resources last.
    taken = np.cumsum([priced.need for priced in shapes], axis=0)[:, family]
    fits: Mask = np.all(taken <= capacity, axis=2)
    if not fits[0].any():
        return None
    used = (np.minimum(taken, capacity) * prices.unit_price).max(axis=2)
    if any(priced.shape.part.speeds for priced in shapes):
        worth = np.cumsum([priced.prices for priced in shapes], axis=0)[:, family] * MILLION
        differ = np.cumsum([bool(priced.shape.part.speeds) for priced in shapes]) > 0
        used = np.where(differ[:, np.newaxis], worth, used)
    used = np.where(fits, used, -1)
    score = np.where(fits, used // price, -1)
    groups, columns = np.nonzero(score == score.max())
    largest = groups.max()
    return int(largest) + 1, sale[int(columns[groups == largest].min())]
