"""What counts how much in the cost of a configuration, and what its moves cost.

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

from eva_master.model.ids import MILLION, Exact, Millis, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.configuration.build import Host
from eva_master.packing.problem import Problem
from eva_master.packing.valuation.migration_cost import expected_migration_cost

_PLACES_LAST_MS = 1_000
"""A task run is expected to stay where it is put for at least this long."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What counts how much.

    Attributes:
        horizon_ms: H, over which moves and launches are to pay.
        lost_ppm: Weight of the throughput lost to neighbours, in millionths. Throughput lost to a
            slow family counts in full: the task needs that much longer, at the full price.
        gang_lost_ppm: The same of what gangs lose to neighbours.
        moves_ppm: Weight of the cost of a move, in millionths.
        lasting_ppm: The next move of a task is to pay within this part of the time since its last
            one, in millionths, where that is shorter than the horizon.
        horizon_left: Whether the move of a task is to pay within what it has left, if it is known
            and shorter than the horizon.
    """

    horizon_ms: int = 3_600_000
    lost_ppm: int = 700_000
    gang_lost_ppm: int = 1_000_000
    moves_ppm: int = 500_000
    lasting_ppm: int = 500_000
    horizon_left: bool = False

    def pays_within_ms(self, since_ms: int) -> int:
        """Within which time the next move of a task is to pay.

        Args:
            since_ms: How long ago it was moved last.
        """
        lasting = since_ms * self.lasting_ppm // MILLION
        return min(max(lasting, _PLACES_LAST_MS), self.horizon_ms)

    def move_pays_within_ms(self, run: RunView, moved_ms: Millis | None, now: Millis) -> int:
        """Within which time the move of a task run is to pay.

        Args:
            run: Which runs.
            moved_ms: When it was moved last; `None` if nobody remembers.
            now: The time.
        """
        within = self.horizon_ms if moved_ms is None else self.pays_within_ms(now - moved_ms)
        if not self.horizon_left or run.remaining is None:
            return within
        return min(within, max(run.remaining.left_ms(now), _PLACES_LAST_MS))

    def per_hour(self, cost: Exact) -> int:
        """Spread what is paid once over the horizon, in millionths of micro-dollars per hour."""
        return cost * MILLION // self.horizon_ms

    def counted(self, speed_ppm: int, company_ppm: int) -> int:
        """How far a gang's member counts as getting on, in millionths.

        Args:
            speed_ppm: Its speed on its family against what the gang can use; counts in full.
            company_ppm: What it achieves of that beside its neighbours; the loss counts by
                `gang_lost_ppm`.
        """
        lost = speed_ppm * (MILLION - company_ppm) // MILLION
        return speed_ppm - lost * self.gang_lost_ppm // MILLION


def gang_loss(charge: int, slowest_ppm: int) -> int:
    """What a gang loses by the member that counts for least, see `Terms.counted`."""
    return charge * (MILLION - slowest_ppm)


class MoveCosts:
    """What moving each running task run costs, and whose gang moves with it.

    A task run that moves holds its reservation price's worth of an instance idle while it is
    checkpointed and started again. A gang does so as a whole, however many of its members move.
    The move must pay within the horizon, or sooner for a task run that was moved a short time ago:
    its last place did not stay the better one for longer than that. For a gang, the time since the
    last move is that of its least recently moved member.

    Args:
        problem: The snapshot's.
        terms: What counts how much.
        latest: When task runs were moved last.

    Attributes:
        gang_of: The gang that a task run moves with, if it has more than one member.
        cost: Of moving a task run, or a gang by any of its members; absent if it does not run.
        home: Where every placed task run is now.
    """

    def __init__(
        self, problem: Problem, terms: Terms, latest: Mapping[RunId, Millis] | None = None
    ) -> None:
        self.gang_of: dict[RunId, str] = {}
        self.home: dict[RunId, Host] = {}
        latest, idle, pays = latest or {}, dict[str, int](), dict[str, int]()
        now = problem.snapshot.now_ms
        whole = {
            job.id
            for job in problem.snapshot.jobs
            if job.spec.kind is JobKind.GANG and job.runs[1:]
        }
        for run in problem.snapshot.runs:
            if run.instance is None or run.instance not in problem.instances:
                if run.job in whole:
                    self.gang_of[run.id] = run.job
                continue
            self.home[run.id] = run.instance
            together: str = run.id
            if run.job in whole:
                together = self.gang_of[run.id] = run.job
            if run.running:
                job, number = problem.jobs[run.job], problem.class_of[run.id]
                cost = expected_migration_cost(job, problem.classes[number].price)
                idle[together] = idle.get(together, 0) + cost
                within = terms.move_pays_within_ms(run, latest.get(run.id), now)
                pays[together] = max(within, pays.get(together, 0))
        self.cost = {name: idle[name] * terms.moves_ppm // pays[name] for name in idle}

    def total(self, places: Mapping[RunId, Host]) -> int:
        """What the moves of all task runs that are not at home cost."""
        moved = {
            self.gang_of.get(run, run)
            for run, home in self.home.items()
            if places.get(run, home) != home
        }
        return sum(self.cost.get(name, 0) for name in moved)
