"""The report at the end of the demo: resumed jobs and the bill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from eva_client.cli.views import bills, shapes, tables
from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import money, share
from eva_master.app.demo.story import Picture, Resumption, figures


@dataclass(frozen=True)
class DemoReport:
    """The end of the demo.

    Attributes:
        last: The cluster at the end.
        resumptions: Of all jobs.
        places: The instance types on which each job's first task has run, by the job's name.
        took_s: From the start of the cluster until then.
        contained: Whether the tasks ran in containers.
    """

    last: Picture
    resumptions: tuple[Resumption, ...]
    places: Mapping[str, Sequence[str]]
    took_s: float
    contained: bool

    def shape(self) -> dict[str, Any]:
        """The report as ``--json`` prints it."""
        return {
            "took_s": round(self.took_s, 1),
            "runtime": "docker" if self.contained else "process",
            "bill": shapes.bill(self.last.bill),
            "jobs": [shapes.job(job) for job in self.last.jobs],
            "places": dict(self.places),
            "resumptions": [
                {**asdict(resumption), "continued": resumption.continued}
                for resumption in self.resumptions
            ],
        }

    def show(self) -> RenderableType:
        """The report as tables for a terminal."""
        return Group(
            Text("Moved, and resumed from a checkpoint", style="bold"),
            self._resumptions(),
            Text(),
            Text("The bill", style="bold"),
            self._jobs(),
            Text(),
            bills.totals(self.last.bill),
        )

    def _resumptions(self) -> RenderableType:
        texts = ("MOVE", "BEFORE THE STOP", "AFTER THE RESUME")
        table = Grid(
            *("JOB", "MOVE", "BEFORE THE STOP", "CHECKPOINT", "AFTER THE RESUME"), notes=texts
        )
        for job, group in groupby(self.resumptions, key=lambda resumption: resumption.job):
            resumed = list(group)
            ways = [" to ".join(move) for move in pairwise(self.places[job])]
            # A job that was moved before its first step, or failed, started more often.
            certain = len(ways) == len(resumed)
            shown = ways if certain else ["-"] * len(resumed)
            for resumption, way in zip(resumed, shown, strict=True):
                before, after = resumption.before or "-", resumption.after or "-"
                table.add_row(job, way, str(before), f"step {resumption.step:,}", str(after))
        return table

    def _jobs(self) -> RenderableType:
        table = Grid(
            *("JOB", "STATE", "MOVES", "COST", "NO PACKING", "SAVED", "FINAL METRICS"),
            right=("MOVES", "COST", "NO PACKING", "SAVED"),
            notes=("FINAL METRICS",),
        )
        for job in self.last.jobs:
            cost, alone = job.cost_micro_usd, job.no_packing_micro_usd
            table.add_row(
                job.name,
                tables.state(job.state),
                str(sum(task.moves for task in job.tasks)),
                money(cost),
                money(alone),
                share(alone - cost, alone),
                figures(job.tasks[0]),
            )
        return table
