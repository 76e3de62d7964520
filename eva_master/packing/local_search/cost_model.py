"""Weights of the terms in the cost of a configuration, and the cost of its moves.

Over a horizon H a configuration costs

    H * (prices + weight * throughput lost) + moves + launches

in dollars. Everything here is divided by H, so it is in millionths of micro-dollars per hour like
all values of packing, and whole: the cost of a configuration is a sum of terms that each depend on
one instance, one gang or one move, rounded down one by one, so that it can be kept up to date term
by term without a drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.model.planning.snapshot import RunView
from eva_master.packing.configuration.build import Host
from eva_master.packing.problem import Problem
from eva_master.packing.valuation.migration_cost import expected_migration_cost
from eva_wire.values.ids import MILLION, Exact, Millis, RunId

_PLACES_LAST_MS = 1_000
"""A task run is expected to stay where it is put for at least this long."""


@dataclass(frozen=True, slots=True)
class CostWeights:
    """Weights of the terms in the cost of a configuration.

    Attributes:
        horizon_ms: H, the time within which moves and launches are to pay.
        lost_ppm: Weight of the throughput lost to neighbours, in millionths. Throughput lost to a
            slow family counts in full: the task needs that much longer, at the full price.
        gang_lost_ppm: Weight of the throughput that gangs lose to neighbours, in millionths.
        moves_ppm: Weight of the cost of a move, in millionths.
        lasting_ppm: The next move of a task is to pay within this part of the time since its last
            one, in millionths, where that is shorter than the horizon.
        horizon_left: Whether a task's move is to pay within its remaining time, if that is known
            and shorter than the horizon.
    """

    horizon_ms: int = 3_600_000
    lost_ppm: int = 700_000
    gang_lost_ppm: int = 1_000_000
    moves_ppm: int = 500_000
    lasting_ppm: int = 500_000
    horizon_left: bool = False

    def pays_within_ms(self, since_ms: int) -> int:
        """Time within which the next move of a task is to pay.

        Args:
            since_ms: How long ago it was moved last.
        """
        lasting = since_ms * self.lasting_ppm // MILLION
        return min(max(lasting, _PLACES_LAST_MS), self.horizon_ms)

    def move_pays_within_ms(self, run: RunView, moved_ms: Millis | None, now: Millis) -> int:
        """Time within which the move of a task run is to pay.

        Args:
            run: The task run.
            moved_ms: When it was moved last; `None` if that is not remembered.
            now: The time.
        """
        within = self.horizon_ms if moved_ms is None else self.pays_within_ms(now - moved_ms)
        if not self.horizon_left or run.remaining is None:
            return within
        return min(within, max(run.remaining.goes_on_ms(now), _PLACES_LAST_MS))

    def per_hour(self, cost: Exact) -> int:
        """Spread a single payment over the horizon, in millionths of micro-dollars per hour."""
        return cost * MILLION // self.horizon_ms

    def counted(self, speed_ppm: int, company_ppm: int) -> int:
        """Progress of a gang's member as it counts in the cost, in millionths.

        Args:
            speed_ppm: Its speed on its family against the speed that the gang can use; counts in
                full.
            company_ppm: The part of that speed that it keeps beside its neighbours; the loss is
                weighted by `gang_lost_ppm`.
        """
        lost = speed_ppm * (MILLION - company_ppm) // MILLION
        return speed_ppm - lost * self.gang_lost_ppm // MILLION


def gang_loss(charge: int, slowest_ppm: int) -> int:
    """Loss of a gang through its member of least progress, see `CostWeights.counted`."""
    return charge * (MILLION - slowest_ppm)


class MoveCosts:
    """Cost of moving each running task run, and the gang that moves with it.

    A task run that moves holds its reservation price's worth of an instance idle while it is
    checkpointed and started again. A gang does so as a whole, however many of its members move.
    The move must pay within the horizon, or sooner for a task run that was moved a short time ago:
    its last place did not stay the better one for longer than that. For a gang, the time since the
    last move is that of its least recently moved member.

    Args:
        problem: The packing problem of the snapshot.
        terms: Weights of the costs.
        latest: Time of each task run's last move.

    Attributes:
        gang_of: The gang that a task run moves with, if it has more than one member.
        cost: Cost of moving a task run, or a gang by any of its members; absent if it does not run.
        home: Present place of every placed task run.
    """

    def __init__(
        self, problem: Problem, terms: CostWeights, latest: Mapping[RunId, Millis] | None = None
    ) -> None:
        latest, idle, pays = latest or {}, dict[str, int](), dict[str, int]()
        runs, now = problem.runs, problem.snapshot.now_ms
        whole = {job.id for job in problem.gangs}
        views = problem.snapshot.runs if whole else ()
        self.gang_of = {run.id: run.job for run in views if run.job in whole}
        self.home: Mapping[RunId, Host] = problem.standing.places
        prices = [task_class.price for task_class in problem.classes]
        running, change_ms = problem.placed.running, problem.cache.jobs(problem.snapshot).change_ms
        costs: dict[tuple[int, int], int] = {}  # by the time of a change and the price
        for run in self.home:
            job = running.get(run)
            if job is None:
                continue
            together: str = self.gang_of.get(run, run)
            key = change_ms[job], prices[problem.class_of[run]]
            cost = costs.get(key)
            if cost is None:
                cost = costs[key] = expected_migration_cost(problem.jobs[job], key[1])
            within = terms.horizon_ms
            if run in latest or terms.horizon_left:
                within = terms.move_pays_within_ms(runs[run], latest.get(run), now)
            if together in idle:
                cost, within = cost + idle[together], max(within, pays[together])
            idle[together], pays[together] = cost, within
        self.cost = {name: idle[name] * terms.moves_ppm // pays[name] for name in idle}

    def total(self, places: Mapping[RunId, Host]) -> int:
        """Cost of the moves of all task runs that are not at home."""
        moved = {
            self.gang_of.get(run, run)
            for run, home in self.home.items()
            if places.get(run, home) != home
        }
        return sum(self.cost.get(name, 0) for name in moved)
