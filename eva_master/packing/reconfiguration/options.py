"""Configurations that could be adopted, compared and told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.planning.plan import Assign, Hold, Plan, PlanEntry
from eva_master.model.planning.reasons import Alternative, Reasons, Weighing
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.configuration.build import (
    NO_TOTALS,
    Configuration,
    Sums,
    Totalled,
    sums,
)
from eva_master.packing.problem import Problem
from eva_master.packing.reconfiguration.reconfiguration_cost import (
    moved,
    net_value,
    reconfiguration_cost,
)
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, RunId, micro_usd

Figures = dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Option:
    """A configuration that could be adopted.

    Attributes:
        kind: ``keep``, ``partial``, ``full`` or ``search``.
        sums: Its totals.
        cost: M, in micro-dollars per hour times milliseconds.
        moves: The running task runs that have to move.
    """

    kind: str
    configuration: Configuration
    sums: Sums
    cost: int
    moves: Sequence[RunView]

    @property
    def savings(self) -> int:
        """S, in millionths of micro-dollars per hour."""
        return self.sums.savings

    def value(self, horizon: int) -> int:
        """S D̂ - M for a horizon in milliseconds."""
        return net_value(self.savings, horizon, self.cost)


def option(
    kind: str,
    problem: Problem,
    present: Configuration,
    configuration: Configuration,
    known: Totalled = NO_TOTALS,
) -> Option:
    """Work out what a configuration saves and costs; of others that are `known`, see `sums`."""
    moves = moved(problem, configuration)
    return Option(
        kind,
        configuration,
        sums(problem, configuration, known),
        reconfiguration_cost(problem, present, configuration, moves),
        moves,
    )


def settled(problem: Problem) -> list[RunView]:
    """Task runs with a place that may be moved."""
    return [
        run for run in problem.snapshot.runs if not run.pinned and run.instance in problem.instances
    ]


def weighing(problem: Problem, options: Mapping[str, Option], chosen: Option) -> Weighing:
    """The options and the size of the chosen one, for the record."""
    configuration, whole = chosen.configuration, chosen.sums
    micro_usd_per_hour = whole.price + whole.lost // MILLION
    return Weighing(
        chosen=chosen.kind,
        alternatives=tuple(
            Alternative(each.kind, each.savings // MILLION, micro_usd(each.cost), len(each.moves))
            for each in options.values()
        ),
        cost_micro_usd_per_hour=micro_usd_per_hour,
        classes=len(problem.classes),
        tasks=len(configuration.places),
        instances=len(configuration.task_sets),
    )


def plan_of(
    problem: Problem, configuration: Configuration, figures: Figures, reasons: Reasons
) -> Plan:
    """The plan that makes a configuration of the present one."""
    present = problem.placed.instances
    entries: list[PlanEntry] = [
        Assign(run, host) for run, host in configuration.places.items() if host != present[run]
    ]
    entries.extend(Hold(run, reason) for run, reason in configuration.unplaced.items())
    entries.sort(key=_run)
    return Plan(configuration.launches, tuple(entries), figures, reasons)


def _run(entry: PlanEntry) -> RunId:
    return entry.run


def figures_of(before: Sums, options: Mapping[str, Option], chosen: Option) -> Figures:
    """Figures of every option considered, and of the chosen one; totals of the present first."""
    figures: Figures = {
        "kind": chosen.kind,
        "moves": len(chosen.moves),
        "price_before_usd_per_hour": before.price / MILLION,
        "price_after_usd_per_hour": chosen.sums.price / MILLION,
    }
    for kind, each in options.items():
        figures[f"savings_{kind}_usd_per_hour"] = each.savings / MILLION / MILLION
        figures[f"migration_cost_{kind}_usd"] = each.cost / MILLIS_PER_HOUR / MILLION
    return figures
