"""Figures of the metrics: bars, or lines over a varied setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from eva_lab.experiments.summary import Row, SeedMean, Summary, Values
from eva_lab.reports.style import (
    LINES,
    MARKERS,
    MOST_COLUMNS,
    REFERENCE,
    Picture,
    colour,
    fit_labels,
    sheet,
)
from eva_wire.text.quantities import parse_duration

_HEIGHT = 4.2


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of a run, as it is drawn.

    Attributes:
        key: Its name among a row's figures.
        axis: Label of the axis, with its unit.
        factor: Factor for its values.
    """

    name: str
    key: str
    title: str
    axis: str
    caption: str
    factor: float = 1.0


COST = Measure(
    "cost",
    "cost_share",
    "Cost",
    "cost, % of {baseline}",
    "What all instances cost, against {baseline} on the same trace.",
    100,
)
MEASURES = (
    COST,
    Measure(
        "jct",
        "jct_share",
        "Job completion time",
        "mean completion time, % of {baseline}",
        "From arrival to end, mean over jobs, against {baseline} on the same trace; hours are in "
        "the table.",
        100,
    ),
    Measure(
        "throughput",
        "norm_throughput_mean",
        "Job throughput",
        "speed, % of alone",
        "How fast jobs progress while they run, against running alone; mean over jobs.",
        100,
    ),
    Measure(
        "tasks",
        "tasks_per_instance",
        "Tasks per instance",
        "tasks per instance",
        "Mean over the time that instances were up.",
    ),
    Measure(
        "moves",
        "migrations_per_job",
        "Moves",
        "moves per job",
        "How often a job's tasks were moved to another instance, mean over jobs.",
    ),
    Measure(
        "full",
        "full_share",
        "Full reconfigurations",
        "% of all reconfigurations",
        "Of the rounds that changed anything, those that arranged the whole cluster anew. "
        "Policies that know no such thing have none.",
        100,
    ),
)
OF_FLEETS = (
    Measure(
        "total",
        "over_bound",
        "Total time",
        "total time over the least",
        "From the first arrival to the last end, over the least total time that any scheduler "
        "could reach if moves took no time. At 1 nobody could be faster.",
    ),
    Measure(
        "mean-jct",
        "mean_h",
        "Mean completion time",
        "hours",
        "From arrival to end, mean over jobs.",
    ),
    Measure(
        "median-jct",
        "median_h",
        "Median completion time",
        "hours",
        "From arrival to end; half of the jobs take no longer.",
    ),
    Measure(
        "job-moves",
        "moves_per_job",
        "Moves",
        "moves of a task",
        "How often a task was moved to another server, mean over the tasks of a job and over jobs.",
    ),
    Measure(
        "changed",
        "changed_rounds",
        "Rounds that change anything",
        "% of rounds",
        "In which share of the rounds, from the first arrival to the last end, a task was started "
        "or stopped for another one.",
        100,
    ),
)
"""In the place of the others on a fleet, which costs the same whatever is done."""
PLANNING = Measure(
    "planning",
    "planning_mean_s",
    "Time to plan",
    "seconds",
    "Real time that one plan takes, on one core of the machine that this was made on.",
)
_RESOURCES = (
    ("allocation_gpu", "GPUs"),
    ("allocation_cpu", "vCPUs"),
    ("allocation_memory", "memory"),
)


def measured(summary: Summary) -> list[Picture]:
    """One figure per metric, and one of allocation."""
    if summary.plan.experiment.packing is not None:
        return [_measure(summary, COST), _measure(summary, PLANNING)]
    if summary.plan.experiment.fleet is not None:
        return [_measure(summary, measure) for measure in OF_FLEETS if _differs(summary, measure)]
    first, rest = MEASURES[:3], MEASURES[3:]
    before = [_measure(summary, measure) for measure in first if _differs(summary, measure)]
    after = [_measure(summary, measure) for measure in rest if _differs(summary, measure)]
    return [*before, _allocation(summary), *after]


def _differs(summary: Summary, measure: Measure) -> bool:
    """Whether there is anything to draw: a figure that is not zero."""
    return any(row.figures[measure.key].mean for row in summary.rows if measure.key in row.figures)


def x_key(summary: Summary) -> str | None:
    """The varied setting of the x axis, if one has numbers or durations."""
    for key, values in summary.plan.experiment.vary.items():
        if len(values) > 1 and all(_measured(value) is not None for value in values):
            return key
    return None


