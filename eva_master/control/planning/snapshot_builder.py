"""The state as a policy may see it.

A snapshot is not made from scratch: the view cache keeps the views of the last one, and only jobs
and instances that have changed since are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from eva_master.control.features.forks import views
from eva_master.control.features.lending import worths
from eva_master.control.features.tenants.views import tenant_views
from eva_master.control.measure import attained, dags, remaining, sizes
from eva_master.control.measure.remaining import PolicyEstimates
from eva_master.control.planning import owned, scope
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords, crew, total_demand
from eva_master.control.stopping import grace
from eva_master.control.supply.spot import valued
from eva_master.learning.delays import OF_TYPES
from eva_master.learning.voices.names import voice_of
from eva_master.model.catalog import (
    Catalog,
    InstanceType,
    Offering,
    as_planned,
    is_spot,
    told_apart,
)
from eva_master.model.job import Stragglers, TaskSpec
from eva_master.model.planning.job_view import (
    NO_URGENCY,
    ArrayView,
    DagView,
    JobProgress,
    JobTenancy,
    JobView,
    Sharing,
    Urgency,
)
from eva_master.model.planning.snapshot import (
    InstanceView,
    RemainingWork,
    RunTime,
    RunView,
    Snapshot,
)
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import replace
from eva_master.packing.room import beside_limits, room_beside, with_lower_limits
from eva_master.packing.valuation import delays
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, RunId
from eva_wire.values.states import TERMINAL_RUN, InstanceState, MarketRule, RunState

_OFFERINGS_KEPT = 4_096
"""Number of offerings of instances of which the form that policies see is remembered."""
_Rest = tuple[
    TaskSpec, InstanceId | None, bool, RemainingWork | None, RunTime | None, Resources, bool
]
"""Inputs of a task run's view beside its record: its task as policies see it, its place, whether it
is pinned, its remaining work, its running time, and the last two arguments of `_offered`.
"""
ESTIMATED_AT_ONCE = 64
"""Upper limit of the jobs whose estimates one snapshot updates."""

_WAITS_FOR_SPOT = Urgency(waits_for_spot=True)


def snapshot(state: PlanningRecords, now: Millis, settings: Settings) -> Snapshot:
    """Snapshot the cluster.

    Args:
        state: The records; ended jobs and instances about to go are left out.
        now: The time of the snapshot.
        settings: Settings, with assumed delays where none was measured and a job gave no hint.
    """
    view_cache = state.view_cache
    _outdate_estimates(state)
    _brought_up_to_date(state, now, settings)
    draining = view_cache.draining.ordered()
    counts = owned.counted(view_cache.catalog, view_cache.counts)
    catalog = view_cache.limited_to(counts, owned.limited)
    apart = view_cache.instances.ordered() if view_cache.by_disk else ()
    return Snapshot(
        now_ms=now,
        catalog=_on_sale(catalog, draining, apart),
        jobs=view_cache.jobs.ordered(),
        runs=view_cache.runs.ordered(),
        instances=view_cache.instances.ordered(),
        arrivals=state.counters.arrivals,
        completions=state.counters.completions,
        throughput=view_cache.resolved.throughput,
        standalone=view_cache.resolved.standalone,
        profile=settings.profile,
        draining=draining,
        tenants=tenant_views(state, settings.tenancy, catalog),
    )


def _on_sale(
    catalog: Catalog, draining: Sequence[InstanceView], apart: Sequence[InstanceView]
) -> Catalog:
    """The catalog, with limits less the instances that count as of no offering in it.

    Args:
        catalog: The catalog.
        draining: Instances that take no new task.
        apart: Live instances, if they are told apart by their disks.
    """
    taken = beside_limits(apart, draining)
    return with_lower_limits(catalog, taken) if taken else catalog


def revision(state: PlanningRecords, now: Millis, settings: Settings) -> int:
    """A number that stays the same while snapshots differ in their time alone.

    The cost of this depends on the changes since the last snapshot, not on the cluster.
    """
    _brought_up_to_date(state, now, settings)
    return state.view_cache.revision


def _outdate_estimates(state: PlanningRecords) -> None:
    """Mark some outdated estimates for renewal, the oldest first.

    Otherwise each job that ends would renew the views of all other jobs of its owner at once.
    """
    view_cache = state.view_cache
    for name, owner_times in view_cache.oldest_estimates(ESTIMATED_AT_ONCE):
        job = state.jobs.get(name)
        if job is None or owner_times is state.learned.run_times.of(job.spec.owner):
            view_cache.follow_estimate(name, None if job is None else owner_times)
        else:
            view_cache.job_changed(name)


def _brought_up_to_date(state: PlanningRecords, now: Millis, settings: Settings) -> None:
    """Renew the views that may be outdated."""
    view_cache = state.view_cache
    view_cache.follow_labels(state.figures.resolve())
    _follow_the_rest(state, now, settings)
    of_dags = dags.DagViews(state)
    for name in view_cache.outdated_jobs():
        _make_anew(state, name, settings, of_dags)
    # Views of comings and goings are up to date by now.
    for name in view_cache.alone_where_some_came_or_went():
        _make_anew(state, name, settings, of_dags)
    for name in view_cache.beside_who_is_alone():
        _make_anew(state, name, settings, of_dags)
    for place in view_cache.outdated_instances():
        view_cache.put_instance(place, _instance_view(state, place))
        view_cache.put_draining(place, _draining_view(state, place))


def _make_anew(
    state: PlanningRecords, name: JobId, settings: Settings, of_dags: dags.DagViews
) -> None:
    """Make the views of a job and of its task runs."""
    view_cache, job = state.view_cache, state.jobs.get(name)
    if job is None or not scope.plans_job(state, job):
        view_cache.put_job(name, None, ())
        view_cache.follow_estimate(name, None)
        view_cache.follow_disk(name, needs=False)
        return
    if job.is_gang:
        seen = list(crew(state, name))
    else:
        seen = [state.runs[run] for run in state.tasks.shown(name)]
    estimates = remaining.of_job(state, job, seen, view_cache.told_estimates(name))
    runs = _views(state, job, seen, estimates)
    # A job without runs here only finishes on instances that are drained.
    names = tuple(run.id for run in runs)
    view = _job_view(state, job, estimates, settings, seen=seen, runs=names, dag=of_dags.of(job))
    hidden = not runs and bool(state.membership.draining)
    view_cache.put_job(name, None if hidden else view, runs)
    view_cache.follow_disk(name, needs=any(map(_needs_disk, state.tasks.kinds(name))))
    owner_times = state.learned.run_times.of(job.spec.owner)
    view_cache.follow_estimate(name, owner_times if any(map(_awaits_news, runs)) else None)


def _needs_disk(task: TaskSpec) -> bool:
    return any(need.disk_mib for _, need in task.demand)


def _follow_the_rest(state: PlanningRecords, now: Millis, settings: Settings) -> None:
    """Follow changes other than of jobs, task runs and instances."""
    view_cache = state.view_cache
    basis = (
        tuple(offering.id for offering in _missing(state) if not offering.available(now)),
        state.counters.arrivals,
        state.counters.completions,
        view_cache.resolved.throughput,
        view_cache.resolved.standalone,
    )
    if basis != view_cache.basis:
        # Arrivals and completions elsewhere are no news in a partition.
        view_cache.common += basis[:1] + basis[3:] != view_cache.basis[:1] + view_cache.basis[3:]
        view_cache.basis = basis
        view_cache.revision += 1
    sources = state.catalog, state.market, state.learned.delays
    kept = tuple(map(is_, view_cache.sources, sources))
    aged = now >= view_cache.listed_until
    if kept and all(kept) and not aged:
        return
    view_cache.sources = sources
    measured = _measured(state)
    if measured != view_cache.measured:
        view_cache.measured = measured
        view_cache.shown_offerings.clear()
        view_cache.instances_changed()
    elif kept and all(kept[:2]) and not aged:
        return  # the last measurement is no news
    shown = (owned.shown(_with_delays(offering, measured)) for offering in state.catalog)
    listed = valued(shown, state, settings, now)
    view_cache.listed_until = state.market.pools.as_old_until(now)
    if listed != view_cache.catalog:
        view_cache.catalog = listed
        view_cache.revision += 1
        view_cache.common += 1


def _missing(state: PlanningRecords) -> Sequence[Offering]:
    """Offerings that were not on sale at some time; few or none, asked in each turn."""
    view_cache = state.view_cache
    if view_cache.missing[0] is not state.catalog:
        missing = (each for each in state.catalog if each.unavailable_until is not None)
        view_cache.missing = state.catalog, tuple(missing)
    return view_cache.missing[1]


def _awaits_news(view: RunView) -> bool:
    """Whether other jobs tell how long a task takes: of one that runs they told before."""
    return not view.running and (view.remaining is None or view.remaining.estimated)


def _views(
    state: PlanningRecords, job: Job, seen: list[TaskRun], told: PolicyEstimates
) -> tuple[RunView, ...]:
    gang, view_cache, voice = job.is_gang, state.view_cache, voice_of(job.spec)
    ran = _ran(state, job, seen)
    # No task of it has or may get another run.
    lone = not gang and not job.spec.several_runs and job.spec.deadline is None
    stays = bool(job.missing_secrets)  # it could not start elsewhere
    lone = lone and not stays
    finishing = (
        {run.id for run in seen if scope.finishes(state, run)} if state.membership.draining else ()
    )
    # The remaining members of a gang stay where they are.
    together = gang and (scope.pinned(seen) or bool(finishing) or stays)
    kept = job.buys.kept
    if gang and kept:
        # No plan moves a gang without time to lose.
        together = together or all(_stays(state, job, run) for run in seen)
    views, closed = [], set[InstanceId]()
    task: TaskSpec | None = None
    for run in seen:
        if run.state in TERMINAL_RUN or run.id in finishing:
            continue
        if job.spec.tasks[run.index] is not task:  # else its task is that of the run before
            task = job.spec.tasks[run.index]
            shown = view_cache.shown_task(voice, task)
        work, view = told.works[run.id], None
        beside = view_cache.is_alone_somewhere and _beside(state, job, run)
        if lone and not run.replicas:
            host = None if run.target is None else state.instances[run.target]
            view = view_cache.kept(run, host, work, beside=beside, label=shown.workload)
        if view is None:
            pinned = together if gang else scope.doubled(state, job, run) or scope.pinned([run])
            pinned = pinned or stays
            if kept and not gang:
                pinned = pinned or _stays(state, job, run)
            place = scope.place(state, run, fixed=pinned)
            free = NOTHING
            if pinned and place is not None and job.buys.alone and place not in closed:
                free = _free(state, seen, place)
                closed.add(place)
            rest = shown, place, pinned, work, ran.get(run.id), free, beside
            view = _view(state, job, run, rest)
        views.append(view)
    return tuple(views)


def _view(state: PlanningRecords, job: Job, run: TaskRun, rest: _Rest) -> RunView:
    task, place, pinned, work, ran, free, beside = rest
    family = None if place is None else state.instances[place].offering.type.family
    return RunView(
        id=run.id,
        job=job.id,
        task=_offered(job, task, family, free, beside=beside),
        instance=place,
        pinned=pinned,
        running=run.state is RunState.RUNNING and place is not None,
        held=run.target is None and bool(run.waiting_for),
        remaining=work,
        since_ms=run.waiting_since_ms,
        replica=run.replica if run.extra else 0,
        ran=ran,
        running_since_ms=_running_since_ms(run),
        pool=run.pool if place is not None else "",
        alone=job.buys.alone,
    )


def _stays(state: PlanningRecords, job: Job, run: TaskRun) -> bool:
    """Whether no plan moves a task run without time to lose; in company it may have to go."""
    return scope.place(state, run) is not None and job.buys is not MarketRule.ALONE


def _free(state: PlanningRecords, seen: list[TaskRun], place: InstanceId) -> Resources:
    """Free room beside a task run that is to be alone, which it takes so that no other comes.

    Of several jobs that are to be alone the first takes it.
    """
    instance = state.instances[place]
    others = (state.runs.get(resident) for resident in state.view_cache.residents(place))
    targeting = {run.id: run for run in (*others, *seen) if run is not None and run.target == place}
    jobs = {run.job for run in targeting.values()}
    if seen[0].job != min(name for name in jobs if state.jobs[name].buys.alone):
        return NOTHING
    taken = total_demand(state, targeting.values(), instance)
    capacity = instance.offering.type.capacity
    return room_beside(instance.offering, taken) if taken.fits(capacity) else NOTHING


def _beside(state: PlanningRecords, job: Job, run: TaskRun) -> bool:
    """Whether a task run that may be bought anything is where another is to be alone at once."""
    if run.target is None or not state.view_cache.holds_who_is_alone(run.target):
        return False
    families = job.spec.tasks[run.index].demand
    if job.buys not in (MarketRule.ANY, MarketRule.APART) or all(
        is_spot(family) for family, _ in families
    ):
        return False
    others = (state.runs.get(resident) for resident in state.view_cache.residents(run.target))
    jobs = {other.job for other in others if other is not None} - {job.id}
    return any((buys := state.jobs[name].buys).alone and buys.kept for name in jobs)


def _offered(
    job: Job, task: TaskSpec, there: Family | None, free: Resources, *, beside: bool
) -> TaskSpec:
    """A task as policies see it: with demand on the markets that its job may use at present.

    Args:
        job: Its job.
        task: The task.
        there: Family of its coming place, `None` if that is to be planned. Demand there stays,
            whatever its job may buy.
        free: Room to take there beyond its demand.
        beside: Whether another job is to be alone there that cannot wait until a spot launch
            succeeds, so that any offering will do for this one.
    """
    demand = task.demand
    if beside or job.buys not in (MarketRule.ANY, MarketRule.APART):
        spot = job.buys is MarketRule.SPOT
        demand = tuple(need for need in demand if is_spot(need[0]) is spot or need[0] == there)
    if free != NOTHING:
        demand = tuple((need[0], need[1] + free) if need[0] == there else need for need in demand)
    return task if demand == task.demand else replace(task, demand=demand)


def _running_since_ms(run: TaskRun) -> Millis | None:
    return run.since_ms if run.state is RunState.RUNNING else None


def _ran(state: PlanningRecords, job: Job, seen: list[TaskRun]) -> dict[RunId, RunTime]:
    """Running times of the tasks that may be given an extra run; each task gets at most one."""
    if job.is_gang or job.spec.array.stragglers is Stragglers.KEEP:
        return {}
    first = (
        run for run in seen if run.state is RunState.RUNNING and not (run.extra or run.replicas)
    )
    return remaining.run_times(state, job, first)


def _job_view(
    state: PlanningRecords,
    job: Job,
    told: PolicyEstimates,
    settings: Settings,
    *,
    seen: list[TaskRun],
    runs: tuple[RunId, ...],
    dag: DagView | None,
) -> JobView:
    spec, handed, shared = job.spec, state.handed.get(job.id), state.view_cache.shared
    measured = delays.of_job(
        state.learned, spec, state.tasks.kinds(job.id), settings.assumed_delays, of_others=True
    )
    return JobView(
        id=job.id,
        spec=state.view_cache.without_tasks(job.id, spec),
        runs=runs,
        submitted_ms=job.arrived_ms,
        priority=spec.priority if handed is None else handed.priority,
        partition=job.partition,
        delays=shared(measured),
        progress=JobProgress(
            estimate=told.estimate,
            steps_left=attained.steps_left(job, seen),
            attained=attained.gpu_time(state, job, seen),
            lease_ms=attained.lease_ms(job, seen),
            succeeded=state.tasks.succeeded(job.id),
            failed=0 if job.is_gang else state.tasks.failed(job.id),
            succeeded_ms=sum(
                finished.total_ms for finished in state.finished_tasks.of(job).values()
            ),
            pilots_left=state.finished_tasks.pilots_left(job.id),
            dag=dag,
        ),
        array=_array_view(state, job),
        sharing=shared(_sharing(state, job, seen, settings)),
        urgency=_WAITS_FOR_SPOT if _waits_for_spot(job, seen) else NO_URGENCY,
        tenancy=shared(
            JobTenancy(
                worths.of_job(state, job) if settings.tenancy.quotas else spec.worth,
                grace.unlent(spec, settings)
                if settings.partitions.home(job.partition).lends
                else "",
                job.held_ms,
                job.spoiled_ms,
            )
        ),
    )


def _sharing(state: PlanningRecords, job: Job, seen: list[TaskRun], settings: Settings) -> Sharing:
    elastic = None
    if not job.missing_secrets:
        partition = settings.partitions.home(job.partition)
        elastic = sizes.elastic(state, job.spec, settings.limits, partition)
    return Sharing(elastic, state.tasks.replicas_left(job.id), views.forks_left(state, job, seen))


def _array_view(state: PlanningRecords, job: Job) -> ArrayView:
    spec = job.spec
    if job.is_gang:
        return state.view_cache.shared(ArrayView(spec.size))
    kinds = state.tasks.by_kind(job.id)
    several = len(kinds) > 1 or spec.size < len(spec.tasks)
    return ArrayView(spec.size, state.tasks.unseen(job.id), kinds if several else ())


def _waits_for_spot(job: Job, seen: list[TaskRun]) -> bool:
    return job.buys is MarketRule.SPOT and all(run.target is None for run in seen)


def _measured(state: PlanningRecords) -> dict[str, InstanceType]:
    """Catalog types with measured delays, which replace the assumed ones."""
    measured = state.learned.delays
    names = {name for kind, name in measured.known if kind in OF_TYPES}
    types = {offering.type.name: offering.type for offering in state.catalog}
    return {
        name: delays.booting(measured, machine)
        for name in names
        if (machine := types.get(name)) is not None
    }


def _with_delays(offering: Offering, measured: dict[str, InstanceType]) -> Offering:
    measured_type = measured.get(offering.type.name)
    if measured_type is None:
        return offering
    # All else is the offering's own: a type on the spot market is in a family of its own.
    machine = replace(
        offering.type, acquisition_ms=measured_type.acquisition_ms, setup_ms=measured_type.setup_ms
    )
    return replace(offering, type=machine)


def _shown(state: PlanningRecords, offering: Offering) -> Offering:
    """The offering of an instance as policies see it; one for equal ones."""
    view_cache = state.view_cache
    made = view_cache.shown_offerings.get(id(offering))
    if made is None or made[0] is not offering:
        if len(view_cache.shown_offerings) >= _OFFERINGS_KEPT:
            view_cache.shown_offerings.clear()
        shown = owned.shown(as_planned(_with_delays(offering, view_cache.measured)))
        shown = view_cache.shared(told_apart(shown) if view_cache.by_disk else shown)
        made = view_cache.shown_offerings[id(offering)] = offering, shown
    return made[1]


def _instance_view(state: PlanningRecords, name: InstanceId) -> InstanceView | None:
    """`None` for one that no plan may use."""
    return _seen(state, name, state.view_cache.residents(name)) if state.can_place(name) else None


def _draining_view(state: PlanningRecords, name: InstanceId) -> InstanceView | None:
    """`None` for one that is not drained."""
    if name not in state.membership.draining:
        return None
    return _seen(state, name, tuple(sorted(run.id for run in state.occupants(name))))


def _seen(state: PlanningRecords, name: InstanceId, residents: tuple[RunId, ...]) -> InstanceView:
    instance = state.instances[name]
    return InstanceView(
        id=name,
        offering=_shown(state, instance.offering),
        residents=residents,
        ready=instance.state is InstanceState.READY,
        pool=instance.pool,
        partition=instance.partition,
    )
