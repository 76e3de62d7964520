"""How jobs stand to their deadlines and to spot instances: messages, notes and metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import erfc, log, sqrt

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from eva_client.cli.views.words import ago, share
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.shown.part import Asked, Part
from eva_master.model.arithmetic.loop_time import AS_LOOP, WallClock
from eva_master.model.catalog import Catalog, is_spot
from eva_master.model.changes import JobAccount
from eva_master.model.job import JobSpec, different
from eva_master.model.records import Job
from eva_master.ports.reading import Outlook, ReadModel
from eva_wire.text.moments import date_of
from eva_wire.values.durations import span
from eva_wire.values.ids import MILLION, Family, Millis, micro_usd
from eva_wire.values.states import TERMINAL_JOB, MarketRule

_CHECKPOINT_MS = 60_000
_MOST_DUE = 50
"""Jobs with deadlines that notes are about, the first ones due."""
_PRESSED = (MarketRule.ALONE, MarketRule.STAYS)
"""Rules by which a job has used the time that is kept for a change."""
_LATE_PPM = 100_000
"""Chance of being late from which on a job is told."""
_WHY = {
    MarketRule.ON_DEMAND: "it is kept off spot instances: there is no time to lose one",
    MarketRule.APART: "it shares no instance: in company it would be late",
    MarketRule.ALONE: "it shares no instance and is kept off spot ones: else it would be late",
    MarketRule.STAYS: "it is not moved any more, and others leave its instance:"
    " else it would be late",
}


def buying_of(
    job: Job, outlook: Outlook, now: Millis, wall: WallClock = AS_LOOP
) -> pb.Buying | None:
    """The purchases allowed for a job; `None` if there is nothing to tell."""
    deadline = job.spec.deadline
    if deadline is None and job.buys is MarketRule.ANY:
        return None
    return pb.Buying(
        what=job.buys.value,
        since_ms=job.buys_ms or 0,
        until_ms=job.buys_until_ms,
        due_ms=None if deadline is None else deadline.due_ms(job.submitted_ms, wall),
        fails=deadline is not None and deadline.fails,
        late_ppm=late_ppm(job, outlook, now, wall),
    )


def late_ppm(job: Job, outlook: Outlook, now: Millis, wall: WallClock = AS_LOOP) -> int | None:
    """The chance that a job is late, in millionths.

    The chance is that of a longer run time. Interruptions add nothing to it, since the time for a
    change to others is always kept.

    Returns:
        `None` if it has no deadline, is over, or nobody knows how long it takes.
    """
    deadline = job.spec.deadline
    if deadline is None or job.state in TERMINAL_JOB:
        return None
    due_ms = deadline.due_ms(job.submitted_ms, wall)
    if now >= due_ms:
        return MILLION
    left_ms = outlook.left_ms if outlook.eta_ms is None else outlook.eta_ms - now
    if left_ms is None:
        return None
    if outlook.latest_ms is None or left_ms <= 0 or outlook.latest_ms - now <= left_ms:
        return MILLION if now + left_ms > due_ms else 0
    # In two of three cases it takes no longer than at the latest: one standard deviation.
    deviation = log((outlook.latest_ms - now) / left_ms)
    return round(MILLION * erfc(log((due_ms - now) / left_ms) / deviation / sqrt(2)) / 2)


def markets_of(job: Job, account: JobAccount, now: Millis) -> pb.Markets | None:
    """Where a job has run; `None` if it is of no interest."""
    if job.spec.deadline is None and not (account.spot_ms or account.interruptions):
        return None
    return pb.Markets(
        spot_micro_usd=micro_usd(account.spot),
        listed_micro_usd=micro_usd(account.listed),
        spot_ms=account.spot_ms,
        other_ms=account.busy_ms - account.spot_ms,
        waiting_ms=job.waited_ms(now),
        interruptions=account.interruptions,
    )


def why_it_waits(job: Job, wall: WallClock = AS_LOOP) -> str:
    """Reason of a task that waits for a spot instance; empty if it waits for none."""
    if job.buys is not MarketRule.SPOT or job.buys_until_ms is None:
        return ""
    return f"it waits for a spot instance, until {_time(wall.of(job.buys_until_ms))} at the latest"


def explain(
    job: Job,
    ends_ms: int | None,
    now: Millis,
    life_ms: int | None = None,
    wall: WallClock = AS_LOOP,
) -> Iterator[str]:
    """How a job stands to its deadline and to spot instances, a sentence each.

    Args:
        job: Which.
        ends_ms: When it ends at its pace; `None` if that is not known.
        now: The loop's time, as all others.
        life_ms: How long a spot instance lasts on average that it may use, `None` for none.
        wall: The wall clock, which users read.
    """
    deadline = job.spec.deadline
    if deadline is not None:
        due_ms = deadline.due_ms(job.submitted_ms, wall)
        yield f"due at {_time(wall.of(due_ms))}{_margin(job, due_ms, ends_ms, now)}"
        if deadline.at_ms is not None and job.state not in TERMINAL_JOB:
            yield from clock_was_set(wall)
    if job.state in TERMINAL_JOB:
        return
    if waits := why_it_waits(job, wall):
        yield waits + _cheaper(job)
    elif (why := _WHY.get(job.buys)) is not None:
        yield f"since {_time(wall.of(job.buys_ms or 0))} {why}"
    if deadline is not None and _on_spot_alone(job.spec):
        yield "it may run on spot instances alone: without any, nothing keeps its deadline"
    if life_ms is not None and not job.buys.kept:
        yield _interval(job.spec.restarts.checkpoint_interval_ms, life_ms)


_FOLLOWS = "deadlines at a time of day follow it, and nothing else does"


def clock_was_set(wall: WallClock) -> Iterator[str]:
    """That the wall clock was set while the master ran or was away, if it was."""
    apart_ms = wall.ahead_ms if wall.set_ms is None else wall.set_by_ms
    by = span(abs(apart_ms) + 500)
    if wall.set_ms is not None:
        way, at = "forward" if apart_ms > 0 else "back", _time(wall.of(wall.set_ms))
        yield f"the clock of the master's machine was set {by} {way} at {at}: {_FOLLOWS}"
    elif apart_ms:
        way = "ahead of" if apart_ms > 0 else "behind"
        yield f"the clock of the master's machine is {by} {way} the master's time: {_FOLLOWS}"


def _interval(stated_ms: int, life_ms: int) -> str:
    """How often it should store a checkpoint, by Young's rule."""
    best_ms = round(sqrt(2 * _CHECKPOINT_MS * life_ms)) // 60_000 * 60_000
    stated = f"; it says every {span(stated_ms)}" if stated_ms else ""
    return (
        f"a spot instance that it may use lasts {span(life_ms)} on average: without notice least "
        f"is lost with a checkpoint every {span(best_ms)}, if one takes a minute{stated}"
    )


