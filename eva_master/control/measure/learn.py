"""From what was measured to what the cluster knows about workloads and instance types."""

from __future__ import annotations

from eva_master.control.measure import dags, estimates, sizes
from eva_master.control.measure.delays import Latency
from eva_master.control.measure.throughput import accompanied, company, standalone_rate
from eva_master.control.state.records import placed
from eva_master.control.state.store import State
from eva_master.learning.delays import Delay
from eva_master.learning.run_times.past_values import kept_for
from eva_master.learning.standalone import StandaloneTable
from eva_master.model.catalog import base_family
from eva_master.model.ids import MILLION, InstanceId, Millis, Workload
from eva_master.model.job import JobKind
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.states import RunState
from eva_master.model.values import replace

_CLEARLY = 1.05
"""By less a window differs from another for no reason."""


def from_window(state: State, run: TaskRun, now: Millis) -> bool:
    """Learn from a complete window of a running task run.

    A window alone teaches the stand-alone throughput. A window in company teaches how the company
    slows the workload down, once its stand-alone throughput is known; in a gang that is
    attributed to one member (see `learning.attribution`). A gang is one measurement, taken from
    its first member that reports. Where tasks always have company a window in company teaches
    both, see `_at_least`.

    Returns:
        Whether it is news that a plan may depend on.
    """
    members = _running_members(state, run)
    if any(member.index < run.index and member.progress.rate > 0 for member in members):
        return False
    if not any(accompanied(state, member) for member in members):
        return _standalone(state, run, members, now)
    news = _at_least(state, run, members) and _standalone(state, run, members, now)
    entries = [company(state, member) for member in members]
    rates = [standalone_rate(state, member) for member in members]
    known = [rate for rate in rates if rate]
    if len(known) < len(rates):
        return news
    # Alone, too, the slowest member would set the pace.
    observed = max(1, min(MILLION, round(run.progress.rate / min(known) * MILLION)))
    before = state.throughput
    state.set_learned(state.learned.in_company(entries, observed, now))
    return news or state.throughput != before


def _at_least(state: State, run: TaskRun, members: list[TaskRun]) -> bool:
    """Whether a window in company shows that a workload is faster alone than is known.

    Owned nodes are full: a job may never be alone on one, and others must be compared by what it
    does there all the same. It counts until a window alone says more, and only of tasks that state
    no rate.
    """
    assert run.instance is not None
    places = [state.instances[it.instance] for it in members if it.instance is not None]
    task, family = state.task(run), base_family(places[0].offering.type.family)
    if not all(it.owned for it in places) or task.throughput_on(family) is not None:
        return False
    known = state.standalone.lookup(task.workload, family)
    if known is not None and state.jobs[run.job].spec.least is not None:
        known *= float(sizes.size_speed(state, members))
    return known is None or known * _CLEARLY < run.progress.rate


def _standalone(state: State, run: TaskRun, members: list[TaskRun], now: Millis) -> bool:
    families = {
        base_family(state.instances[member.instance].offering.type.family)
        for member in members
        if member.instance is not None
    }
    if len(families) != 1:
        return False  # nobody knows whose pace it was
    if max(it.batch_ppm for it in members) - min(it.batch_ppm for it in members) > 1:
        return False  # nor is it the pace of one of them
    workload, rate, news = state.task(run).workload, run.progress.rate, False
    if state.jobs[run.job].spec.least is not None:
        news = _of_size(state, run, members, now)
        rate /= float(sizes.size_speed(state, members))
    table = state.standalone.observe(workload, families.pop(), rate, now)
    return _taken(state, table, workload) or news


def _of_size(state: State, run: TaskRun, members: list[TaskRun], now: Millis) -> bool:
    """Learn how fast an elastic gang is with as many members as it has."""
    key = sizes.measured(state, members)
    if key is None:
        return False
    before = state.learned.scaling
    after = before.observe(key, run.progress.rate, now)
    state.set_learned(replace(state.learned, scaling=after))
    if after.known == before.known:
        return False
    state.view_cache.workload_changed(state.task(run).workload)
    return True


def _taken(state: State, table: StandaloneTable, workload: Workload) -> bool:
    """Keep what was learned of a workload on its own; whether policies get to know of it."""
    before, expected = state.standalone.known, state.valuation.expected
    state.set_learned(replace(state.learned, standalone=table))
    if table.known == before:
        return False
    if state.valuation.expected != expected:
        state.view_cache.rates_changed()
    state.view_cache.workload_changed(workload)
    return True


