"""Refuses a second spelling of a figure that one module owns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.checks.figures import code_lines
from tests.checks.sources import python_files

_FOLDERS = ("eva_lab", "eva_master", "eva_policies")
"""Folders of the code that plans, books, shows and simulates."""


@dataclass(frozen=True, slots=True)
class Owned:
    """A figure with its owners.

    Attributes:
        figure: Its meaning.
        spelling: A pattern of the code that works it out.
        owners: Files that may; the first one is for all others.
    """

    figure: str
    spelling: re.Pattern[str]
    owners: tuple[str, ...]


OWNED = (
    Owned(
        "room left on an instance",
        re.compile(r"\b(offering|kind|machine)(\.type)?\.capacity - "),
        ("eva_master/packing/room.py",),
    ),
    Owned(
        "instances left of an offering",
        re.compile(
            r"\.limit - |\.limit\[?.* - used|\.limit is None or .* < |>= (offering|sold)\.limit"
        ),
        ("eva_master/packing/room.py",),
    ),
    Owned(
        "where task runs are after a plan",
        re.compile(r"places\[entry\.run\] = None"),
        ("eva_master/packing/room.py",),
    ),
    Owned(
        "since when a record is in its state",
        re.compile(r"history\[-1\]\[1\]"),
        ("eva_master/model/records.py",),
    ),
    Owned(
        "time that a record has spent in a state, waiting or running",
        re.compile(r"zip\(\w+(\.\w+)*\.history"),
        ("eva_wire/values/states.py",),
    ),
    Owned(
        "delay of a start, a stop or a boot",
        re.compile(r"\b(lookup|slowest|look_up)\((Delay\.|kind, )|\.delays\.(lookup|slowest)\b"),
        ("eva_master/packing/valuation/delays.py", "eva_master/learning/delays.py"),
    ),
    Owned(
        "time that a change takes",
        re.compile(r"checkpoint_ms [+-] .*launch_ms|launch_ms [+-] .*checkpoint_ms"),
        ("eva_master/model/planning/job_view.py",),
    ),
    Owned(
        "cost of a change",
        re.compile(r"\* \w+(\.\w+)*\.delays\.(change|checkpoint|launch)_ms|\* job\.delays\."),
        ("eva_master/packing/valuation/migration_cost.py",),
    ),
    Owned(
        "time until work is done",
        re.compile(r"(standalone_ms|rest_ms).*// .*\.pace_ppm"),
        ("eva_master/model/planning/snapshot.py",),
    ),
    Owned(
        "price per hour of instances",
        re.compile(
            r"sum\((instance|record|live|state\.instances\[.*\])\.offering\.price"
            r"|\+= (instance|record|live)\.offering\.price"
        ),
        ("eva_master/model/accounting/per_hour.py",),
    ),
    Owned(
        "money spent this month",
        re.compile(r"\.month_charged if \w+\.month_ms == "),
        ("eva_master/control/measure/ledger.py",),
    ),
)


def faults(root: Path) -> Iterator[str]:
    """One line per place that works out a figure of another module."""
    for path in python_files(root, _FOLDERS):
        for line in code_lines(path, root):
            for owned in OWNED:
                if line.path not in owned.owners and owned.spelling.search(line.text):
                    yield (
                        f"{line.path}:{line.number}: {owned.figure} is worked out here; "
                        f"ask {owned.owners[0]}"
                    )
