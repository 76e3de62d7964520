"""Markets that a job may buy from: all, spot instances alone, or on demand alone."""

from __future__ import annotations

from typing import NamedTuple

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.features.deadlines.choosing import (
    expected_afresh,
    has_room,
    is_crowded,
    situation_of,
    what_is_expected,
)
from eva_master.control.features.deadlines.memory import DeadlineMemory
from eva_master.control.features.deadlines.slack import Slack, has_a_choice, slack, slack_alone_ms
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords, crew
from eva_master.model.arithmetic.loop_time import WallClock
from eva_master.model.catalog import Purchase
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.records import Job, Outcome
from eva_master.model.values import replace
from eva_master.packing.deadlines.choice import Chooser
from eva_master.packing.deadlines.table import UNKNOWN, MarketChoice
from eva_wire.values.ids import MILLION, Millis
from eva_wire.values.states import JobState, MarketRule, RunState

_LATE_EXIT_CODE = 124
_SHORTEST_MS = 10_000
"""Least time to the next check of slack; less slack counts as none."""
_TELLING_MS = 60_000
"""Difference from which the end of a wait is recorded anew."""
_LOOK_MS = 300_000
"""Interval at which a waiting job's choice is reconsidered."""


def choose_market(context: Context, job: Job) -> None:
    """Choose the markets for a job now, and when to check again.

    A late job is failed if its user wants it so.
    """
    spec = job.spec
    if job.state is JobState.ENDING or (spec.deadline is None and not spec.spot_wait_ms):
        return
    if _failed(context, job) or job.waits:
        return
    if not has_a_choice(context.state, job, context.settings):
        choice = _Found(MarketRule.ANY)  # The job may have had a choice in another partition.
    else:
        choice = _patient(context, job) if spec.deadline is None else _in_time(context, job)
    buys, look_ms, wait_ms = choice
    until_ms = None if wait_ms is None else Millis(context.now + wait_ms)
    if buys is not job.buys:
        context.put_job(replace(job, buys=buys, buys_ms=context.now, buys_until_ms=until_ms))
        context.state.view_cache.job_changed(job.id)
        context.plan_wanted = True
        if buys.kept:
            _turn_back(context, job)
            if buys.alone:
                _keep_alone(context, job)
    elif _differ(until_ms, job.buys_until_ms):
        context.put_job(replace(job, buys_until_ms=until_ms))
        context.state.view_cache.job_changed(job.id)
    if buys.kept and _came_to_spot(context, job):
        context.plan_wanted = True
    if look_ms is not None:
        _look_again(context, job, Millis(context.now + max(_SHORTEST_MS, look_ms)))


def follow_wall_clock(context: Context, wall: WallClock) -> None:
    """Take in that the wall clock was set: deadlines at a time of day are nearer now, or farther.

    Args:
        context: The present one.
        wall: How it stands from now on.
    """
    context.state.wall = wall
    for name in context.state.with_deadlines:
        deadline = context.state.jobs[name].spec.deadline
        if deadline is not None and deadline.at_ms is not None:
            context.memory(DeadlineMemory).looks.pop(name, None)
            context.touch_job(name)


def _differ(until_ms: Millis | None, told_ms: Millis | None) -> bool:
    """Whether what was told of a wait's end is worth telling anew."""
    if until_ms is None or told_ms is None:
        return until_ms is not told_ms
    return abs(until_ms - told_ms) >= _TELLING_MS


def _look_again(context: Context, job: Job, at: Millis) -> None:
    """Look at a job at a time, or sooner: each look decides when the next one is."""
    before = context.memory(DeadlineMemory).looks.get(job.id)
    if before is None or before <= context.now or at < before:
        context.memory(DeadlineMemory).looks[job.id] = at
        context.alarms.at(at, Alarm.job(job.id))


def _came_to_spot(context: Context, job: Job) -> bool:
    """Whether one runs on a spot instance since this moment: it could not be moved before."""
    return any(
        run.state is RunState.RUNNING
        and run.since_ms == context.now
        and run.instance is not None
        and context.state.instances[run.instance].offering.purchase is Purchase.SPOT
        for run in context.state.in_hand(job.id)
    )


def _turn_back(context: Context, job: Job) -> None:
    """Cancel moves to spot instances, and starts there; plans move running tasks."""
    for run in crew(context.state, job.id) if job.is_gang else context.state.in_hand(job.id):
        target = run.target
        if target is not None and (target != run.instance or run.state is RunState.STOPPING):
            instance = context.state.instances[target]
            if instance.offering.purchase is Purchase.SPOT:
                context.turn_back(run, target)


def _keep_alone(context: Context, job: Job) -> None:
    """Turn jobs with time to lose back from instances with a job that has none."""
    for place in {run.target for run in context.state.in_hand(job.id) if run.target is not None}:
        for comer in context.state.places.coming(place):
            kept = context.state.jobs[comer.job].buys.kept
            if comer.state is RunState.WAITING and not kept:
                context.turn_back(comer, place)


def _failed(context: Context, job: Job) -> bool:
    """Fail a job that is late if its user wants it so; if it may be, look again when it is."""
    deadline = job.spec.deadline
    if deadline is None or not deadline.fails:
        return False
    due_ms = deadline.due_ms(job.submitted_ms, context.state.wall)
    if context.now < due_ms:
        context.alarms.at(Millis(due_ms), Alarm.job(job.id))
        return False
    reason = "it was not done by its deadline (`deadline_miss: fail`)"
    ending = job.to(JobState.ENDING, context.now)
    context.put_job(
        replace(ending, outcome=Outcome.FAILED, exit_code=_LATE_EXIT_CODE, reason=reason)
    )
    return True