def _measured(value: object) -> float | None:
    """A number, or the minutes of a duration; `None` for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    try:
        return parse_duration(value) / 60_000
    except ValueError:
        return None


Group = tuple[str, Values]
"""A trace, and the varied settings other than the x axis."""


def groups(summary: Summary) -> dict[Group, list[Row]]:
    """Groups of rows of one figure, in the order of the file."""
    along = x_key(summary)
    by_group: dict[Group, list[Row]] = {}
    for row in summary.rows:
        rest = tuple(pair for pair in row.values if pair[0] != along)
        by_group.setdefault((row.trace, rest), []).append(row)
    return by_group


def group_title(group: Group) -> str:
    """The title of a group: its trace and settings."""
    trace, values = group
    return ", ".join([trace, *(f"{key.rpartition('.')[2]} {value}" for key, value in values)])


def policies_of(summary: Summary) -> list[str]:
    """The labels in the order of the file, which determines their colours."""
    return summary.plan.experiment.labels


def _measure(summary: Summary, measure: Measure) -> Picture:
    baseline = summary.plan.experiment.baseline
    by_group = groups(summary)
    along = x_key(summary)
    columns = min(2, len(by_group)) if along else 1
    lines = -(-len(by_group) // columns) if along else 1
    figure, axes = sheet(_HEIGHT if lines == 1 else 3.6 * lines, columns, lines)
    if along is None:
        _bars(axes[0], summary, by_group, measure)
    else:
        for panel, (group, rows) in zip(axes, by_group.items(), strict=False):
            _curve(panel, summary, rows, measure, along)
            if len(by_group) > 1:
                panel.set_title(group_title(group), fontsize=10, loc="left")
        for spare in axes[len(by_group) :]:
            spare.remove()
        axes = axes[: len(by_group)]
    top = _top(summary, measure)
    for panel in axes:
        panel.set_ylabel(measure.axis.format(baseline=baseline))
        panel.set_ylim(0, top)
    _legend(figure, axes[0], policies_of(summary), measure is COST and summary.reference_share)
    note = _NOTES[measure is COST and bool(summary.reference_share)]
    return Picture(
        measure.name, measure.title, measure.caption.format(baseline=baseline) + note, figure
    )


def _top(summary: Summary, measure: Measure) -> float:
    """The end of the y axis; wide intervals of few runs must not flatten the rest."""
    estimates = [row.figures[measure.key] for row in summary.rows if measure.key in row.figures]
    highest = max((estimate.mean for estimate in estimates), default=0.0)
    reach = max((estimate.mean + (estimate.half or 0) for estimate in estimates), default=0.0)
    return max(1.08 * min(reach, 1.4 * highest), 1.1 * highest) * measure.factor or 1.0


_NOTES = {
    True: " The black line is the reference bound: the least that fractional packing could cost "
    "with free moves and no interference.",
    False: "",
}


def _bars(axes: Axes, summary: Summary, by_group: dict[Group, list[Row]], measure: Measure) -> None:
    labels = policies_of(summary)
    width = 0.8 / len(labels)
    for number, label in enumerate(labels):
        for place, rows in enumerate(by_group.values()):
            row = next((row for row in rows if row.label == label), None)
            estimate = row.figures.get(measure.key) if row else None
            if estimate is None:
                continue
            at = place + (number - (len(labels) - 1) / 2) * width
            _bar(axes, at, estimate, measure.factor, width * 0.92, number=number, label=label)
            if width > 0.065:
                value = estimate.mean * measure.factor
                text = f"{value:.0f}" if value >= 20 else f"{value:.2f}"
                _value(axes, at, value, text, over_interval=estimate.half is not None)
    if measure is COST:
        for place, (group, rows) in enumerate(by_group.items()):
            share = summary.reference_share.get((group[0], rows[0].values))
            if share is not None:
                axes.hlines(100 * share, place - 0.44, place + 0.44, color=REFERENCE, lw=1.6)
    fit_labels(axes, [group_title(group) for group in by_group])
    axes.set_xlim(-0.6, len(by_group) - 0.4)


def _bar(
    axes: Axes, at: float, one: SeedMean, factor: float, width: float, *, number: int, label: str
) -> None:
    """Draw a bar with its interval."""
    height, half = one.mean * factor, (one.half or 0) * factor
    axes.bar(at, height, width, color=colour(number), label=label, hatch=_hatch(number), ec="white")
    if one.half is not None:
        axes.errorbar(at, height, half, color="#222222", lw=1, capsize=3)


def _value(axes: Axes, at: float, end: float, text: str, *, over_interval: bool = False) -> None:
    """Write a bar's value where the bar ends, readable over its interval."""
    axes.annotate(
        text,
        (at, end),
        (0, 3),
        textcoords="offset points",
        ha="center",
        fontsize=8,
        bbox={"fc": "white", "ec": "none", "pad": 0.6, "alpha": 0.85} if over_interval else None,
        zorder=5,
    )


