"""Tenants' quotas, before and after a policy plans: no task begins beyond its tenant's quota.

Before a policy plans, tasks that wait beyond their tenant's quota are removed from its view, and so
are families of which the tenant's quota is used up. Tasks come in the order of priority and
submission, gangs whole. A task for which the policy found no room last time reserves no quota
against later ones. Placements beyond a quota can still occur, since a task may have several
families to choose from; these wait for the next plan.

A task that has a place keeps it, even if the quota shrinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eva_master.model.catalog import base_family
from eva_master.model.job import TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, ExtraRun, Hold, Plan, Resize
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.resources import Resources
from eva_master.model.tenants.tenancy import ANY_FAMILY, Quota
from eva_master.packing.plan_effect import PlanEffect, without_unused
from eva_master.packing.precedence import precedence
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, RunId

Use = Mapping[str, Mapping[Family, int]]
"""GPUs in use, by tenant and family, spot and on demand together."""

Shape = tuple[tuple[tuple[Family, Resources], ...], ...]
"""Demand of each member of a unit, on each family."""

_SHRUNK = "the quota of its tenant leaves no more"


class QuotaUse:
    """Use of a tenant's quota, and the rest of it.

    Args:
        tenant: Its name.
        quota: The quota in force.
        used: The GPUs of its tasks, by family.
    """

    def __init__(self, tenant: str, quota: Quota, used: Mapping[Family, int]) -> None:
        self._tenant = tenant
        named = dict(quota)
        self._any = named.pop(ANY_FAMILY, 0)
        self._named = named
        self._used = Counter(used)
        self._passed_over: dict[Shape, Counter[Family]] = {}

    def room(self, family: Family) -> int:
        """Number of further GPUs of a family that it may have."""
        named = max(0, self._named.get(family, 0) - self._used[family])
        return named + max(0, self._any - self._spilt(self._used))

    def allows(self, more: Mapping[Family, int]) -> bool:
        """Whether it may have some more GPUs; beyond its quota, a tenant may have no more of it."""
        after = self._used.copy()
        after.update(more)
        excess = max(0, self._spilt(after) - self._any)
        return excess <= max(0, self._spilt(self._used) - self._any)

    def take(self, more: Mapping[Family, int]) -> None:
        """Count more GPUs as used."""
        self._used.update(more)

    def pass_over(self, shape: Shape, more: Mapping[Family, int]) -> None:
        """Count the use of a unit that may find no room, against units of equal shape alone."""
        self._passed_over.setdefault(shape, Counter()).update(more)

    def for_shape(self, shape: Shape) -> QuotaUse:
        """The share as seen by a unit behind others of its shape."""
        before = self._passed_over.get(shape)
        if before is None:
            return self
        seen = QuotaUse.__new__(QuotaUse)
        seen._tenant, seen._named, seen._any = self._tenant, self._named, self._any
        seen._used, seen._passed_over = self._used + before, {}
        return seen

    def refusal(self, families: Iterable[Family], needed: int = 1) -> str:
        """Why it may have no more of some families: the quota, and what is in use.

        Args:
            families: Which.
            needed: How many GPUs more are needed at least.
        """
        parts = [
            f"{self._used[family]:,} of {self._named[family]:,} {family}"
            for family in sorted(set(families))
            if family in self._named
        ]
        if self._any or not parts:
            spilt = self._spilt(self._used)
            parts.append(f"{spilt:,} of {self._any:,} GPUs of any family")
        more = f", and {needed:,} are needed together" if needed > 1 else ""
        return f"quota of {self._tenant}: {', '.join(parts)} in use{more}"

    def _spilt(self, used: Mapping[Family, int]) -> int:
        """Use beyond the quotas of named families."""
        return sum(
            max(0, count - self._named.get(family, 0)) for family, count in used.items() if count
        )


def gpu_needs(task: TaskSpec) -> dict[Family, int]:
    """The GPUs that a task takes on each family that can host it; empty if it needs none on any."""
    needs: dict[Family, int] = {}
    for family, need in task.demand:
        if need.gpus:
            base = base_family(family)
            needs[base] = max(need.gpus, needs.get(base, 0))
    return needs


@dataclass(frozen=True, slots=True)
class QuotaView:
    """The policy's view of a snapshot, and the reasons for the rest.

    Attributes:
        snapshot: The snapshot to plan.
        holds: Task runs that wait for their tenant's quota, with the reason.
        sizes: Elastic gangs that wait, and are shown with fewer members than they had.
    """

    snapshot: Snapshot
    holds: Mapping[RunId, str] = field(default_factory=dict)
    sizes: Mapping[JobId, int] = field(default_factory=dict)

    def completed(self, plan: Plan) -> Plan:
        """A plan for the whole snapshot, with reasons for task runs that the policy did not see."""
        if not self.holds and not self.sizes:
            return plan
        entries = [entry for entry in plan.entries if entry.run not in self.holds]
        entries.extend(Hold(run, why) for run, why in self.holds.items())
        stated = {entry.job for entry in plan.sizes}
        sizes = (
            Resize(job, members, _SHRUNK)
            for job, members in self.sizes.items()
            if job not in stated
        )
        return replace(plan, entries=tuple(entries), sizes=(*plan.sizes, *sizes))


def admitted(snapshot: Snapshot, use: Use, passed_over: Collection[RunId] = ()) -> QuotaView:
    """Remove from a snapshot the tasks and families beyond tenants' quotas.

    Args:
        snapshot: A snapshot with the quotas in force.
        use: GPUs in use by tenants, in the whole cluster.
        passed_over: Task runs for which the policy found no room last time.
    """
    limited = {
        tenant.name: QuotaUse(tenant.name, tenant.quota, use.get(tenant.name, {}))
        for tenant in snapshot.tenants
    }
    jobs = [job for job in snapshot.jobs if job.spec.tenant in limited]
    if not jobs:
        return QuotaView(snapshot)
    ours = {job.id for job in jobs}
    members: dict[JobId, list[RunView]] = {name: [] for name in ours}
    for run in snapshot.runs:
        if run.job in ours:
            members[run.job].append(run)
    queue = _DecisionQueue(limited, passed_over, (*snapshot.instances, *snapshot.draining))
    for job in jobs:
        queue.keep_back(job, members[job.id])
    for job in sorted(jobs, key=precedence):
        queue.look_at(job, members[job.id])
    return queue.outcome(snapshot)


class _DecisionQueue:
    """Waiting task runs, decided one after the other."""

    def __init__(
        self,
        shares: Mapping[str, QuotaUse],
        passed_over: Collection[RunId],
        instances: Iterable[InstanceView],
    ) -> None:
        self._shares = shares
        self._passed_over = passed_over
        self._holds: dict[RunId, str] = {}
        self._families: dict[RunId, frozenset[Family]] = {}
        """Families that remain for task runs that may not use all families that can host them."""
        self._most: dict[JobId, int] = {}
        self._sizes: dict[JobId, int] = {}
        self._on = {view.id: base_family(view.offering.type.family) for view in instances}

    def keep_back(self, job: JobView, runs: Sequence[RunView]) -> None:
        """Keep a job's placed task runs from moving to families of which no quota remains."""
        share = self._shares[job.spec.tenant]
        for run in runs:
            needed = gpu_needs(run.task)
            if run.instance is None or len(needed) < 2:
                continue
            here = self._on.get(run.instance)
            kept = {
                family
                for family, gpus in needed.items()
                if family == here or share.allows({family: gpus})
            }
            if len(kept) < len(needed):
                self._families[run.id] = frozenset(kept)

    def look_at(self, job: JobView, runs: Sequence[RunView]) -> None:
        """Decide on a job's waiting task runs."""
        share = self._shares[job.spec.tenant]
        waiting = [run for run in runs if run.instance is None and not run.pinned]
        if job.sharing.elastic is not None:
            self._look_at_elastic(job, runs, waiting, share)
        elif job.spec.kind is JobKind.GANG:
            self._look_at_unit(waiting, share)
        else:
            for run in waiting:
                self._look_at_unit([run], share)

    def _look_at_unit(self, unit: Sequence[RunView], share: QuotaUse) -> None:
        members = [(run, needed) for run in unit if (needed := gpu_needs(run.task))]
        if not members:
            return
        needs = [needed for _, needed in members]
        every = {family for needed in needs for family in needed}
        shape = tuple(run.task.demand for run in unit)
        seen = share.for_shape(shape)
        usable, taken = _fitting_together(needs, every, seen)
        apart: Sequence[Family] | None = None
        if taken is None and (apart := _fitting_apart(needs, seen)) is not None:
            usable = {family for family in every if seen.room(family) > 0}
            taken = Counter[Family]()
            for family, needed in zip(apart, needs, strict=True):
                taken[family] += needed[family]
        if taken is None and not all(_needs_none(run.task) for run in unit):
            why = share.refusal(every, sum(min(needed.values()) for needed in needs))
            self._holds.update((run.id, why) for run in unit)
            return
        if apart is not None and not self._were_passed_over(unit):
            # Else the policy might have more of them on a family than its quota allows.
            pairs = zip(members, apart, strict=True)
            self._families.update((run.id, frozenset({family})) for (run, _), family in pairs)
        elif usable != every:
            kept = frozenset(usable)
            self._families.update((run.id, kept) for run in unit)
        self._charge(unit, shape, taken or {}, share)

    def _were_passed_over(self, unit: Sequence[RunView]) -> bool:
        return all(run.id in self._passed_over for run in unit)

    def _charge(
        self, unit: Sequence[RunView], shape: Shape, taken: Mapping[Family, int], share: QuotaUse
    ) -> None:
        if self._were_passed_over(unit):
            share.pass_over(shape, taken)
        else:
            share.take(taken)

    def _look_at_elastic(
        self, job: JobView, runs: Sequence[RunView], waiting: Sequence[RunView], share: QuotaUse
    ) -> None:
        assert job.sharing.elastic is not None
        needed = gpu_needs(runs[0].task) if runs else {}
        if not needed or _needs_none(runs[0].task):
            return
        placed, least = len(runs) - len(waiting), job.sharing.elastic.least
        shape = (runs[0].task.demand,)
        left_over = share.for_shape(shape)
        room = {family: left_over.room(family) // each for family, each in needed.items()}
        most = min(job.sharing.elastic.most, max(placed, least, placed + max(room.values())))
        if most < job.sharing.elastic.most:
            self._most[job.id] = most
        if placed or not waiting:
            return
        if max(room.values()) < least:
            why = share.refusal(needed, least * min(needed.values()))
            self._holds.update((run.id, why) for run in waiting)
            return
        usable = frozenset(family for family, members in room.items() if members >= least)
        shown = min(len(runs), most)
        if shown < len(runs):
            self._sizes[job.id] = shown
        for number, name in enumerate(job.runs[:shown]):
            # No more members may be on a family than its quota allows: the plan would be cut.
            kept = frozenset(family for family in usable if room[family] > number)
            if len(kept) < len(needed):
                self._families[name] = kept
        family = max(sorted(usable), key=lambda it: room[it])
        taken = {family: needed[family] * min(shown, room[family])}
        self._charge(waiting, shape, taken, share)

    def outcome(self, snapshot: Snapshot) -> QuotaView:
        """The remaining part of a snapshot."""
        if not (self._holds or self._families or self._most):
            return QuotaView(snapshot)
        seen = with_sizes(snapshot, self._sizes)
        seen = _without(seen, self._holds)
        runs = tuple(
            replace(run, task=_on(run.task, kept))
            if (kept := self._families.get(run.id)) is not None
            else run
            for run in seen.runs
        )
        jobs = tuple(_at_most(job, self._most.get(job.id)) for job in seen.jobs)
        seen = replace(seen, runs=runs, jobs=jobs)
        return QuotaView(seen, self._holds, self._sizes)


def _fitting_together(
    needs: Sequence[Mapping[Family, int]], every: Collection[Family], share: QuotaUse
) -> tuple[set[Family], Mapping[Family, int] | None]:
    """Families on each of which all of a unit may be, and what it takes there; `None` if none."""
    together: dict[Family, int] = {
        family: sum(needed[family] for needed in needs)
        for family in sorted(every)
        if all(family in needed for needed in needs)
    }
    whole = {family for family, gpus in together.items() if share.allows({family: gpus})}
    if not whole:
        return set(), None
    best = max(sorted(whole), key=share.room)
    # Where some tasks need no GPU on a family, those that do decide.
    return whole, {best: together[best]}


def _fitting_apart(needs: Sequence[Mapping[Family, int]], share: QuotaUse) -> list[Family] | None:
    """A family for each member of a unit that fits on no single family; `None` if it does not fit.

    The member with the most families to choose from comes last.
    """
    taken: Counter[Family] = Counter()
    choice: dict[int, Family] = {}
    for number in sorted(range(len(needs)), key=lambda it: len(needs[it])):
        options = []
        for family, gpus in sorted(needs[number].items()):
            after = taken.copy()
            after[family] += gpus
            if share.allows(after):
                options.append((share.room(family) - after[family], family))
        if not options:
            return None
        _, choice[number] = max(options)
        taken[choice[number]] += needs[number][choice[number]]
    return [choice[number] for number in range(len(needs))]


def _needs_none(task: TaskSpec) -> bool:
    """Whether a task needs no GPU on some family that can host it."""
    return any(not need.gpus for _, need in task.demand)


def _on(task: TaskSpec, families: Collection[Family]) -> TaskSpec:
    """A task that takes GPUs of some families alone."""
    kept = tuple(
        (family, need)
        for family, need in task.demand
        if not need.gpus or base_family(family) in families
    )
    return replace(task, demand=kept)


def _at_most(job: JobView, most: int | None) -> JobView:
    """The job with a smaller elastic limit; `None` leaves the limit as it is."""
    elastic = job.sharing.elastic
    if elastic is None or most is None:
        return job
    return replace(job, sharing=replace(job.sharing, elastic=replace(elastic, most=most)))


def _without(seen: Snapshot, runs: Collection[RunId]) -> Snapshot:
    """A snapshot without some waiting task runs; what is left of a gang stays where it is."""
    if not runs:
        return seen
    shorter = {run.job for run in seen.runs if run.id in runs}
    jobs = []
    for job in seen.jobs:
        kept = job.runs
        if job.id in shorter:
            kept = tuple(name for name in job.runs if name not in runs)
        if kept:
            jobs.append(job if kept is job.runs else replace(job, runs=kept))
    gangs = {job.id for job in jobs if job.id in shorter and job.spec.kind is JobKind.GANG}
    return replace(
        seen,
        jobs=tuple(jobs),
        runs=tuple(
            replace(run, pinned=True) if run.job in gangs else run
            for run in seen.runs
            if run.id not in runs
        ),
    )


def within(effect: PlanEffect, use: Use) -> PlanEffect:
    """The part of a plan in which no tenant begins anything beyond its quota.

    Args:
        effect: The plan, on the present cluster with its sizes.
        use: GPUs in use by tenants, in the whole cluster.
    """
    shares = {
        tenant.name: QuotaUse(tenant.name, tenant.quota, use.get(tenant.name, {}))
        for tenant in effect.now.tenants
    }
    jobs = {job.id: job for job in effect.now.jobs if job.spec.tenant in shares}
    if not jobs:
        return effect
    plan, check = effect.plan, _PlannedFamilies(effect, jobs)
    held: dict[RunId, str] = {}
    shorter: dict[JobId, list[Assign]] = {}
    for unit in effect.units:
        if unit.job.id not in jobs or not (more := check.more(unit.entries)):
            continue
        share = shares[unit.job.spec.tenant]
        if share.allows(more):
            share.take(more)
        elif members := check.shortened(unit.job, unit.entries, share):
            shorter[unit.job.id] = members
            share.take(check.more(members))
        else:
            why = share.refusal(more, sum(more.values()))
            held.update((entry.run, why) for entry in unit.entries)
    entries = tuple(
        entry
        for entry in plan.entries
        if not isinstance(entry, ExtraRun) or check.begins(entry, shares)
    )
    if len(entries) < len(plan.entries):
        plan = replace(plan, entries=entries)
    plan = _resized(plan, shorter, check)
    if plan is not effect.plan:
        effect = effect.with_plan(without_unused(plan))
    return effect.drop(held)


class _PlannedFamilies:
    """Where a plan has task runs go, by family."""

    def __init__(self, effect: PlanEffect, jobs: Mapping[JobId, JobView]) -> None:
        now, launched = effect.now, effect.launched
        self.runs = {run.id: run for run in now.runs if run.job in jobs}
        self._jobs = jobs
        self._on: dict[InstanceId | int, Family] = {
            view.id: view.offering.type.family for view in (*now.instances, *now.draining)
        }
        self._on.update((key, offering.type.family) for key, offering in launched.items())

    def more(self, entries: Iterable[Assign]) -> Counter[Family]:
        """GPUs that task runs take in addition to their present ones."""
        taken: Counter[Family] = Counter()
        for entry in entries:
            run = self.runs[entry.run]
            family, gpus = self._taken(run, entry.on)
            before = None if run.instance is None else self._on.get(run.instance)
            if gpus and (before is None or base_family(before) != family):
                taken[family] += gpus
        return taken

    def shortened(self, job: JobView, entries: Sequence[Assign], share: QuotaUse) -> list[Assign]:
        """Places for as many members of a waiting elastic gang as its tenant may have.

        Returns:
            The places; empty if they are fewer than its least size.
        """
        if job.sharing.elastic is None or any(
            self.runs[run].instance is not None for run in job.runs
        ):
            return []
        places: list[Assign] = []
        for entry in entries:
            if share.allows(self.more([*places, entry])):
                places.append(entry)
        if len(places) < job.sharing.elastic.least:
            return []
        return [replace(place, run=name) for place, name in zip(places, job.runs, strict=False)]

    def job_of(self, run: RunId) -> JobId | None:
        """The job of a task run, if its tenant has a quota."""
        view = self.runs.get(run)
        return None if view is None else view.job

    def begins(self, extra: ExtraRun, shares: Mapping[str, QuotaUse]) -> bool:
        """Whether an extra run may begin; it counts like any other then."""
        run = self.runs.get(extra.run)
        if run is None:
            return True
        family, gpus = self._taken(run, extra.on)
        share = shares[self._jobs[run.job].spec.tenant]
        if gpus and not share.allows({family: gpus}):
            return False
        share.take({family: gpus})
        return True

    def _taken(self, run: RunView, on: InstanceId | int) -> tuple[Family, int]:
        family = self._on.get(on)
        if family is None:
            return Family(""), 0  # the check of the plan drops it
        need = run.task.demand_on(family)
        return base_family(family), 0 if need is None else need.gpus


def _resized(
    plan: Plan, shorter: Mapping[JobId, Sequence[Assign]], check: _PlannedFamilies
) -> Plan:
    """A plan in which some elastic gangs begin with fewer members."""
    if not shorter:
        return plan
    entries = [entry for entry in plan.entries if check.job_of(entry.run) not in shorter]
    entries.extend(place for members in shorter.values() for place in members)
    sizes = [size for size in plan.sizes if size.job not in shorter]
    sizes.extend(Resize(job, len(members), _SHRUNK) for job, members in shorter.items())
    return replace(plan, entries=tuple(entries), sizes=tuple(sizes))