class _Found(NamedTuple):
    """Markets to buy from, when to check again, and how long the job waits at most."""

    buys: MarketRule
    look_ms: int | None = None
    wait_ms: int | None = None


def at_submission(state: PlanningRecords, job: Job, now: Millis, settings: Settings) -> MarketRule:
    """Market for a job that is submitted now, while no part of it has a place.

    Room that is free on demand, and pools that are crowded, are left aside.
    """
    spec = job.spec
    if job.waits or not has_a_choice(state, job, settings):
        return MarketRule.ANY
    if spec.deadline is None:
        return MarketRule.SPOT if spec.spot_wait_ms else MarketRule.ANY
    if now >= spec.deadline.due_ms(job.submitted_ms, state.wall):
        return MarketRule.ANY
    stands = slack(state, job, now, settings)
    if stands is None:
        return MarketRule.ON_DEMAND
    if stands.slack_ms <= 0:
        return MarketRule.STAYS
    if stands.slack_ms <= _SHORTEST_MS:
        return MarketRule.ON_DEMAND
    rule, learned = settings.spot_choice, settings.spot_choice is SpotChoice.LEARNED
    expected = expected_afresh(state, job) if learned else UNKNOWN
    choice = Chooser().choose(rule, expected, situation_of(state, job, stands, now))
    if choice is MarketChoice.WAIT:
        return MarketRule.SPOT
    return (
        MarketRule.ON_DEMAND if choice is MarketChoice.ON_DEMAND and not learned else MarketRule.ANY
    )


def _patient(context: Context, job: Job) -> _Found:
    """Let a job without a deadline wait for spot instances for as long as its user said.

    The tasks of an array wait only once, from its submission on.
    """
    since: int = job.submitted_ms
    if job.is_gang:
        waits = [run for run in crew(context.state, job.id) if run.state is RunState.WAITING]
        if not waits:
            return _Found(MarketRule.ANY)
        since = max(run.since_ms for run in waits)
    left_ms = since + job.spec.spot_wait_ms - context.now
    return _Found(MarketRule.SPOT, left_ms, left_ms) if left_ms > 0 else _Found(MarketRule.ANY)


def _in_time(context: Context, job: Job) -> _Found:
    assert job.spec.deadline is not None
    if context.now >= job.spec.deadline.due_ms(job.submitted_ms, context.state.wall):
        context.memory(DeadlineMemory).thin_work.drop(job.id)
        return _Found(MarketRule.ANY)  # The job is late at any cost.
    stands = slack(context.state, job, context.now, context.settings)
    if stands is None:
        return _Found(MarketRule.ON_DEMAND)
    crowded = is_crowded(context, job, stands)
    # A job that came back at once would have to leave again at the first loss.
    again_ms = max(stands.reserve_ms, 2 * _SHORTEST_MS)
    if stands.slack_ms <= (again_ms if job.buys.kept else _SHORTEST_MS):
        alone_ms = slack_alone_ms(context.state, job, context.now, stands)
        gained_ms = alone_ms - stands.slack_ms
        alone = replace(stands, left_ms=stands.left_ms - gained_ms, slack_ms=alone_ms)
        if alone_ms > again_ms and not crowded and _chosen(context, job, alone) is MarketRule.ANY:
            return _Found(MarketRule.APART, alone_ms - again_ms)
        buys = MarketRule.ON_DEMAND
        if stands.slack_ms <= 0 or (job.buys.kept and job.buys.alone):
            moves = gained_ms > 0 and alone_ms + stands.reserve_ms >= stands.change_ms
            buys = MarketRule.ALONE if moves else MarketRule.STAYS
        return _Found(buys, stands.slack_ms if stands.slack_ms > 0 else None)
    buys = MarketRule.ON_DEMAND if crowded else _chosen(context, job, stands)
    if buys is MarketRule.ANY and job.buys is MarketRule.APART and _goes_apart(context, job):
        buys = MarketRule.APART  # A job that left its neighbours does not return to them.
    # Slack does not pass faster than the clock, unless work is lost, which is an event.
    look_ms = stands.slack_ms - _SHORTEST_MS
    if context.settings.pool_share_ppm < MILLION and stands.slack_ms > stands.reserve_ms:
        look_ms = stands.slack_ms - stands.reserve_ms + 1  # From then on pools may be crowded.
    if buys in (MarketRule.ANY, MarketRule.APART):
        return _Found(buys, look_ms)
    return _Found(buys, min(_LOOK_MS, look_ms), look_ms if buys is MarketRule.SPOT else None)


def _goes_apart(context: Context, job: Job) -> bool:
    """Whether a job is still where it was when it was to go apart, or on the way elsewhere."""
    return any(
        run.target is not None
        and (run.state is not RunState.RUNNING or run.since_ms <= (job.buys_ms or 0))
        for run in context.state.in_hand(job.id)
    )


def _chosen(context: Context, job: Job, stands: Slack) -> MarketRule:
    """Choose by the operator's rule.

    A job that runs on demand is not stopped in order to wait: it moves to a spot instance when one
    is available. By the table it keeps asking for one, since nothing else reports availability.
    """
    rule, state = context.settings.spot_choice, context.state
    now = situation_of(state, job, stands, context.now)
    learned = rule is SpotChoice.LEARNED
    if learned and now.place is not MarketChoice.WAIT:
        return MarketRule.ANY  # The table does not decide this.
    match context.memory(DeadlineMemory).chooser.choose(
        rule, what_is_expected(context, job) if learned else UNKNOWN, now
    ):
        case MarketChoice.WAIT if now.place is MarketChoice.WAIT:
            return MarketRule.ANY if learned and has_room(context, job) else MarketRule.SPOT
        case MarketChoice.ON_DEMAND if rule is not SpotChoice.LEARNED:
            return MarketRule.ON_DEMAND
        case _:
            return MarketRule.ANY