def _hatch(number: int) -> str:
    return ("", "//", "..", "\\\\", "xx", "--", "++", "oo")[number % 8]


def _curve(axes: Axes, summary: Summary, rows: Sequence[Row], measure: Measure, along: str) -> None:
    labels = policies_of(summary)
    places = sorted({_number(row, along) for row in rows})
    # Side by side, so that no interval hides another.
    step = 0.012 * (places[-1] - places[0])
    for number, label in enumerate(labels):
        aside = (number - (len(labels) - 1) / 2) * step
        mine = sorted(
            (
                (_number(row, along), row.figures[measure.key])
                for row in rows
                if row.label == label and measure.key in row.figures
            ),
            key=lambda pair: pair[0],
        )
        if mine:
            axes.errorbar(
                [x + aside for x, _ in mine],
                [estimate.mean * measure.factor for _, estimate in mine],
                [(estimate.half or 0) * measure.factor for _, estimate in mine],
                color=colour(number),
                marker=MARKERS[number % len(MARKERS)],
                ls=LINES[number % len(LINES)],
                capsize=2,
                elinewidth=0.9,
                label=label,
            )
    if measure is COST:
        shares = {
            _number(row, along): share
            for row in rows
            if (share := summary.reference_share.get((row.trace, row.values))) is not None
        }
        xs = sorted(shares)
        axes.plot(xs, [100 * shares[x] for x in xs], color=REFERENCE, lw=1.6)
    axes.set_xlabel(_AXES.get(along.rpartition(".")[2], along))
    axes.set_xticks(places, [f"{x:g}" for x in places])


_AXES = {
    "gap": "mean time between arrivals, minutes",
    "pairwise": "throughput of a task beside one other, alone = 1",
    "delay_factor": "delays of moves, times what was measured",
    "multi_gpu": "share of jobs with several GPUs",
    "multi_task": "share of jobs with several tasks",
    "tasks": "tasks that are packed at once",
}


def _number(row: Row, key: str) -> float:
    number = _measured(dict(row.values)[key])
    assert number is not None, "this key is along the x axis"
    return number


_ROOM_FOR_VALUES = 112
"""The end of an axis of shares, so that the value of a full bar stays below the title."""


def _allocation(summary: Summary) -> Picture:
    labels = policies_of(summary)
    figure, axes = sheet(3.4, len(_RESOURCES))
    for panel, (key, name) in zip(axes, _RESOURCES, strict=True):
        for number, label in enumerate(labels):
            shares = [row.figures[key].mean for row in summary.rows if row.label == label]
            if shares:
                mean = 100 * sum(shares) / len(shares)
                panel.bar(number, mean, 0.8, color=colour(number), hatch=_hatch(number), ec="white")
                _value(panel, number, mean, f"{mean:.0f}")
        panel.set_title(name, fontsize=10)
        panel.set_ylim(0, _ROOM_FOR_VALUES)
        panel.set_yticks(range(0, 101, 20))
        panel.set_xticks(range(len(labels)), labels, rotation=40, ha="right", fontsize=8)
    axes[0].set_ylabel("allocated, % of what was up")
    caption = (
        "Of the GPUs, vCPUs and memory of all instances that were up, the part that tasks had been "
        "given; mean over all runs of a policy."
    )
    return Picture("allocation", "Allocation", caption, figure)


def _legend(figure: Figure, axes: Axes, labels: Sequence[str], bound: object) -> None:
    """One for all axes, above them."""
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    shown = [(handles[label], label) for label in labels if label in handles]
    if bound:
        shown.append((Line2D([], [], color=REFERENCE, lw=1.6), "reference bound"))
    figure.legend(
        [handle for handle, _ in shown],
        [label for _, label in shown],
        loc="outside upper center",
        ncols=min(len(shown), MOST_COLUMNS),
        fontsize=9,
    )