def notes_on(spec: JobSpec, sold: Catalog | None = None) -> tuple[str, ...]:
    """Notes that a user who submits such a job should know.

    Args:
        spec: The job.
        sold: The offerings of its partition; `None` where these are not known.
    """
    families = (
        None if sold is None else {offering.type.family for offering in sold if offering.limit != 0}
    )
    if spec.deadline is None:
        wanted = {family for task in different(spec.tasks) for family, _ in task.demand}
        if not spec.spot_wait_ms or families is None or any(map(is_spot, wanted & families)):
            return ()
        return ("`spot_wait`: no spot instances are sold to the job here, so it waits for none",)
    if _on_spot_alone(spec):
        return ("`spot: only`: when there are no spot instances, nothing keeps the deadline",)
    if families is None or not _on_spot_alone(spec, families):
        return ()
    return (
        "the job can run on spot instances alone here: when there are none, nothing keeps the"
        " deadline",
    )


def _on_spot_alone(spec: JobSpec, families: Collection[Family] | None = None) -> bool:
    """Whether a task of a job can run on spot instances alone, of the families that are sold."""
    kinds = ([family for family, _ in task.demand] for task in different(spec.tasks))
    sold = ([family for family in kind if families is None or family in families] for kind in kinds)
    return any(kind and all(map(is_spot, kind)) for kind in sold)


