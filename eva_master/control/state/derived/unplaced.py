"""The jobs of which a task waits for a place, found by what their tasks need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eva_master.model.catalog import InstanceType, is_spot
from eva_master.model.job import TaskSpec
from eva_master.model.records import Job
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, JobId
from eva_wire.values.states import TERMINAL_JOB, MarketRule

Demand = tuple[tuple[Family, Resources], ...]


@dataclass(frozen=True, slots=True)
class PlacementNeed:
    """Facts that decide where, and how soon, tasks of a job can run.

    Attributes:
        partition: Its partition.
        tenant: Its tenant, which may have a quota.
        priority: Its priority.
        demands: The different demands of its tasks, limited to families that may be bought for the
            job.
    """

    partition: str
    tenant: str
    priority: int
    demands: tuple[Demand, ...]


def needed(demand: Demand, kind: InstanceType) -> Resources | None:
    """Resources a task needs of an empty instance of a type; `None` if that has not as much."""
    need = next((need for family, need in demand if family == kind.family), None)
    return need if need is not None and need.fits(kind.capacity) else None


class Unplaced(dict[JobId, None]):
    """Jobs of which a task waits for a place, in the order in which they began to.

    They are grouped by their needs, so that what fits an instance is found by looking at each need
    once, however many jobs wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[PlacementNeed, dict[JobId, None]] = {}
        self._needs: dict[JobId, tuple[MarketRule, PlacementNeed]] = {}
        """Needs of jobs that have not ended, with the market that they were worked out for."""

    def follow(
        self,
        job: Job,
        kinds: Callable[[JobId], Sequence[TaskSpec]],
        *,
        priority: int,
        waits: bool,
    ) -> None:
        """Follow whether a plan should place a task of a job.

        Args:
            job: The job.
            kinds: Returns the tasks of a job that differ.
            priority: Its present priority, raised by jobs that wait for it.
            waits: Whether a task waits for a place.
        """
        entry = self._needs.get(job.id)
        same = entry is not None and _is_of(job, priority, *entry)
        if job.id in self and not (waits and same):
            assert entry is not None
            self._drop(job.id, entry[1])
        if job.state in TERMINAL_JOB:
            self._needs.pop(job.id, None)
        if not waits or job.id in self:
            return
        if entry is None or not same:
            entry = self._needs[job.id] = job.buys, _need(job, kinds(job.id), priority)
        self[job.id] = None
        self._jobs.setdefault(entry[1], {})[job.id] = None

    def by_need(self) -> Iterator[tuple[PlacementNeed, dict[JobId, None]]]:
        """Each need with the jobs that have it, in the order in which they began to wait."""
        yield from self._jobs.items()

    def _drop(self, job: JobId, need: PlacementNeed) -> None:
        del self[job]
        alike = self._jobs[need]
        del alike[job]
        if not alike:
            del self._jobs[need]


def _is_of(job: Job, priority: int, buys: MarketRule, need: PlacementNeed) -> bool:
    """Whether a need was worked out from what holds of a job now."""
    same = need.partition == job.partition and need.priority == priority
    return same and buys is job.buys


def _need(job: Job, kinds: Sequence[TaskSpec], priority: int) -> PlacementNeed:
    demands = dict.fromkeys(task.demand for task in kinds)
    if job.buys not in (MarketRule.ANY, MarketRule.APART):
        spot = job.buys is MarketRule.SPOT
        demands = dict.fromkeys(
            tuple(entry for entry in demand if is_spot(entry[0]) is spot) for demand in demands
        )
    return PlacementNeed(job.partition, job.spec.tenant, priority, tuple(demands))
