"""Contenders for a fleet, and their remaining times on each of its types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from eva_master.model.catalog import Catalog
from eva_master.model.job import TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import replace
from eva_master.packing.between_places import between_places
from eva_master.packing.fleet.capacity import Fleet, fleet_of
from eva_master.packing.lp.least_time import Need
from eva_master.packing.precedence import precedence
from eva_master.packing.valuation.job_valuation import JobValuation, Paces
from eva_master.packing.valuation.reservation_price import Demand
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, InstanceId, RunId

NO_PACES = Paces(0, {})
UNKNOWN_MS = 3_600_000.0
"""How long a job is taken to run if nothing is known of any."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A unit that is placed, moved and suspended together: a gang, or a task of an array.

    Attributes:
        job: Its job.
        runs: All of its task runs that a plan may see.
        types: The types that have room for all of its task runs if they are empty.
        demand: Demand of all its task runs together, by type; types where one of them cannot run
            are left out.
        alone_ms: Its remaining time on each of these types, without any delay.
        left_ms: Its remaining time on its fastest type; if there is none, at its own pace.
        seated: Whether each of its task runs has a place, or is about to.
        unseen: Number of further waiting tasks of its array behind it that no plan sees yet.
        guessed: Whether its length is unknown, so that the median of the others is assumed.
        fixed: Whether it stays where it is in this round: part of it is about to start, stop or
            move, part has no place while the rest has one, or it has run for less than a lease.
        between: Whether no plan may give it a place, since part of it is between two places.
        paces: Speeds of its tasks on each type, even without room for all of them.
        apart: For a gang of different tasks, the least work of each kind of task; kinds of unknown
            rates are left out.
        member_ms: Remaining time of one member of an elastic gang by itself on each type; for all
            others equal to `alone_ms`.
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
        """Its remaining work, without unseen tasks, for a bound of the total time."""
        if self.apart or not self.alone_ms:
            return tuple(need for _, need in self.apart)
        return (Need(self.demand, {family: max(1.0, ms) for family, ms in self.alone_ms.items()}),)

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
        return self.job.delays.change_ms if running else 0


class Contenders:
    """Finds them; remembers what their tasks are worth while the catalog is the same."""

    def __init__(self) -> None:
        self._known: tuple[Catalog, JobValuation] | None = None

    def of(self, snapshot: Snapshot, lease_ms: int) -> tuple[Fleet, list[Contender]]:
        """Find the contenders for the fleet of a snapshot.

        Args:
            snapshot: The cluster.
            lease_ms: How long a place is kept.

        Returns:
            The fleet; and all units that could run there if it were empty and are nowhere else, by
            priority and submission.
        """
        fleet, valuation = fleet_of(snapshot), self._valuation(snapshot)
        places = {view.id for view in snapshot.instances}
        gangs = between_places(snapshot, places)
        runs: dict[str, list[RunView]] = {}
        for run in snapshot.runs:
            runs.setdefault(run.job, []).append(run)
        contenders, fits = [], dict[frozenset[tuple[Demand, int]], list[Family] | None]()
        for job in sorted(snapshot.jobs, key=precedence):
            every = list(_groups(job, runs.get(job.id, [])))
            stands_for = _last_that_waits(every) if job.array.unseen else None
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
                contender = _contender(snapshot, valuation, job, group, fleet)
                contender = replace(contender, types=tuple(types))
                seated = all(run.instance in places for run in group)
                between = torn or job.id in gangs
                unseen = job.array.unseen if group is stands_for else 0
                contenders.append(
                    replace(contender, seated=seated, unseen=unseen, fixed=fixed, between=between)
                )
        return fleet, _guessed(contenders)

    def _valuation(self, snapshot: Snapshot) -> JobValuation:
        if self._known is None or self._known[0] != snapshot.catalog:
            self._known = snapshot.catalog, JobValuation(snapshot.catalog)
        self._known[1].follow(snapshot.standalone)
        return self._known[1]


def _groups(job: JobView, runs: Sequence[RunView]) -> Iterable[Sequence[RunView]]:
    if job.spec.kind is JobKind.GANG:
        return [runs] if runs else []
    return [[run] for run in runs]


def _last_that_waits(groups: Sequence[Sequence[RunView]]) -> Sequence[RunView]:
    """The task most like the unseen tasks of its array: the one with most work."""
    waiting = [group for group in groups if group[0].instance is None]
    return max(waiting or groups, key=_left)


