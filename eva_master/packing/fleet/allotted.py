"""Plans of policies that say how many members of each gang run, elastic or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.planning.plan import Plan, Resize
from eva_master.model.planning.sizes import resizable, with_sizes
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.values import replace
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.capacity import Fleet
from eva_master.packing.fleet.contenders import Contender, Contenders
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.turns import turn_plan, unplaced
from eva_master.packing.toolkit import PlannerCache, open_instances
from eva_wire.values.ids import JobId, RunId

_TRIES = 4
"""So often gangs that find no room are tried with half as many members."""


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Range of sizes for a contender.

    Attributes:
        one: The contender at its present size, or at its least.
        least: Fewest members. most: Most members; a gang of a fixed size, or a task, counts as one.
        gpus: GPUs of a member, on the type where it takes most.
        elastic: Whether the number of its members may be chosen now.
        keeps: Whether it keeps its present places in this round.
    """

    one: Contender
    least: int
    most: int
    gpus: int
    elastic: bool
    keeps: bool

    @property
    def id(self) -> RunId:
        """The id of its contender."""
        return self.one.id

    @property
    def tenant(self) -> str:
        """The tenant that it is accounted to."""
        return self.one.job.spec.tenant

    @property
    def now(self) -> int:
        """Number of members that have a place."""
        if not self.one.seated:
            return 0
        return len(self.one.runs) if self.one.job.sharing.elastic is not None else 1

    @property
    def came(self) -> tuple[int, int, str]:
        """Sort key by priority and arrival."""
        return -self.one.job.priority, self.one.job.submitted_ms, self.id


Allot = Callable[[Fleet, Sequence[SizeRange]], Mapping[RunId, int]]
"""Says how many members of each contender run, by claims in the order in which they are to find
room; one that is not mentioned waits."""


class Allotted:
    """Makes plans by numbers of members.

    Args:
        lease_s: For how long a place is kept.
    """

    def __init__(self, lease_s: int) -> None:
        self._lease_s = lease_s
        self._cache = PlannerCache()
        self._contenders = Contenders()

    def plan(self, snapshot: Snapshot, allot: Allot, why: str, *, explained: bool) -> Plan:
        """Make the plan of a round.

        Args:
            snapshot: The cluster.
            allot: Function that gives the number of members to run. Claims that keep their places
                are passed to it too.
            why: Reason for the contenders that get nothing.
            explained: Whether to give reasons that decide nothing.
        """
        small = smallest(snapshot)
        fleet, contenders = self._contenders.of(small, 1000 * self._lease_s)
        open_jobs = {job.id for job in resizable(snapshot)}
        claims = [_claim(contender, fleet, open_jobs) for contender in contenders]
        members = dict(allot(fleet, claims))
        by_id = {claim.id: claim for claim in claims}
        for _ in range(_TRIES):
            seated = self._seated(snapshot, fleet, by_id, members)
            if not seated.failed:
                break
            for name in seated.failed:
                half = members[name] // 2
                members[name] = half if half >= by_id[name].least else 0
        whys = dict.fromkeys(
            (contender.id for contender in unplaced(seated.contenders, seated.instances)), why
        )
        plan = turn_plan(
            seated.snapshot,
            seated.instances,
            seated.contenders,
            whys,
            explained=explained,
            lease_s=self._lease_s,
        )
        return replace(plan, sizes=_resizes(snapshot, seated.sizes))

    def _seated(
        self,
        snapshot: Snapshot,
        fleet: Fleet,
        claims: Mapping[RunId, SizeRange],
        members: Mapping[RunId, int],
    ) -> _Seated:
        sizes = {
            claims[name].one.job.id: count
            for name, count in members.items()
            if count and claims[name].elastic and not claims[name].keeps
        }
        resized = with_sizes(snapshot, sizes)
        runs: dict[str, list[RunView]] = {}
        for run in resized.runs:
            runs.setdefault(run.job, []).append(run)
        jobs = {job.id: job for job in resized.jobs}
        contenders = {
            name: replace(claim.one, job=jobs[claim.one.job.id], runs=tuple(runs[claim.one.job.id]))
            if claim.one.job.sharing.elastic is not None
            else claim.one
            for name, claim in claims.items()
        }
        instances = open_instances(resized, self._cache)
        had = [
            replace(
                contender, runs=tuple(run for run in contender.runs if run.id in instances.row_of)
            )
            for contender in contenders.values()
        ]
        seats = Seats(resized, instances, had)
        failed = _seat(seats, fleet, claims, contenders, members)
        return _Seated(resized, instances, tuple(contenders.values()), sizes, tuple(failed))


@dataclass(frozen=True, slots=True)
class _Seated:
    snapshot: Snapshot
    instances: OpenInstances
    contenders: tuple[Contender, ...]
    sizes: Mapping[JobId, int]
    failed: tuple[RunId, ...]


def _seat(
    seats: Seats,
    fleet: Fleet,
    claims: Mapping[RunId, SizeRange],
    contenders: Mapping[RunId, Contender],
    members: Mapping[RunId, int],
) -> list[RunId]:
    """Seat contenders, first those that stay as they are; return those without room."""
    chosen = [name for name, count in members.items() if count and not claims[name].keeps]
    stay = {name for name in chosen if claims[name].now == members[name]}
    for name in chosen:
        if name in stay and not seats.back(contenders[name]):
            stay.discard(name)
    failed = []
    for name in chosen:
        contender = contenders[name]
        if name in stay or not contender.chooses:
            continue
        order = sorted(contender.alone_ms, key=lambda it: (contender.alone_ms[it], it))
        every = (*order, *(family for family in fleet.machines if family not in order))
        if not any(
            seats.on(contender, types) for types in (*((family,) for family in order), every)
        ):
            failed.append(name)
    return failed


def _claim(one: Contender, fleet: Fleet, open_jobs: set[JobId]) -> SizeRange:
    elastic = one.job.sharing.elastic if one.job.id in open_jobs else None
    keeps = one.fixed or one.between
    if elastic is None:
        gpus = max((need.gpus for need in one.demand.values()), default=0)
        if one.job.sharing.elastic is not None and one.runs:
            gpus //= len(one.runs)
        size = len(one.runs) if one.job.sharing.elastic is not None else 1
        return SizeRange(one, size, size, gpus, elastic=False, keeps=keeps)
    needs = [
        (family, need) for family in fleet.machines if (need := one.runs[0].task.demand_on(family))
    ]
    rooms = [fleet.seats(family, need) for family, need in needs]
    room = elastic.most if None in rooms else sum(seats for seats in rooms if seats is not None)
    gpus = max((need.gpus for _, need in needs), default=0)
    most = max(elastic.least, min(elastic.most, room))
    return SizeRange(one, elastic.least, most, gpus, elastic=True, keeps=keeps)


def smallest(snapshot: Snapshot) -> Snapshot:
    """The cluster with elastic gangs that have no place at their least sizes."""
    placed = {run.job for run in snapshot.runs if run.instance is not None}
    least = {
        job.id: job.sharing.elastic.least
        for job in resizable(snapshot)
        if job.sharing.elastic is not None and job.id not in placed
    }
    return with_sizes(snapshot, least)


def _resizes(snapshot: Snapshot, sizes: Mapping[JobId, int]) -> tuple[Resize, ...]:
    before = {job.id: len(job.runs) for job in snapshot.jobs}
    return tuple(
        Resize(job, size, "there is room for more" if size > before[job] else "others have room")
        for job, size in sorted(sizes.items())
        if size != before[job]
    )
