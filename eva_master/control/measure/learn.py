"""From what was measured to what the cluster knows about workloads and instance types."""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.control.measure import dags, estimates, sizes
from eva_master.control.measure.delays import Latency
from eva_master.control.measure.throughput import accompanied, company, standalone_rate
from eva_master.control.state.records import placed
from eva_master.control.state.store import State
from eva_master.learning.delays import Delay
from eva_master.learning.run_times.past_values import kept_for
from eva_master.learning.standalone import StandaloneTable
from eva_master.learning.voices.lessons import NOTHING, Lessons
from eva_master.learning.voices.names import Voice, plain, voice_of
from eva_master.learning.voices.resolution import Resolved, is_news, rows_of
from eva_master.model.catalog import base_family
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.values import replace
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, InstanceId, Millis, Workload
from eva_wire.values.states import RunState

_CLEARLY = 1.05
"""By less a window differs from another for no reason."""


def from_window(state: State, run: TaskRun, now: Millis) -> bool:
    """Learn from a complete window of a running task run.

    A window without neighbours teaches the standalone throughput. A window beside neighbours
    teaches their slowdown of the workload, once its standalone throughput is known; in a gang that
    is attributed to one member (see `learning.attribution`). A gang is one measurement, taken from
    its first member that reports. Where tasks always have neighbours, a window beside them teaches
    both, see `_at_least`.

    Returns:
        Whether a plan may depend on the lesson.
    """
    if not _measures(state, run):
        return False
    members = _running_members(state, run)
    if not any(accompanied(state, member) for member in members):
        return _standalone(state, run, members, now)
    news = _at_least(state, run, members) and _standalone(state, run, members, now)
    voice, before = voice_of(state.jobs[run.job].spec), state.learned.voices
    plans = _of_plans(state, voice)
    entries = [company(state, member) for member in members]
    rates = [standalone_rate(state, member) for member in members]
    positive = [rate for rate in rates if rate]
    if len(positive) < len(rates):
        return news
    # Without neighbours, too, the slowest member would set the pace.
    observed = max(1, min(MILLION, round(run.progress.rate / min(positive) * MILLION)))
    _teach(state, voice, state.learned.of(voice).in_company(entries, observed, now))
    workloads = {entry[0] for entry in entries}
    return news or any(_is_news(state, before, plans, voice, workload) for workload in workloads)


def _at_least(state: State, run: TaskRun, members: list[TaskRun]) -> bool:
    """Whether a window beside neighbours shows that a workload is faster alone than assumed.

    Owned nodes are full: a job may never be alone on one, yet must be compared by its rate there.
    The lesson holds until a window alone teaches more, and only for tasks that state no rate.
    """
    assert run.instance is not None
    places = [state.instances[member.instance] for member in members if member.instance is not None]
    task, family = state.task(run), base_family(places[0].offering.type.family)
    if not all(instance.owned for instance in places) or task.throughput_on(family) is not None:
        return False
    lessons = state.learned.of(voice_of(state.jobs[run.job].spec))
    alone_rate = lessons.standalone.lookup(plain(task.workload), family)
    if alone_rate is not None and state.jobs[run.job].spec.elastic.least is not None:
        alone_rate *= float(sizes.size_speed(state, members))
    return alone_rate is None or alone_rate * _CLEARLY < run.progress.rate


def _standalone(state: State, run: TaskRun, members: list[TaskRun], now: Millis) -> bool:
    families = {
        base_family(state.instances[member.instance].offering.type.family)
        for member in members
        if member.instance is not None
    }
    if len(families) != 1:
        return False  # the member that set the pace is unknown
    if (
        max(member.batch_ppm for member in members) - min(member.batch_ppm for member in members)
        > 1
    ):
        return False  # the pace is that of no single member
    spec, rate, news = state.jobs[run.job].spec, run.progress.rate, False
    if spec.elastic.least is not None:
        news = _of_size(state, run, members, now)
        rate /= float(sizes.size_speed(state, members))
    voice, workload = voice_of(spec), plain(state.task(run).workload)
    table = state.learned.of(voice).standalone.observe(workload, families.pop(), rate, now)
    return _taken(state, voice, table, workload) or news


def _of_size(state: State, run: TaskRun, members: list[TaskRun], now: Millis) -> bool:
    """Learn how fast an elastic gang is with as many members as it has."""
    key = sizes.measured(state, members)
    if key is None:
        return False
    voice = voice_of(state.jobs[run.job].spec)
    lessons = state.learned.of(voice)
    after = lessons.scaling.observe(key, run.progress.rate, now)
    _teach(state, voice, replace(lessons, scaling=after))
    if after.known == lessons.scaling.known:
        return False
    state.view_cache.workload_changed(state.task(run).workload, voice)
    return True


def _teach(state: State, voice: Voice, lessons: Lessons) -> None:
    """Keep what a voice has taught."""
    if lessons is not state.learned.of(voice):
        state.teach(voice, lessons)


def _taken(state: State, voice: Voice, table: StandaloneTable, workload: Workload) -> bool:
    """Keep what a voice has taught of a workload on its own; whether policies get to know of it."""
    lessons, before = state.learned.of(voice), state.learned.voices
    plans = _of_plans(state, voice)
    expected = state.prices.valuation(voice).expected
    _teach(state, voice, replace(lessons, standalone=table))
    if table.known == lessons.standalone.known:
        return False
    if state.prices.valuation(voice).expected != expected:
        state.view_cache.rates_changed(voice)
    state.view_cache.workload_changed(workload, voice)
    return _is_news(state, before, plans, voice, workload)