def _left(runs: Sequence[RunView]) -> tuple[int, RunId]:
    work = runs[0].remaining
    return (0 if work is None else work.at_since_ms), runs[0].id


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
    began = job.progress.lease_ms if job.spec.kind is JobKind.GANG else runs[0].running_since_ms
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
    paces = valuation.paces(tasks, split=job.spec.training.split_batch)
    # Without known rates all types count as equally fast.
    home = paces.home or 1
    work = next((run.remaining for run in runs if run.remaining is not None), None)
    rest_ms = UNKNOWN_MS if work is None else max(1.0, float(work.standalone_ms(snapshot.now_ms)))
    member = {family: rest_ms * home / (paces.on.get(family) or home) for family in demand}
    alone = {
        family: ms / _size_speed(job, demand[family], fleet.machines[family])
        for family, ms in member.items()
    }
    least = min(alone.values(), default=rest_ms)
    return Contender(
        job,
        tuple(runs),
        (),
        demand,
        alone,
        least,
        guessed=work is None,
        paces=paces,
        apart=tuple(_apart(valuation, job, runs, rest_ms * home, fleet)),
        member_ms=member,
    )


def _size_speed(job: JobView, demand: Resources, sizes: Iterable[Resources]) -> float:
    """Speed of the members of an elastic gang together, against one member; else 1.

    Args:
        job: Their job.
        demand: Demand of all of them on a type.
        sizes: Capacities of the machines of that type.
    """
    if job.sharing.elastic is None:
        return 1.0
    apart = not any(demand.fits(size) for size in sizes)
    return job.sharing.elastic.speed_ppm(len(job.runs), apart=apart) / MILLION


def _apart(
    valuation: JobValuation, job: JobView, runs: Sequence[RunView], work: float, fleet: Fleet
) -> Iterator[tuple[TaskSpec, Need]]:
    """Least work of each kind of task of a gang, if they differ.

    A gang is no faster than each of its tasks; if it divides batches, no faster than the fastest of
    them anywhere. A task of unknown rates slows no other.

    Args:
        valuation: Source of the rates.
        job: The gang.
        runs: Its task runs.
        work: Its remaining work, in millionths of iterations and seconds times 1,000.
        fleet: The fleet.
    """
    kinds = Counter(run.task for run in runs)
    if len(kinds) == 1:
        return
    own = {task: valuation.paces([task]).on for task in kinds}
    fastest = max((rate for rates in own.values() for rate in rates.values()), default=0)
    for task, rates_of in own.items():
        if not rates_of:
            continue
        demand = {
            family: need.times(kinds[task])
            for family in fleet.machines
            if (need := task.demand_on(family)) is not None
        }
        rates = dict.fromkeys(rates_of, fastest) if job.spec.training.split_batch else rates_of
        alone = {family: max(1.0, work / rates[family]) for family in demand if family in rates}
        if alone:
            yield task, Need({family: demand[family] for family in alone}, alone)


def _together(tasks: Sequence[TaskSpec], family: Family) -> Resources | None:
    """Demand of tasks on a type together; `None` if one of them cannot run there."""
    needs = [task.demand_on(family) for task in tasks]
    stated = [need for need in needs if need is not None]
    return sum(stated, NOTHING) if len(stated) == len(needs) else None


def _guessed(found: list[Contender]) -> list[Contender]:
    """Contenders with the median length of the others in place of an unknown one."""
    lengths = [contender.left_ms for contender in found if not contender.guessed]
    factor = (median(lengths) if lengths else UNKNOWN_MS) / UNKNOWN_MS
    return [_longer(contender, factor) if contender.guessed else contender for contender in found]


def _longer(one: Contender, factor: float) -> Contender:
    alone = {family: ms * factor for family, ms in one.alone_ms.items()}
    member = {family: ms * factor for family, ms in one.member_ms.items()}
    apart = tuple((task, _need_of(need, factor)) for task, need in one.apart)
    least = min(alone.values(), default=UNKNOWN_MS * factor)
    return replace(one, alone_ms=alone, left_ms=least, apart=apart, member_ms=member)


def _need_of(need: Need, factor: float) -> Need:
    return replace(need, alone_ms={family: ms * factor for family, ms in need.alone_ms.items()})