def unprofiled(state: State, run: TaskRun) -> bool:
    """Whether nothing is known of the standalone throughput of a task run's task."""
    task = state.task(run)
    if task.throughput or not task.reports_steps:
        return False
    return not state.standalone.profiled(task.workload)


def from_silence(state: State, run: TaskRun, since: Millis, now: Millis) -> bool:
    """Learn that a task run's workload reports no iterations: it will have no figure, ever.

    Args:
        state: To be told.
        run: Nothing is learned unless it has run since then without a step.
        since: A few windows ago.
        now: The time.

    Returns:
        Whether it is news that a plan may depend on.
    """
    if run.state is not RunState.RUNNING or run.instance is None or run.progress.steps:
        return False
    if run.started_ms is None or run.started_ms > since:
        return False
    family = base_family(state.instances[run.instance].offering.type.family)
    workload = state.task(run).workload
    return _taken(state, state.standalone.silent(workload, family, now), workload)


def from_silent_end(state: State, run: TaskRun, last: InstanceId, now: Millis) -> bool:
    """Learn from a task run that succeeded without a step that its workload reports none.

    Args:
        state: To be told.
        run: Which.
        last: Where it ran.
        now: The time.

    Returns:
        Whether it is news that a plan may depend on.
    """
    if run.progress.steps or not unprofiled(state, run):
        return False
    family = base_family(state.instances[last].offering.type.family)
    workload = state.task(run).workload
    return _taken(state, state.standalone.silent(workload, family, now), workload)


def from_end(state: State, run: TaskRun) -> None:
    """Learn from a task run that succeeded whether what its job states of run times holds.

    A gang is one measurement, taken from its first member.
    """
    job = state.jobs[run.job]
    stated = job.spec.duration_ms
    if stated is None or not run.took_ms or (job.is_gang and run.index):
        return
    before, owner = state.learned.run_times, job.spec.owner
    workload = state.task(run).workload
    after = before.told(owner, workload, stated, run.took_ms)
    if after is before:
        return
    state.set_learned(replace(state.learned, run_times=after))
    if any(it.of(owner).disbelieved(workload, stated) for it in (before, after)):
        state.view_cache.workload_changed(workload)


def from_job_end(state: State, job: Job, now: Millis) -> None:
    """Learn how long jobs take from one that ends, if any of its tasks has finished."""
    ended = dags.ended(state, job) if job.spec.dag else None
    after = state.learned.run_times
    for traits, finished in estimates.lessons(state, job):
        kept = kept_for(state.estimates)
        after = after.observe(job.spec.owner, traits, finished, now, kept)
    if after is not state.learned.run_times:
        state.set_learned(replace(state.learned, run_times=after))
    if ended is not None:
        known = dags.learned(state, job, ended)
        state.set_learned(replace(state.learned, dags=known))


def _running_members(state: State, run: TaskRun) -> list[TaskRun]:
    gang = state.jobs[run.job].spec.kind is JobKind.GANG
    members = placed(state, run.job) if gang else (run,)
    return [member for member in members if member.state is RunState.RUNNING]


def from_latency(state: State, run: TaskRun, latency: Latency, now: Millis) -> None:
    """Learn how long a start or a stop of a task run's workload takes."""
    kind, delay_ms = latency
    _delay(state, kind, state.task(run).workload, delay_ms, now)


def from_boot(state: State, instance: Instance, now: Millis) -> None:
    """Learn how long an instance of a type takes to come up; its worker has just registered."""
    if instance.up_ms is None:
        return
    name = instance.offering.type.name
    _delay(state, Delay.ACQUISITION, name, max(0, instance.up_ms - instance.requested_ms), now)
    _delay(state, Delay.SETUP, name, max(0, now - instance.up_ms), now)


def _delay(state: State, kind: Delay, name: str, delay_ms: int, now: Millis) -> None:
    before = state.learned.delays
    delays = before.observe(kind, name, delay_ms, now)
    state.set_learned(replace(state.learned, delays=delays))
    if delays.relied_on(kind, name) != before.relied_on(kind, name):
        state.view_cache.workload_changed(name)