def _of_plans(state: State, voice: Voice) -> Resolved | None:
    """The figures of plans; `None` if no other voice has taught any, and each lesson is news."""
    return state.figures.resolve() if state.learned.voices.keys() - {voice} else None


def _is_news(
    state: State,
    before: Mapping[Voice, Lessons],
    plans: Resolved | None,
    voice: Voice,
    workload: Workload,
) -> bool:
    """Whether plans reckon with other figures after a voice has taught some of a workload.

    Args:
        state: Knows it by now.
        before: All that was known before.
        plans: The figures by which plans were made then, see `_of_plans`.
        voice: Taught it.
        workload: Its plain name.
    """
    old, new = before.get(voice, NOTHING), state.learned.of(voice)
    rates = new.standalone.known is old.standalone.known
    if rates and new.throughput is old.throughput:
        return False
    return plans is None or is_news(plans, state.figures.resolve(), workload)


def unprofiled(state: State, run: TaskRun) -> bool:
    """Whether nothing is known of the standalone throughput of a task run's task."""
    task = state.task(run)
    if task.throughput or not task.reports_steps:
        return False
    voice, name = voice_of(state.jobs[run.job].spec), plain(task.workload)
    if rows_of(state.learned.of(voice).standalone.known.measured, name):
        return False
    return not state.figures.resolved.profiled(voice, name)


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
    return _silent(state, run, run.instance, now)


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
    return _silent(state, run, last, now)


def _silent(state: State, run: TaskRun, place: InstanceId, now: Millis) -> bool:
    family = base_family(state.instances[place].offering.type.family)
    voice, workload = voice_of(state.jobs[run.job].spec), plain(state.task(run).workload)
    table = state.learned.of(voice).standalone.silent(workload, family, now)
    return _taken(state, voice, table, workload)


def from_end(state: State, run: TaskRun) -> None:
    """Learn from a task run that succeeded whether its job's stated run time is true.

    A gang is one measurement, taken from its first member.
    """
    job = state.jobs[run.job]
    stated = job.spec.duration_ms
    if stated is None or not run.took_ms or (job.is_gang and run.index):
        return
    before, owner = state.learned.run_times, job.spec.owner
    workload = state.task(run).workload
    after = before.record(owner, workload, stated, run.took_ms)
    if after is before:
        return
    state.set_learned(replace(state.learned, run_times=after))
    if any(times.of(owner).disbelieved(workload, stated) for times in (before, after)):
        state.view_cache.workload_changed(workload, voice_of(job.spec))


def from_job_end(state: State, job: Job, now: Millis) -> None:
    """Learn run times from a job that ends, if any of its tasks has finished."""
    ended = dags.ended(state, job) if job.spec.stage.dag else None
    after = state.learned.run_times
    for traits, finished in estimates.lessons(state, job):
        kept = kept_for(state.estimates)
        after = after.observe(job.spec.owner, traits, finished, now, kept)
    if after is not state.learned.run_times:
        state.set_learned(replace(state.learned, run_times=after))
    if ended is not None:
        dag_times = dags.learned(state, job, ended)
        state.set_learned(replace(state.learned, dags=dag_times))


def _measures(state: State, run: TaskRun) -> bool:
    """Whether no member before it reports progress; that one is remembered for all others."""
    if state.jobs[run.job].spec.kind is not JobKind.GANG:
        return True
    tasks = state.tasks[run.job]
    if tasks.measuring is not None and _reports_before(state.runs[tasks.measuring], run):
        return False
    members = _running_members(state, run)
    first = next((member for member in members if _reports_before(member, run)), run)
    tasks.measuring = first.id
    return first is run


def _reports_before(member: TaskRun, run: TaskRun) -> bool:
    running = member.state is RunState.RUNNING
    return running and member.index < run.index and member.progress.rate > 0


def _running_members(state: State, run: TaskRun) -> list[TaskRun]:
    gang = state.jobs[run.job].spec.kind is JobKind.GANG
    members = placed(state, run.job) if gang else (run,)
    return [member for member in members if member.state is RunState.RUNNING]


def from_latency(state: State, run: TaskRun, latency: Latency, now: Millis) -> None:
    """Learn how long a start or a stop of a task run's workload takes."""
    kind, delay_ms = latency
    voice, workload = voice_of(state.jobs[run.job].spec), plain(state.task(run).workload)
    lessons = state.learned.of(voice)
    delays = lessons.delays.observe(kind, workload, delay_ms, now)
    _teach(state, voice, replace(lessons, delays=delays))
    if delays.relied_on(kind, workload) != lessons.delays.relied_on(kind, workload):
        # Where others know nothing of the workload themselves, theirs may change, too.
        state.view_cache.workload_changed(workload)


def from_boot(state: State, instance: Instance, now: Millis) -> None:
    """Learn how long an instance of a type takes to come up; its worker has just registered."""
    if instance.up_ms is None:
        return
    name = instance.offering.type.name
    took_ms = max(0, instance.up_ms - instance.requested_ms)
    delays = state.learned.delays.observe(Delay.ACQUISITION, name, took_ms, now)
    delays = delays.observe(Delay.SETUP, name, max(0, now - instance.up_ms), now)
    state.set_learned(replace(state.learned, delays=delays))


def from_first_image(state: State, instance: Instance, took_ms: int, now: Millis) -> None:
    """Learn how long the first image on an instance of a type takes."""
    name = instance.offering.type.name
    delays = state.learned.delays.observe(Delay.IMAGE, name, took_ms, now)
    state.set_learned(replace(state.learned, delays=delays))
