"""How figures look: colours that the colour-blind can tell apart, markers and hatches besides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours; yellow is left out, it is too pale for lines.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#555555", "#8C5109")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
REFERENCE = "#000000"
MOST_COLUMNS = 7
"""Of a legend."""
WIDTH = 9.0
"""Of a figure, in inches."""

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
        name: Of its file, without suffix.
        title: Above it.
        caption: What it shows and how to read it.
    """

    name: str
    title: str
    caption: str
    figure: Figure


@contextmanager
def styled() -> Iterator[None]:
    """A context in which figures are made."""
    with mpl.rc_context(_STYLE):
        yield


def sheet(height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure with one or more systems of axes, row by row."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [one for row in axes for one in row]


def colour(number: int) -> str:
    """Of the policy with this place in the list."""
    return COLOURS[number % len(COLOURS)]


def fit_labels(axes: Axes, labels: Sequence[str]) -> None:
    """Name the ticks of the x axis, slanted where they would run into each other."""
    crowded = sum(map(len, labels)) > 70
    axes.set_xticks(
        range(len(labels)),
        labels,
        rotation=25 if crowded else 0,
        ha="right" if crowded else "center",
    )
