"""The figures of estimated and true run times, and of pilots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from matplotlib.axes import Axes

from eva_lab.experiments.summary import Row
from eva_lab.reports.style import Picture, colour, sheet

_MOMENTS = (
    ("estimated_at_first_s", "at first"),
    ("estimated_after_pilots_s", "after pilots"),
)
_COLUMNS = 3
_ROOM = 1.3
_PARTS = 20
Pairs = Sequence[Sequence[float]]
Pilots = Sequence[tuple[float, int, int]]


def estimated(rows: Sequence[Row], where: str) -> list[Picture]:
    """A panel per policy and moment; no figure if no run was about estimates.

    Args:
        rows: Of one trace.
        where: Says which runs are shown.
    """
    panels = [
        (f"{row.label}, {title}", pairs, colour(number))
        for number, row in enumerate(rows)
        for key, title in _MOMENTS
        if (pairs := _pairs(row, key))
    ]
    if not panels:
        return []
    seconds = [value for _, pairs, _ in panels for value in chain(*pairs)]
    ends = min(seconds) / _ROOM, max(seconds) * _ROOM
    columns = min(_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = sheet(3.2 * lines, columns, lines)
    for panel, (title, pairs, paint) in zip(axes, panels, strict=False):
        _panel(panel, pairs, ends, paint)
        panel.set_title(title, fontsize=9, loc="left")
        panel.set_xlabel("true, s")
        panel.set_ylabel("estimated, s")
    for spare in axes[len(panels) :]:
        spare.remove()
    caption = (
        "Mean run time of a job's tasks in seconds (logarithmic), estimated and true, of jobs with "
        "three tasks or more: when the policy first sees a job, and once as many of its tasks have "
        f"finished as it has pilots, 3 % if it has none. On the line estimates are right. {where}"
    )
    return [Picture("estimates", "Estimated and true run times", caption, figure)]


def sampled(rows: Sequence[Row], where: str) -> list[Picture]:
    """Which share of the tasks of jobs are pilots, over time; no figure if none had any.

    Args:
        rows: Of one trace.
        where: Says which runs are shown.
    """
    shown = [(number, row, pilots) for number, row in enumerate(rows) if (pilots := _pilots(row))]
    if not shown:
        return []
    figure, (axes,) = sheet(3.2)
    for number, row, pilots in shown:
        axes.step(*_shares(pilots), where="post", label=row.label, color=colour(number))
    axes.set_xlabel("hours")
    axes.set_ylabel("pilots, % of the tasks")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
    caption = (
        "The share of the tasks of jobs that were chosen to run first, of the jobs that were given "
        f"pilots in each twentieth of the time. A job has one at least, whatever the share. {where}"
    )
    return [Picture("pilots", "How many tasks are pilots", caption, figure)]


def _shares(pilots: Pilots) -> tuple[list[float], list[float]]:
    """When each part of the time begins, in hours, and the share of pilots in it, in per cent."""
    end = max(at for at, _, _ in pilots) or 1.0
    parts = [(min(_PARTS - 1, int(at / end * _PARTS)), chosen, of) for at, chosen, of in pilots]
    points = []
    for part in range(_PARTS):
        chosen = sum(count for number, count, _ in parts if number == part)
        of = sum(count for number, _, count in parts if number == part)
        if of:
            points.append((part * end / _PARTS, 100 * chosen / of))
    return [at for at, _ in points], [share for _, share in points]


def _pilots(row: Row) -> Pilots:
    pilots: Pilots = row.results[0]["curves"].get("pilots", ())
    return pilots


def _pairs(row: Row, key: str) -> Pairs:
    pairs: Pairs = row.results[0]["curves"].get(key, ())
    return pairs


def _panel(axes: Axes, pairs: Pairs, ends: tuple[float, float], paint: str) -> None:
    axes.plot(ends, ends, color="#888888", lw=0.9)
    # Thousands of points as drawn shapes would make the page slow.
    true, estimates = [value for value, _ in pairs], [other for _, other in pairs]
    axes.scatter(true, estimates, s=7, color=paint, alpha=0.5, lw=0, rasterized=True)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
