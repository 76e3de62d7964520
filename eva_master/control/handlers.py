"""Messages of the cloud and the workers, taken into the state.

Messages may come late, twice or never. Each is compared with the record it is about: a message that
no longer applies is dropped, and a contradiction is resolved so that no attempt ever runs twice and
none is given up before its end is certain.
"""

from __future__ import annotations

from eva_master.control import failures
from eva_master.control.context import Context
from eva_master.control.features.deadlines import market_choice
from eva_master.control.features.forks import copies, epochs
from eva_master.control.features.gangs import half_placed
from eva_master.control.features.measuring.memory import MeasuringMemory
from eva_master.control.features.replicas import settling
from eva_master.control.features.shared_limits.memory import SharedLimitsMemory
from eva_master.control.features.standstill import running_times
from eva_master.control.lines.memory import LineMemory
from eva_master.control.measure import learn, ledger, memory, remaining, stored
from eva_master.control.measure.throughput import tells_more
from eva_master.control.rounds.shared_queue import waiting_units
from eva_master.control.stopping import grace
from eva_master.control.supply import availability, departures, nodes, restored, spot
from eva_master.control.supply.memory import SupplyMemory
from eva_master.model.catalog import Purchase
from eva_master.model.events import (
    ClocksMoved,
    CloudListed,
    InstanceGone,
    InstanceUp,
    LaunchFailed,
    Phase,
    ProgressSampled,
    Quoted,
    RunReport,
    WorkerFetched,
    WorkerLost,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.progress import Progress
from eva_master.model.records import StopReason, TaskRun
from eva_master.model.values import replace
from eva_wire.values.ids import InstanceId, Millis, RunId
from eva_wire.values.states import HOLDING, LIVE, InstanceState, JobState, RunState

# -- cloud ---------------------------------------------------------------------------------------


def instance_up(context: Context, event: InstanceUp) -> None:
    """The cloud bills an instance."""
    instance = context.state.instances.get(event.instance)
    if instance is None:
        _unwanted(context, event.instance)
        return
    if instance.state is InstanceState.GONE or instance.up_ms is not None:
        return
    up = replace(instance, up_ms=event.up_ms)
    if up.state is InstanceState.LAUNCHING:
        up = up.to(InstanceState.UP, context.now)
    spot.sold(context, up.offering)
    context.put_instance(up)
    if context.memory(SharedLimitsMemory).doubts(up.offering.id):
        context.plan_wanted = True  # Others may try now.
    ledger.open_account(context.state, up)


def instance_gone(context: Context, event: InstanceGone) -> None:
    """The cloud has no such instance any more, so nothing runs on it."""
    instance = context.state.instances.get(event.instance)
    if instance is None or instance.state is InstanceState.GONE:
        return
    availability.note_end(context, instance, event.reason, reclaimed=event.reclaimed)
    gone_ms = event.gone_ms
    if instance.up_ms is not None and event.up_ms is not None:
        # The bill is the time between both by the cloud's clock, wherever that stands by now.
        gone_ms = Millis(instance.up_ms + event.gone_ms - event.up_ms)
    gone = replace(instance, gone_ms=gone_ms, up_ms=instance.up_ms or event.up_ms)
    if event.reason and instance.state is not InstanceState.TERMINATING:
        gone = replace(gone, reason=event.reason)
    if gone.up_ms is not None:
        ledger.close_account(context.state, gone)
        spot.note_end(context, gone)
    departures.remove(context, gone)


def launch_failed(context: Context, event: LaunchFailed) -> None:
    """The cloud will not launch an instance."""
    instance = context.state.instances.get(event.instance)
    if instance is None or instance.state is InstanceState.GONE or instance.up_ms is not None:
        return
    refused = (instance.offering.id, *event.also)
    until = spot.refused(context, instance, event.retry_at, event.reason)
    if context.settings.partitions.divided:
        context.memory(SharedLimitsMemory).refused(refused, context.now, until)
    availability.refuse(context, refused, until, event.reason)
    comers = context.state.places.targeting(instance.id)
    for run in comers:
        context.explain(run, f"{instance.offering.id} could not be launched: {event.reason}")
    departures.remove(context, replace(instance, reason=event.reason))
    gangs = dict.fromkeys(run.job for run in comers)
    half_placed.refused(context, gangs, lambda: waiting_units(context))


def quoted(context: Context, event: Quoted) -> None:
    """Prices have changed; what was used until now is booked as it was.

    Instances that are bought on the spot market follow it.
    """
    prices = dict(event.prices)
    for name in tuple(context.state.live):
        ledger.book(context.state, name, context.now)
        instance = context.state.instances[name]
        spot = instance.offering.purchase is Purchase.SPOT
        if spot and (price := prices.get(instance.offering.id)) is not None:
            context.put_instance(instance.at_price(price, context.now))
    context.state.set_prices(prices)


def clocks_moved(context: Context, event: ClocksMoved) -> None:
    """The wall clock was set, or this machine has slept."""
    if event.wall is not context.state.wall:
        market_choice.follow_wall_clock(context, event.wall)
    running_times.slept(context, event.slept_ms)


def closing_down(context: Context) -> None:
    """The cluster ends: every instance goes, and from now on nothing is planned or started."""
    context.closing_down = True
    for job in tuple(context.state.active):
        grace.shortened(context, context.state.in_hand(job))
    for name in tuple(context.state.live):
        instance = context.state.instances[name]
        if instance.owned:
            context.abandon(name)
            context.touch_instance(name)
        else:
            context.dismiss(instance, "the cluster is shut down")


def cloud_listed(context: Context, event: CloudListed) -> None:
    """Compare the instances that the cloud bills with the records.

    Unwanted instances are noted, and terminated once they have stayed unwanted for a while.

    A missing instance is asked about by repeating its launch, which the cloud answers with the
    outcome of the first one.
    """
    listed = {instance for instance, _ in event.instances}
    for absent in context.memory(SupplyMemory).unwanted.keys() - listed:
        del context.memory(SupplyMemory).unwanted[absent]
    for ours in map(context.state.instances.__getitem__, context.state.live):
        if ours.up_ms is not None and ours.id not in listed and not ours.owned:
            context.outbox.launch(ours)
    for instance, up_ms in event.instances:
        record = context.state.instances.get(instance)
        if record is not None and record.state is InstanceState.GONE:
            context.outbox.terminate(instance)
        else:
            instance_up(context, InstanceUp(instance, up_ms))
    restored.listed(context)


def _unwanted(context: Context, instance: InstanceId) -> None:
    """Terminate an instance that no record explains, after a while.

    The delay is for the case that the journal is wrong: it may have been restored or begun anew
    while instances of the old one still work.
    """
    since = context.memory(SupplyMemory).unwanted.setdefault(instance, context.now)
    if context.now - since >= context.settings.unwanted_ms:
        context.outbox.terminate(instance)


# -- workers -------------------------------------------------------------------------------------


def worker_registered(context: Context, event: WorkerRegistered) -> None:
    """A worker opened a session and lists every attempt it knows of."""
    if event.session <= context.state.sessions.get(event.instance, 0):
        return
    owned = nodes.registered(context, event)
    instance = context.state.instances.get(event.instance)
    if instance is None:
        _unwanted(context, event.instance)
        return
    if instance.state is InstanceState.GONE:
        if not instance.owned:  # Else it is no node any more.
            context.outbox.terminate(event.instance)
        return
    context.state.sessions.begin(event.instance, event.session)
    context.memory(SupplyMemory).silent.pop(event.instance, None)
    context.outbox.forget(event.instance)
    if instance.ready_ms is None and not owned and not event.unfit:
        availability.registered(context, instance)
    if instance.ready_ms is None:
        context.memory(LineMemory).plan_if_claimed(context, instance.id)
    address, confinement = event.address, event.confinement
    context.put_instance(replace(instance, address=address, confinement=confinement))
    if owned:
        news = memory.heard_disk(context.state, instance.id, event.capacity.disk_mib)
    else:
        news = memory.heard(context.state, instance.id, event.measured_mib, context.now)
    context.plan_wanted = context.plan_wanted or news
    listed = {(report.run, report.attempt) for report in event.reports}
    for run in context.state.occupants(event.instance):
        lost = (run.id, run.attempt) not in listed
        if lost and run.state is RunState.RUNNING:
            context.stop(run, StopReason.LOST)  # its answer makes certain that nothing runs
    restored.heard(context, event.instance)
    for report in event.reports:
        _take(context, event.instance, report)
    # Tasks of an earlier agent are stopped by this one, which then says goodbye.
    if event.unfit and not event.reports and instance.state in LIVE:
        context.dismiss(instance, availability.unfit(context, instance, event.unfit))


def worker_reported(context: Context, event: WorkerReported) -> None:
    """Something changed on a worker."""
    if event.session == context.state.sessions.get(event.instance):
        for report in event.reports:
            _take(context, event.instance, report)


def worker_fetched(context: Context, event: WorkerFetched) -> None:
    """A task run's files wait for it on its target."""
    run = context.state.runs.get(event.run)
    if run is not None and run.target == event.instance and run.fetched != event.instance:
        _image_there(context, event.instance, None, event.image_ms)
        context.put_run(replace(run, fetched=event.instance))


def _image_there(
    context: Context, instance_id: InstanceId, run: RunId | None, image_ms: int | None
) -> None:
    """Learn how long the first image on a new instance took."""
    instance = context.state.instances[instance_id]
    if image_ms is None or instance.ready_ms is None:
        return
    took_ms = min(image_ms, context.now - instance.ready_ms)
    latencies = context.memory(MeasuringMemory).latencies
    if latencies.image_there(instance_id, run, took_ms, context.now):
        learn.from_first_image(context.state, instance, took_ms, context.now)


def worker_lost(context: Context, event: WorkerLost) -> None:
    """Record the end of a session; without a goodbye the worker may come back, its tasks run on."""
    if event.session != context.state.sessions.get(event.instance):
        return
    context.state.sessions.end(event.instance)
    instance = context.state.instances.get(event.instance)
    if instance is None:
        return
    _unmeasured(context, event.instance)
    said = "its worker said goodbye" + (f": {event.reason}" if event.reason else "")
    if event.goodbye and instance.owned:
        nodes.left(context, instance, said)
    elif event.goodbye:
        availability.note_end(context, instance, said, reclaimed=False)
        # If the cloud gave notice, keep its reason.
        context.dismiss(instance, instance.reason if instance.leaving_ms is not None else said)
    if event.instance in context.state.live:
        context.memory(SupplyMemory).silent[event.instance] = context.now
        context.touch_instance(event.instance)
        epochs.cut_off(context, event.instance)


def progress_sampled(context: Context, event: ProgressSampled) -> None:
    """Throughput reports; only what was learned from them is ever written."""
    if event.session != context.state.sessions.get(event.instance):
        return
    if event.disturbed:
        _unmeasured(context, event.instance)
    for run_id, attempt, heard in event.samples:
        run = context.state.runs.get(run_id)
        if run is None or run.attempt != attempt or run.instance != event.instance:
            continue
        progress, complete = context.memory(MeasuringMemory).rates.sample(run, heard, context.now)
        if complete:
            ledger.book(context.state, event.instance, context.now)
        progress = progress.heard(context.now, run.progress)
        context.state.put_progress(run, progress)
        if latency := context.memory(MeasuringMemory).latencies.stepped(run_id, heard, context.now):
            learn.from_latency(context.state, run, latency, context.now)
        if complete and learn.from_window(context.state, context.state.runs[run_id], context.now):
            context.plan_wanted = True
        if complete or tells_more(run.progress, progress):
            remaining.follow(context.state, context.state.runs[run_id], context.now)


def _unmeasured(context: Context, instance: InstanceId) -> None:
    """Restart measurements of an instance whose tasks stood still or shared it with a user.

    A measurement across such a time would count as interference between tasks.
    """
    ledger.book(context.state, instance, context.now)
    context.memory(MeasuringMemory).rates.restart(context.state, instance)
    context.memory(MeasuringMemory).latencies.forget(context.state, instance)


def _take(context: Context, instance: InstanceId, report: RunReport) -> None:
    run = context.state.runs.get(report.run)
    ours = run is not None and run.attempt == report.attempt and run.instance == instance
    if run is not None and ours:
        run = running_times.follow(context, run, report)
    if report.phase is Phase.EXITED:
        if run is not None and ours and run.state in HOLDING:
            _exited(context, _noted(context, run, report), report)
        context.outbox.forget_task(instance, report.run, report.attempt)
        restored.stopped(context, instance, report.run, report.attempt)
        return
    if run is None or not ours or run.state not in HOLDING:
        grace_ms = restored.grace_ms(context, instance, report)
        context.outbox.kill(instance, report.run, report.attempt, grace_ms)
        return
    noted = _noted(context, run, report)
    if report.phase is Phase.RUNNING and run.state is RunState.STARTING:
        if run.attempt == 1 or run.started_ms is None:
            on = context.state.instances[instance]
            ledger.book_boot(context.state, run, on, context.now)
        if not context.state.instances[instance].owned:
            availability.worked(context, context.state.instances[instance])
        _image_there(context, instance, run.id, report.image_ms)
        history = noted.entering(RunState.RUNNING, context.now)
        noted = replace(noted, history=history, started_ms=context.now)
    if noted != run:
        context.put_run(noted)


def _noted(context: Context, run: TaskRun, report: RunReport) -> TaskRun:
    if report.not_stored != run.not_stored:
        run = replace(run, not_stored=report.not_stored)
    heard: Progress = run.progress
    if report.progress is not None:
        heard = report.progress.after(run.progress).heard(context.now, run.progress)
    if heard == run.progress and report.generation <= run.generation:
        return run
    return stored.heard(context.state, run, heard, report.generation, context.now)


def _exited(context: Context, run: TaskRun, report: RunReport) -> None:
    job = context.state.jobs[run.job]
    run = replace(run, exit_code=report.exit_code)
    wanted = run.state is RunState.STOPPING
    if run.stop is StopReason.REPLICA or settling.winner(context, run) is not None:
        # Another run of its task has succeeded before, or it was retired: its end tells nothing.
        context.release(replace(run, stop=StopReason.REPLICA), target=None)
    elif _is_good(report) and not copies.ends_its_job(job, run):
        early = replace(run, stop=StopReason.REPLICA, why=copies.ENDED_EARLY)
        context.release(early, target=None)
    elif _is_good(report):
        if run.instance is not None:
            failures.blame(context, run.instance, run.job, blameless=False)
        availability.proven(context, [run.job])
        copies.succeeded(context, run)
        context.put_run(
            replace(
                run,
                history=run.entering(RunState.SUCCEEDED, context.now),
                instance=None,
                target=None,
                fetched=None,
                stop=None,
            )
        )
    elif run.stop is not StopReason.LATE and (report.stopped or run.stop is StopReason.LOST):
        # A stop that was not ours means that the instance is shutting down: no place to go back to.
        lost = not wanted or run.stop is StopReason.LOST
        if not wanted and run.instance is not None:
            leaving = context.state.instances[run.instance]
            availability.note_end(context, leaving, "its worker leaves", reclaimed=False)
        context.release(run, target=_after_stop(context, run) if wanted else None, lost=lost)
    else:
        late = run.stop is StopReason.LATE
        failure = failures.late(context, run) if late else failures.observed(context, run, report)
        place = run.instance
        context.release(run, target=_after_stop(context, run))
        if place is not None:
            failures.blame(context, place, run.job, blameless=report.blameless, why=failure.reason)
        if job.state is JobState.ENDING:
            return
        if not job.is_gang:
            failures.count_task(context, context.state.runs[run.id], failure)
        elif len(job.spec.tasks) > 1:
            failures.note(context, context.state.jobs[run.job], failure)
        else:
            failures.count(context, context.state.jobs[run.job], failure)


def _is_good(report: RunReport) -> bool:
    """Whether a program has come to its end with success, unasked."""
    return report.exit_code == 0 and not report.stopped and not report.never_started


def _after_stop(context: Context, run: TaskRun) -> InstanceId | None:
    return run.target if run.target and context.state.can_place(run.target) else None
