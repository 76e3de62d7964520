"""The style of figures: colours that colour-blind people can tell apart, markers and hatches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours without yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#555555", "#8C5109")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
REFERENCE = "#000000"
MOST_COLUMNS = 7
"""Font size of a legend."""
WIDTH = 9.0
"""Width of a figure, in inches."""

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "eva",
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the report.

    Attributes:
        name: Name of its file, without suffix.
        title: Title above it.
        caption: Explanation of the figure.
    """

    name: str
    title: str
    caption: str
    figure: Figure


@contextmanager
def styled() -> Iterator[None]:
    """A context manager for the style of figures."""
    with mpl.rc_context(_STYLE):
        yield


def sheet(height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure with axes in rows."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [panel for row in axes for panel in row]


def colour(number: int) -> str:
    """The colour of the policy at this index."""
    return COLOURS[number % len(COLOURS)]


def fit_labels(axes: Axes, labels: Sequence[str]) -> None:
    """Label the ticks of the x axis, slanted if they would overlap."""
    crowded = sum(map(len, labels)) > 70
    axes.set_xticks(
        range(len(labels)),
        labels,
        rotation=25 if crowded else 0,
        ha="right" if crowded else "center",
    )
