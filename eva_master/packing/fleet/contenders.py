"""Who wants room of a fleet, and how long they would still take on each of its types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from eva_master.model.catalog import Catalog
from eva_master.model.ids import MILLION, Family, InstanceId, RunId
from eva_master.model.job import JobKind, TaskSpec
from eva_master.model.planning.snapshot import JobView, RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import replace
from eva_master.packing.between_places import between_places
from eva_master.packing.fleet.capacity import Fleet, fleet_of, times
from eva_master.packing.lp.least_time import Need
from eva_master.packing.precedence import precedence
from eva_master.packing.valuation.job_valuation import JobValuation, Paces
from eva_master.packing.valuation.reservation_price import Demand

NO_PACES = Paces(0, {})
UNKNOWN_MS = 3_600_000.0
"""How long a job is taken to run if nothing is known of any."""


@dataclass(frozen=True, slots=True)
class Contender:
    """What is placed, moved and suspended together: a gang, or a task of an array.

    Attributes:
        job: Of whom.
        runs: All of its task runs that a plan may see.
        types: The types that have room for all of them if they are empty.
        demand: What all of them need together, by type; types where one of them cannot run are left
            out.
        alone_ms: How long they would still take together on each of these, without any delay.
        left_ms: How long they would where they run best, or at all.
        seated: Whether each of its task runs has a place, or is about to.
        unseen: How many more tasks of its array wait behind it that no plan sees yet.
        guessed: Whether nothing is known of its length, so that others' is taken for it.
        fixed: Whether it stays where it is in this round: some of it is about to start, stop or
            move, has no place while the rest has one, or has run for less than a lease.
        between: Whether no plan may give it a place: some of it is between two places.
        paces: How fast its tasks are on each type, be there room for all of them or not.
        apart: Of a gang whose tasks differ, what each kind of them has to do by itself at least;
            kinds of unknown rates are left out.
        member_ms: How long one member of an elastic gang would still take by itself on each type;
            of all others what `alone_ms` has.
    """

    job: JobView
    runs: tuple[RunView, ...]
    types: tuple[Family, ...]
    demand: Mapping[Family, Resources]
    alone_ms: Mapping[Family, float]
    left_ms: float
    seated: bool = False
    unseen: int = 0
    guessed: bool = False
    fixed: bool = False
    between: bool = False
    paces: Paces = NO_PACES
    apart: tuple[tuple[TaskSpec, Need], ...] = ()
    member_ms: Mapping[Family, float] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[Need, ...]:
        """What is left of it, without what no plan sees, for the least total time of everybody."""
        if self.apart or not self.alone_ms:
            return tuple(need for _, need in self.apart)
        return (Need(self.demand, {it: max(1.0, ms) for it, ms in self.alone_ms.items()}),)

    @property
    def chooses(self) -> bool:
        """Whether this round decides where it is, or where the rest of it is."""
        return not self.between and not (self.fixed and self.seated)

    @property
    def id(self) -> RunId:
        """Its first task run, by which it is told from others."""
        return self.runs[0].id

    @property
    def move_ms(self) -> int:
        """How long it does not run while it moves, if it runs."""
        running = any(run.running for run in self.runs)
        return self.job.checkpoint_ms + self.job.launch_ms if running else 0


class Contenders:
    """Finds them; remembers what their tasks are worth while the catalog is the same."""

    def __init__(self) -> None:
        self._known: tuple[Catalog, JobValuation] | None = None

    def of(self, snapshot: Snapshot, lease_ms: int) -> tuple[Fleet, list[Contender]]:
        """Find who competes for the fleet of a snapshot.

        Args:
            snapshot: The cluster.
            lease_ms: For how long a place is kept.

        Returns:
            The fleet; and whoever could run there if it were empty and is nowhere else, by
            priority and submission.
        """
        fleet, valuation = fleet_of(snapshot), self._valuation(snapshot)
        places = {view.id for view in snapshot.instances}
        gangs = between_places(snapshot, places)
        runs: dict[str, list[RunView]] = {}
        for run in snapshot.runs:
            runs.setdefault(run.job, []).append(run)
        found, fits = [], dict[frozenset[tuple[Demand, int]], list[Family] | None]()
        for job in sorted(snapshot.jobs, key=precedence):
            every = list(_groups(job, runs.get(job.id, [])))
            stands_for = _last_that_waits(every) if job.unseen else None
            for group in every:
                on = {run.instance for run in group if run.instance in places}
                asked = frozenset(Counter(run.task.demand for run in group).items())
                if asked not in fits:
                    fits[asked] = fleet.types_for(group)
                types = fits[asked] if on <= fleet.live else None
                if types is None:
                    continue
                torn = any(run.pinned and run.instance not in places for run in group)
                fixed = torn or _stays(snapshot, job, group, lease_ms, places)
                one = _contender(snapshot, valuation, job, group, fleet)
                one = replace(one, types=tuple(types))
                seated = all(run.instance in places for run in group)
                between = torn or job.id in gangs
                unseen = job.unseen if group is stands_for else 0
                found.append(
                    replace(one, seated=seated, unseen=unseen, fixed=fixed, between=between)
                )
        return fleet, _guessed(found)

    def _valuation(self, snapshot: Snapshot) -> JobValuation:
        if self._known is None or self._known[0] != snapshot.catalog:
            self._known = snapshot.catalog, JobValuation(snapshot.catalog)
        self._known[1].follow(snapshot.standalone)
        return self._known[1]


def _groups(job: JobView, runs: Sequence[RunView]) -> Iterable[Sequence[RunView]]:
    if job.kind is JobKind.GANG:
        return [runs] if runs else []
    return [[run] for run in runs]


def _last_that_waits(groups: Sequence[Sequence[RunView]]) -> Sequence[RunView]:
    """The task that those of its array which no plan sees are most like: all of it is left."""
    waiting = [it for it in groups if it[0].instance is None]
    return max(waiting or groups, key=_left)


def _left(runs: Sequence[RunView]) -> tuple[int, RunId]:
    known = runs[0].remaining
    return (0 if known is None else known.at_since_ms), runs[0].id


def _stays(
    snapshot: Snapshot,
    job: JobView,
    runs: Sequence[RunView],
    lease_ms: int,
    places: set[InstanceId],
) -> bool:
    if any(run.pinned for run in runs):
        return True
    placed = [run for run in runs if run.instance in places]
    if len(placed) < len(runs) or not all(run.running for run in runs):
        return bool(placed)
    began = job.lease_ms if job.kind is JobKind.GANG else runs[0].running_since_ms
    return began is not None and snapshot.now_ms - began < lease_ms


def _contender(
    snapshot: Snapshot,
    valuation: JobValuation,
    job: JobView,
    runs: Sequence[RunView],
    fleet: Fleet,
) -> Contender:
    tasks = [run.task for run in runs]
    demand = {
        family: need for family in fleet.machines if (need := _together(tasks, family)) is not None
    }
    paces = valuation.paces(tasks, split=job.split_batch)
    # Where nothing is known of the rates all types are equally fast.
    home = paces.home or 1
    known = next((run.remaining for run in runs if run.remaining is not None), None)
    left = UNKNOWN_MS if known is None else max(1.0, float(known.left_ms(snapshot.now_ms)))
    member = {family: left * home / (paces.on.get(family) or home) for family in demand}
    alone = {
        family: ms / _size_speed(job, demand[family], fleet.machines[family])
        for family, ms in member.items()
    }
    least = min(alone.values(), default=left)
    return Contender(
        job,
        tuple(runs),
        (),
        demand,
        alone,
        least,
        guessed=known is None,
        paces=paces,
        apart=tuple(_apart(valuation, job, runs, left * home, fleet)),
        member_ms=member,
    )


def _size_speed(job: JobView, demand: Resources, sizes: Iterable[Resources]) -> float:
    """How fast the members of an elastic gang are together, against one member; else 1.

    Args:
        job: Whose.
        demand: What all of them need on a type.
        sizes: Of the machines of that type.
    """
    if job.elastic is None:
        return 1.0
    apart = not any(demand.fits(size) for size in sizes)
    return job.elastic.speed_ppm(len(job.runs), apart=apart) / MILLION


def _apart(
    valuation: JobValuation, job: JobView, runs: Sequence[RunView], work: float, fleet: Fleet
) -> Iterator[tuple[TaskSpec, Need]]:
    """What each kind of tasks of a gang has to do at least, if they are not alike.

    A gang is no faster than each of its tasks; one that divides batches no faster than the fastest
    of them anywhere. A task of unknown rates holds nobody up.

    Args:
        valuation: Knows the rates.
        job: The gang.
        runs: Its task runs.
        work: What is left of it, in millionths of iterations and seconds times 1,000.
        fleet: What there is.
    """
    kinds = Counter(run.task for run in runs)
    if len(kinds) == 1:
        return
    own = {task: valuation.paces([task]).on for task in kinds}
    fastest = max((rate for rates in own.values() for rate in rates.values()), default=0)
    for task, known in own.items():
        if not known:
            continue
        demand = {
            family: times(need, kinds[task])
            for family in fleet.machines
            if (need := task.demand_on(family)) is not None
        }
        rates = dict.fromkeys(known, fastest) if job.split_batch else known
        alone = {it: max(1.0, work / rates[it]) for it in demand if it in rates}
        if alone:
            yield task, Need({it: demand[it] for it in alone}, alone)


def _together(tasks: Sequence[TaskSpec], family: Family) -> Resources | None:
    """What tasks need on a type together; `None` if one of them cannot run there."""
    needs = [task.demand_on(family) for task in tasks]
    found = [need for need in needs if need is not None]
    return sum(found, NOTHING) if len(found) == len(needs) else None


def _guessed(found: list[Contender]) -> list[Contender]:
    """Those of whose length nothing is known are taken to be as long as half of the others are."""
    known = [it.left_ms for it in found if not it.guessed]
    factor = (median(known) if known else UNKNOWN_MS) / UNKNOWN_MS
    return [_longer(it, factor) if it.guessed else it for it in found]


def _longer(one: Contender, factor: float) -> Contender:
    alone = {family: ms * factor for family, ms in one.alone_ms.items()}
    member = {family: ms * factor for family, ms in one.member_ms.items()}
    apart = tuple((task, _need_of(need, factor)) for task, need in one.apart)
    least = min(alone.values(), default=UNKNOWN_MS * factor)
    return replace(one, alone_ms=alone, left_ms=least, apart=apart, member_ms=member)


def _need_of(need: Need, factor: float) -> Need:
    return replace(need, alone_ms={family: ms * factor for family, ms in need.alone_ms.items()})
