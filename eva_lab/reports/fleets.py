"""The figures of experiments on fleets: total times, GPUs in use, and when jobs are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eva_lab.experiments.summary import Row
from eva_lab.reports.style import COLOURS, LINES, MOST_COLUMNS, REFERENCE, Picture, colour, sheet


def used(rows: Sequence[Row], where: str) -> list[Picture]:
    """The GPUs of each type that tasks hold over time, a panel per policy on the same axes.

    Args:
        rows: Of one trace.
        where: Says which runs are shown.
    """
    columns = 2 if len(rows) > 1 else 1
    lines = -(-len(rows) // columns)
    figure, axes = sheet(2.5 * lines + 0.9, columns, lines)
    handles: dict[str, Any] = {}
    ends = [float(row.figures["total_h"].mean) for row in rows]
    for panel, row in zip(axes, rows, strict=False):
        gpus = row.results[0]["curves"]["gpus"]
        types = sorted(gpus["types"])
        areas = panel.stackplot(
            gpus["hours"],
            *(gpus["types"][name] for name in types),
            colors=[COLOURS[number % len(COLOURS)] for number, _ in enumerate(types)],
            lw=0,
        )
        handles |= dict(zip(types, areas, strict=True))
        total = sum(gpus["there"].values())
        panel.axhline(total, color=REFERENCE, lw=1)
        panel.set_title(f"{row.label}: {_shares(gpus)}", fontsize=9, loc="left")
        panel.set_ylim(0, 1.05 * total)
        panel.set_xlim(0, max(ends))
        panel.set_xlabel("hours since the first arrival")
        panel.set_ylabel("GPUs in use")
    for spare in axes[len(rows) :]:
        spare.remove()
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=MOST_COLUMNS)
    caption = (
        "GPUs of each type that tasks hold, starts and stops included; the line is how many there "
        f"are. Above each panel the mean share of each type's GPUs until the last end. {where}"
    )
    return [Picture("gpus", "GPUs in use by type", caption, figure)]


def _shares(gpus: Mapping[str, Any]) -> str:
    """The mean share of each type's GPUs that tasks hold."""
    means = {name: float(np.mean(held)) for name, held in sorted(gpus["types"].items())}
    return ", ".join(f"{name} {100 * means[name] / gpus['there'][name]:.0f} %" for name in means)


def completed(rows: Sequence[Row], where: str) -> list[Picture]:
    """Which share of the jobs is done after which time, a line per policy.

    Args:
        rows: Of one trace.
        where: Says which runs are shown.
    """
    figure, (axes,) = sheet(4.2)
    for number, row in enumerate(rows):
        hours = row.results[0]["curves"]["jct_h"]
        shares = np.linspace(0, 100, len(hours))
        style: dict[str, Any] = {"color": colour(number), "ls": LINES[number % len(LINES)]}
        mean = float(row.results[0]["figures"]["mean_h"])
        label = f"{row.label} (mean {mean:.2f} h, median {float(np.median(hours)):.2f} h)"
        axes.plot(hours, shares, label=label, lw=1.8, **style)
        axes.plot(mean, np.interp(mean, hours, shares), "o", color=colour(number), ms=5)
    axes.set_xlabel("completion time, hours")
    axes.set_ylabel("% of jobs, at most so long")
    axes.set_ylim(0, 100)
    axes.set_xlim(left=0)
    figure.legend(loc="outside upper center", ncols=2, fontsize=9)
    caption = (
        "Distribution of the time from a job's arrival to its end. The dot is at the mean; the "
        f"median is where a line crosses 50 %. {where}"
    )
    return [Picture("completion", "Completion times", caption, figure)]
