"""Figures of single runs: instances over time, uptimes, learned interference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from eva_lab.experiments.summary import Row, Summary
from eva_lab.reports.figures import policies_of
from eva_lab.reports.fleets import completed, used
from eva_lab.reports.run_times import estimated, sampled
from eva_lab.reports.style import COLOURS, LINES, MOST_COLUMNS, Picture, colour, sheet

_SHOWN_TYPES = 7
_OTHER = "other types"


def curve_pictures(summary: Summary) -> list[Picture]:
    """Figures of the first trace and point, with its first seed."""
    if summary.plan.experiment.packing is not None:
        return []
    first = summary.rows[0]
    rows = [row for row in summary.rows if (row.trace, row.values) == (first.trace, first.values)]
    if summary.plan.experiment.fleet is not None:
        return [*used(rows, _where(rows)), *completed(rows, _where(rows))]
    pictures = [_instances(rows), _uptimes(summary, rows), *_interference(rows)]
    pictures += [*estimated(rows, _where(rows)), *sampled(rows, _where(rows))]
    if all("short_wait_s" in _curves(row) for row in rows):
        pictures += [_waits(summary, rows), _transients(rows)]
    return pictures


def _where(rows: Sequence[Row]) -> str:
    values = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in rows[0].values)
    trace = f"{rows[0].trace}, {values}" if values else rows[0].trace
    return f"Trace {trace}, first seed."


def _curves(row: Row) -> Mapping[str, Any]:
    curves: Mapping[str, Any] = row.results[0]["curves"]
    return curves


def _instances(rows: Sequence[Row]) -> Picture:
    """Stacked areas, a panel per policy on the same axes."""
    columns = 2 if len(rows) > 1 else 1
    lines = -(-len(rows) // columns)
    figure, axes = sheet(2.5 * lines + 0.9, columns, lines)
    shown = _largest_types(rows)
    handles: dict[str, Any] = {}
    top = 0.0
    for panel, row in zip(axes, rows, strict=False):
        series = _curves(row)["instances"]
        hours = np.array(series["hours"])
        counts = {name: np.array(values) for name, values in series["types"].items()}
        stacks = [counts.get(name, np.zeros(len(hours))) for name in shown]
        rest = [values for name, values in counts.items() if name not in shown]
        stacks.append(np.sum(rest, axis=0) if rest else np.zeros(len(hours)))
        colours = [*COLOURS[: len(shown)], "#bbbbbb"]
        names = [*shown, _OTHER]
        areas = panel.stackplot(hours, *stacks, colors=colours, lw=0)
        handles |= dict(zip(names, areas, strict=True))
        top = max(top, float(np.sum(stacks, axis=0).max()))
        panel.set_title(row.label, fontsize=10, loc="left")
        panel.set_xlim(0, hours[-1])
    end = max(float(_curves(row)["instances"]["hours"][-1]) for row in rows)
    for number, panel in enumerate(axes):
        if number >= len(rows):
            panel.remove()
            continue
        panel.set_xlim(0, end)
        panel.set_ylim(0, top * 1.05)
        panel.yaxis.set_major_locator(MaxNLocator(integer=True))
        if number % columns == 0:
            panel.set_ylabel("instances up")
        if number >= len(rows) - columns:
            panel.set_xlabel("hours since the beginning")
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=9)
    caption = f"Number of running instances of each type. {_where(rows)}"
    return Picture("instances", "Instances over time", caption, figure)


def _largest_types(rows: Sequence[Row]) -> list[str]:
    """The types that ran longest, in the order of their names."""
    hours: dict[str, float] = {}
    for row in rows:
        for name, values in _curves(row)["instances"]["types"].items():
            hours[name] = hours.get(name, 0.0) + sum(values)
    return sorted(sorted(hours, key=lambda name: -hours[name])[:_SHOWN_TYPES])


def _uptimes(summary: Summary, rows: Sequence[Row]) -> Picture:
    figure, (axes,) = sheet(4.2)
    labels = policies_of(summary)
    for row in rows:
        hours = _curves(row)["uptime_h"]
        number = labels.index(row.label)
        shares = np.linspace(0, 100, len(hours))
        launched = row.results[0]["figures"]["instances_launched"]
        style: dict[str, Any] = {
            "color": colour(number),
            "ls": LINES[number % len(LINES)],
            "lw": 1.8,
        }
        axes.plot(hours, shares, label=f"{row.label} ({launched:,})", **style)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("uptime of an instance, hours (logarithmic)")
    axes.set_ylabel("% of instances, at most so long up")
    axes.set_ylim(0, 100)
    figure.legend(loc="outside upper center", ncols=min(len(rows), MOST_COLUMNS), fontsize=9)
    caption = (
        f"Distribution of how long instances were up; in brackets how many were launched. "
        f"{_where(rows)}"
    )
    return Picture("uptime", "Uptime of instances", caption, figure)


def _waits(summary: Summary, rows: Sequence[Row]) -> Picture:
    """Distribution of the waits of short tasks, on a logarithmic scale of time."""
    figure, (axes,) = sheet(4.2)
    labels = policies_of(summary)
    for row in rows:
        seconds = _curves(row)["short_wait_s"]
        number = labels.index(row.label)
        shares = np.linspace(0, 100, len(seconds))
        style: dict[str, Any] = {"color": colour(number), "ls": LINES[number % len(LINES)]}
        axes.plot(np.maximum(seconds, 0.1), shares, label=row.label, lw=1.8, **style)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("wait of a short task, seconds (logarithmic; 0.1 and less at the left)")
    axes.set_ylabel("% of short tasks, at most so long")
    axes.set_ylim(0, 100)
    figure.legend(loc="outside upper center", ncols=min(len(rows), MOST_COLUMNS), fontsize=9)
    caption = f"Time from the arrival of a job to the start of each of its tasks. {_where(rows)}"
    return Picture("short-waits", "Waits of short tasks", caption, figure)


def _transients(rows: Sequence[Row]) -> Picture:
    """Transient servers over time, above the long tasks that hold the others."""
    figure, (above, below) = sheet(5.0, 1, 2)
    for number, row in enumerate(rows):
        curves = _curves(row)
        style: dict[str, Any] = {"color": colour(number), "ls": LINES[number % len(LINES)]}
        above.plot(curves["hours"], curves["transients"], label=row.label, lw=1.2, **style)
        below.plot(curves["hours"], curves["long_tasks"], lw=1.2, **style)
    above.set_ylabel("transient servers up")
    below.set_ylabel("long tasks running")
    below.set_xlabel("hours since the beginning, while jobs arrive")
    figure.legend(loc="outside upper center", ncols=min(len(rows), MOST_COLUMNS), fontsize=9)
    caption = f"Transient servers that are up, and servers that hold a long task. {_where(rows)}"
    return Picture("transients", "Transient servers and the long load", caption, figure)


def _interference(rows: Sequence[Row]) -> list[Picture]:
    """Learned and true interference of pairs."""
    best = max(rows, key=lambda row: len(row.results[0]["learned"]))
    entries = best.results[0]["learned"]
    if not entries:
        return []
    names = sorted({entry[side] for entry in entries for side in ("workload", "beside")})
    true = np.full((len(names), len(names)), np.nan)
    learned = true.copy()
    for entry in entries:
        place = names.index(entry["workload"]), names.index(entry["beside"])
        true[place], learned[place] = entry["true"], entry["learned"]
    figure, axes = sheet(0.42 * len(names) + 2.3, 2)
    low = float(np.nanmin([np.nanmin(true), np.nanmin(learned)]))
    for panel, title, matrix in zip(
        axes, ("true", "learned (mean over classes)"), (true, learned), strict=True
    ):
        image = panel.imshow(matrix, cmap="cividis", vmin=low, vmax=1, aspect="auto")
        image.set_gid(f"matrix-{title.split()[0]}")  # equal images would have equal names
        panel.grid(visible=False)
        panel.set_title(title, fontsize=10)
        panel.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
        panel.set_yticks(range(len(names)), names, fontsize=8)
        panel.set_xlabel("beside")
        for (line, column), value in np.ndenumerate(matrix):
            if not np.isnan(value):
                dark = value < low + 0.55 * (1 - low)
                text = f"{value:.2f}".removeprefix("0")
                panel.text(column, line, text, ha="center", va="center", fontsize=7,
                         color="white" if dark else "black")  # fmt: skip
    axes[0].set_ylabel("throughput of")
    figure.colorbar(image, ax=axes, label="normalised throughput, alone = 1", shrink=0.9)
    caption = (
        "Pairs of workloads that shared an instance: how much of its own speed the row's workload "
        "keeps beside the column's, as it is and as the scheduler had learned it at the end. "
        f"White pairs never met. Policy {best.label}. {_where(rows)}"
    )
    return [Picture("interference", "Interference, true and learned", caption, figure)]
