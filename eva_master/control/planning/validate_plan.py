"""From a plan to what is to change, checked against what is true now.

A plan was made from a snapshot that may be old by the time it arrives. Whatever of it no longer
holds is dropped, a gang's entries together; the next round sees to the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from eva_master.control.planning.validate_standing import Chosen, pilots_there, stated
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.job_view import Sharing
from eva_master.model.planning.plan import (
    Assign,
    ExtraRun,
    Hold,
    NewInstance,
    Plan,
    Resize,
    Retire,
    Suspend,
)
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import by_id, quick
from eva_master.packing.room import Place, by_offering
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, OfferingId, RunId, own_run


@quick
@dataclass(frozen=True, slots=True)
class Decision:
    """The valid part of a plan.

    Attributes:
        launches: New instances, each with at least one task run in `places` or in a pool.
        places: Task runs that get a new target.
        holds: Task runs that wait, with the reason.
        suspends: Task runs to stop, which then wait. Their room may have been given away in
            `places`; the new task runs start once they have stopped.
        dropped: Task runs whose entries no longer hold.
        pools: All pools to have.
        lines: All lines to have.
        sizes: Elastic gangs that get another number of members.
        extras: Extra runs that begin, each with its place.
        retires: Extra runs that are to be stopped.
        pilots: Pilots by their indexes, whose run times are measured for the others of their jobs.
    """

    launches: tuple[NewInstance, ...]
    places: tuple[tuple[RunId, Place], ...]
    holds: tuple[tuple[RunId, str], ...]
    suspends: tuple[Suspend, ...]
    dropped: tuple[RunId, ...]
    pools: tuple[Pool, ...] = ()
    lines: tuple[Line, ...] = ()
    sizes: tuple[Resize, ...] = ()
    extras: tuple[ExtraRun, ...] = ()
    retires: tuple[Retire, ...] = ()
    pilots: Chosen = ()


NOTHING_DECIDED = Decision((), (), (), (), ())


def reconcile(now: Snapshot, plan: Plan, ordered: Collection[InstanceId] = ()) -> Decision:
    """Check a plan against the present.

    Args:
        now: The cluster at present, not as the policy saw it.
        plan: The policy's answer.
        ordered: Instances that an operator has drained.

    Returns:
        The part of the plan that can be carried out: no instance over capacity, no offering over
        its limit or out of stock, gangs whole, no task run in transition moved or suspended. No
        task run is suspended for others that do not come after all, and no two runs of a task share
        an instance.
    """
    check = _Check(now, plan)
    units = check.units()
    spared: set[RunId] = set()
    while True:
        while (overfull := check.overfull(units)) is not None:
            # The youngest unit on the first overfull place gives way, until everything fits: each
            # step removes one, so this ends.
            units = {key: unit for key, unit in units.items() if key != overfull}
        if not (in_vain := check.suspended_in_vain(units)):
            break
        check.spare(in_vain)  # units that counted on their room may have to give way in turn
        spared |= in_vain
    placed = dict(pair for unit in units.values() for pair in unit)
    used = {where for where in placed.values() if isinstance(where, int)}
    runs_by_id = check.runs
    standing = stated(now, plan, ordered, used)
    used |= standing.bought
    extras = check.lawful_extras(placed, used)
    return Decision(
        launches=tuple(launch for launch in plan.launches if launch.key in used),
        places=tuple(
            (run, where) for run, where in placed.items() if runs_by_id[run].instance != where
        ),
        holds=tuple(
            (entry.run, entry.reason)
            for entry in plan.entries
            if isinstance(entry, Hold) and entry.run in runs_by_id
        ),
        suspends=tuple(check.suspends.values()),
        dropped=tuple(
            entry.run
            for entry in plan.entries
            if (isinstance(entry, Assign) and entry.run not in placed)
            or entry.run in spared
            or (isinstance(entry, ExtraRun) and entry not in extras and not check.forked(entry))
        ),
        pools=standing.pools,
        lines=standing.lines,
        extras=extras,
        retires=check.lawful_retires(),
        pilots=pilots_there(plan.pilots, now.jobs),
    )


Unit = tuple[tuple[RunId, Place], ...]


class _Check:
    """The present, indexed for the questions that a plan raises.

    Attributes:
        runs: All task runs, by id.
        suspends: The suspensions that can be carried out, by task run.
    """

    def __init__(self, now: Snapshot, plan: Plan) -> None:
        self.runs = by_id(now.runs)
        self._jobs = by_id(now.jobs)
        self._offerings: dict[Place, Offering] = {v.id: v.offering for v in now.instances}
        self._on_sale = {offering.id: offering for offering in now.catalog}
        self._now = now
        self._plan = plan
        for launch in plan.launches:
            sold = self._on_sale.get(launch.offering.id)
            owned = sold is not None and sold.purchase is Purchase.OWNED
            if sold is not None and sold.available(now.now_ms) and not owned:
                self._offerings[launch.key] = launch.offering
        self.suspends = self._lawful_suspends()
        self._retired = {entry.run for entry in self.lawful_retires()}

    def _lawful_suspends(self) -> dict[RunId, Suspend]:
        """Valid suspensions: of task runs that are not in transition, and of whole gangs only."""
        suspensions = {
            entry.run: entry
            for entry in self._plan.entries
            if isinstance(entry, Suspend)
            and (view := self.runs.get(entry.run)) is not None
            and not view.pinned
        }
        return {
            run: entry
            for run, entry in suspensions.items()
            if all(map(suspensions.get, self._mates(run)))
        }

    def forked(self, entry: ExtraRun) -> bool:
        """Whether an extra run is a fork; one that has no room leaves its job's own run alone."""
        view = self.runs.get(entry.run)
        return view is not None and self._jobs[view.job].sharing.forks is not None

    def lawful_extras(
        self, placed: Mapping[RunId, Place], bought: Collection[int]
    ) -> tuple[ExtraRun, ...]:
        """Valid extra runs: of tasks that may have one more, with room beside all others.

        No two runs of a task share an instance. No instance is launched for an extra run: no limit
        of launches counts it. A running task of an array gets one at a time; the other runs of a
        forked job are all alike.
        """
        wished = [entry for entry in self._plan.entries if isinstance(entry, ExtraRun)]
        if not wished:
            return ()
        load = dict(
            self._load(placed, {entry.on for entry in wished if entry.on in self._offerings})
        )
        more = {job: _extra_runs_left(view.sharing) for job, view in self._jobs.items()}
        runs = self.runs.values()
        occupied = {(own_run(view.id), placed.get(view.id, view.instance)) for view in runs}
        begun: set[RunId] = set()
        accepted = []
        for entry in wished:
            view, offering = self.runs.get(entry.run), self._offerings.get(entry.on)
            if view is None or offering is None or not more[view.job]:
                continue
            if self.forked(entry):
                allowed = isinstance(entry.on, str)
            else:
                stands = isinstance(entry.on, str) or entry.on in bought
                allowed = stands and entry.run not in begun and self._stays(view, placed)
            need = view.task.demand_on(offering.type.family)
            if not allowed or need is None or (entry.run, entry.on) in occupied:
                continue
            total = load.get(entry.on, NOTHING) + need
            if not total.fits(offering.type.capacity):
                continue
            load[entry.on] = total
            more[view.job] -= 1
            occupied.add((entry.run, entry.on))
            begun.add(entry.run)
            accepted.append(entry)
        return tuple(accepted)

    def _stays(self, view: RunView, placed: Mapping[RunId, Place]) -> bool:
        """Whether a task run goes on where it runs."""
        stays = view.ran is not None and not view.pinned and view.id not in self.suspends
        return stays and placed.get(view.id, view.instance) == view.instance

    def lawful_retires(self) -> tuple[Retire, ...]:
        """Valid retirements: those of extra runs."""
        return tuple(
            entry
            for entry in self._plan.entries
            if isinstance(entry, Retire)
            and (view := self.runs.get(entry.run)) is not None
            and view.replica
        )

    def _mates(self, run: RunId) -> tuple[RunId, ...]:
        """Task runs that are stopped together with a task run, itself included."""
        job = self._jobs[self.runs[run].job]
        return job.runs if job.spec.kind is JobKind.GANG else (run,)

    def suspended_in_vain(self, units: Mapping[RunId, Unit]) -> set[RunId]:
        """Suspensions whose room the plan gave to others none of which comes."""
        if not self.suspends:
            return set()
        wanted = {entry.on for entry in self._plan.entries if isinstance(entry, Assign)}
        taken = {where for unit in units.values() for _, where in unit}
        coming = {self.runs[run].job for unit in units.values() for run, _ in unit}
        in_vain = set()
        for run, entry in self.suspends.items():
            rooms = {self.runs[mate].instance for mate in self._mates(run)} - {None}
            if entry.job is not None and entry.job not in coming:
                in_vain.add(run)
            if rooms & wanted and not rooms & taken:
                in_vain.add(run)
        return in_vain

    def spare(self, runs: set[RunId]) -> None:
        """Cancel suspensions of task runs, whose room is taken then."""
        self.suspends = {run: entry for run, entry in self.suspends.items() if run not in runs}

    def units(self) -> dict[RunId, Unit]:
        """Independent placements by their first task run; those of a gang are one."""
        places: dict[RunId, Place] = {}
        for entry in self._plan.entries:
            if isinstance(entry, Assign):
                places[entry.run] = entry.on
        by_job: defaultdict[JobId, list[RunId]] = defaultdict(list)
        for run in places:
            if (view := self.runs.get(run)) is not None:
                by_job[view.job].append(run)
        units: dict[RunId, Unit] = {}
        for job, runs in by_job.items():
            gang = self._jobs[job].spec.kind is JobKind.GANG
            for group in [runs] if gang else [[run] for run in runs]:
                members = self._jobs[job].runs if gang else tuple(group)
                if self._holds(members, places):
                    units[group[0]] = tuple((run, places[run]) for run in group)
        return units

    def _holds(self, members: Iterable[RunId], places: dict[RunId, Place]) -> bool:
        return all(self._member_holds(self.runs[run], places.get(run)) for run in members)

    def _member_holds(self, view: RunView, where: Place | None) -> bool:
        if where is None:
            return view.instance is not None
        if view.pinned:
            return where == view.instance
        offering = self._offerings.get(where)
        return offering is not None and view.task.demand_on(offering.type.family) is not None

    def overfull(self, units: dict[RunId, Unit]) -> RunId | None:
        """A unit that has to give way because a place or an offering is overfull, if any is."""
        placed = {run: where for unit in units.values() for run, where in unit}
        comers: defaultdict[Place, list[RunId]] = defaultdict(list)
        for key, unit in units.items():
            for run, where in unit:
                if where != self.runs[run].instance:
                    comers[where].append(key)
        load = self._load(placed, comers)
        for where, keys in comers.items():
            if not load[where].fits(self._offerings[where].type.capacity):
                return max(keys)
        return self._over_limit(comers)

    def _load(
        self, placed: Mapping[RunId, Place], places: Collection[Place]
    ) -> Mapping[Place, Resources]:
        """Room taken on some places once task runs are where they are placed."""
        load: defaultdict[Place, Resources] = defaultdict(lambda: NOTHING)
        for view in self.runs.values() if places else ():
            leaves = view.id in self.suspends or view.id in self._retired
            where = placed.get(view.id, None if leaves else view.instance)
            if where is not None and where in places:
                demand = view.task.demand_on(self._offerings[where].type.family)
                assert demand is not None
                load[where] = load[where] + demand
        return load

    def _over_limit(self, comers: dict[Place, list[RunId]]) -> RunId | None:
        wanted: Counter[OfferingId] | None = None
        for where, keys in comers.items():
            if not isinstance(where, int):
                continue
            offering = self._offerings[where].id
            limit = self._on_sale[offering].limit
            if limit is None:
                continue
            if wanted is None:
                wanted = Counter(by_offering(self._now.instances))
            wanted[offering] += 1
            if wanted[offering] > limit:
                return max(keys)
        return None


def _extra_runs_left(sharing: Sharing) -> int:
    """Number of extra runs that may begin now, of a job's tasks or of its forks."""
    return (sharing.replicas_left or 0) if sharing.forks is None else sharing.forks