def _cheaper(job: Job) -> str:
    return "" if job.spec.deadline is None else ": that is expected to be cheaper than on demand"


def _margin(job: Job, due_ms: int, ends_ms: int | None, now: Millis) -> str:
    ended = job.state in TERMINAL_JOB
    end_ms = job.finished_ms if ended else ends_ms
    if end_ms is None:
        return ", and it is late" if not ended and now > due_ms else ""
    margin = due_ms - end_ms
    when = f"{span(abs(margin))} {'before' if margin >= 0 else 'after'} that"
    return f"; it ended {when}" if ended else f"; at its pace it ends {when}"


def _time(at: int) -> str:
    return f"{date_of(at):%Y-%m-%d %H:%M:%S} UTC"


def _due_ms(job: Job, wall: WallClock) -> int:
    assert job.spec.deadline is not None
    return job.spec.deadline.due_ms(job.submitted_ms, wall)


def _notes(model: ReadModel, now: Millis) -> Iterator[pb.Note]:
    """Active jobs that are late, or may be, the first ones due."""
    jobs = [job for job in model.active.values() if job.spec.deadline is not None]
    for job in sorted(jobs, key=lambda job: _due_ms(job, model.wall))[:_MOST_DUE]:
        due_ms = _due_ms(job, model.wall)
        outlook, _ = model.outlooks(model.record(job.id, now), now)
        ppm = late_ppm(job, outlook, now, model.wall) or 0
        if due_ms < now:
            level, sentence = "bad", f"It is late: it was due {ago(due_ms, now)}."
            advice = "A job of higher priority goes first."
        elif ppm >= _LATE_PPM:
            chance = share(ppm, MILLION)
            level = "warn"
            sentence = f"Due in {span(due_ms - now)}, and late with a chance of {chance}."
            advice = "Eva keeps it off spot instances and neighbours where that helps."
        else:
            continue
        yield pb.Note(
            level=level,
            kind="job",
            subject=job.id,
            sentence=sentence,
            advice=advice,
            command=f"eva explain {job.id}",
        )


def metrics(model: ReadModel, now: Millis) -> Iterator[Metric]:
    """How many jobs are late, or have no time left to lose."""
    jobs = [job for job in model.active.values() if job.spec.deadline is not None]
    late = [job for job in jobs if now > _due_ms(job, model.wall)]
    ids = {job.id for job in late}
    pressed = [job for job in jobs if job.id not in ids and job.buys in _PRESSED]
    yield GaugeMetricFamily(
        "eva_deadlines_at_risk",
        "Jobs that are late for their deadlines, or have no time left to lose.",
        value=len(late) + len(pressed),
    )
    yield GaugeMetricFamily("eva_late_jobs", "Jobs whose deadlines have passed.", value=len(late))


def _job(asked: Asked) -> pb.Job:
    job, now = asked.record.job, asked.now
    return pb.Job(
        buying=buying_of(job, asked.outlook, now, asked.model.wall),
        markets=markets_of(job, asked.record.account, now),
    )


def _waits(model: ReadModel, job: Job) -> str:
    return why_it_waits(job, model.wall)


def _explanation(asked: Asked) -> pb.Explanation:
    job, model, outlook, now = asked.record.job, asked.model, asked.outlook, asked.now
    ends_ms = outlook.eta_ms
    if ends_ms is None and outlook.left_ms is not None:
        ends_ms = Millis(now + outlook.left_ms)  # one that waits, if it began now
    lines = explain(job, ends_ms, now, model.spot_life_ms(job), model.wall)
    return pb.Explanation(market=lines)


def _cluster(model: ReadModel, _: Millis) -> pb.ClusterState:
    return pb.ClusterState(clock=next(clock_was_set(model.wall), ""))


PART = Part(
    job=_job,
    waits=_waits,
    explanation=_explanation,
    cluster=_cluster,
    doubts=notes_on,
    notes=_notes,
    metrics=metrics,
)
