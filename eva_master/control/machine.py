"""Events to actions: the one place where the state of the cluster changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from eva_master.control import commands, converge, gangs, handlers, limits
from eva_master.control.alarms import Alarm, Wake
from eva_master.control.context import Context
from eva_master.control.measure import learn, memory
from eva_master.control.planning.snapshot_builder import revision, snapshot
from eva_master.control.planning.validate_plan import Decision, reconcile
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import NEVER_MS, Settings
from eva_master.control.state.store import State
from eva_master.control.supply import availability, spot
from eva_master.model.actions import Action, RequestPlan, SyncCloud
from eva_master.model.changes import Changes, Round
from eva_master.model.events import (
    CancelRequested,
    CheckpointsListed,
    ClosingDown,
    CloudListed,
    CloudTrouble,
    Event,
    InstanceGone,
    InstanceInterrupted,
    InstanceUp,
    JobSubmitted,
    LaunchFailed,
    PlanFailed,
    PlanReady,
    ProgressSampled,
    Quoted,
    Tick,
    WorkerFetched,
    WorkerLost,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.ids import InstanceId, JobId, Millis, RunId
from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.planning.reasons import Reasons
from eva_master.model.records import Instance
from eva_master.model.states import InstanceState, RunState
from eva_master.packing.reserving import Occasion, Reserved, reserve
from eva_master.ports.reading import ReadModel

_RESYNC = Alarm(Wake.RESYNC)
_ROUND = Alarm(Wake.ROUND)
_PERIOD = Alarm(Wake.PERIOD)
_FORGET = Alarm(Wake.FORGET)
_FORGOTTEN_AT_ONCE = 1000
"""Jobs and instances that one turn forgets at most; the next turn goes on."""


class Machine:
    """The scheduler's state machine: deterministic, without I/O, driven by `handle`.

    Args:
        state: Empty, or as restored from the journal.
        settings: Delays and limits.
    """

    def __init__(self, state: State, settings: Settings) -> None:
        memory.fit(state)
        self.state = state
        self.settings = settings
        self._context = Context(state, settings)
        self._requested: Millis | None = None
        self._in_flight: int | None = None
        self._seen: int | None = None
        """The revision of the snapshot that the last plan was requested with."""
        self._reserved: Reserved | None = None
        """What the policy that plans was shown."""
        self._refused: dict[Occasion, Millis] = {}
        """Occasions on which the policy found no place for who seemed to fit, with the time."""
        self._publisher: Publisher | None = None
        self._forgets = settings.history_kept_ms < NEVER_MS

    def recover(self, now: Millis) -> list[Action]:
        """Begin, or begin again after a crash: everything that still holds is said again."""
        context = self._context
        context.begin(now)
        context.plan_wanted = True
        context.touch_everything()
        for run in self.state.runs.values():
            if run.state is RunState.RUNNING:
                context.watch(run)
        return self.handle([Tick()], now)

    def deadline(self) -> Millis | None:
        """When `handle` must be called at the latest, be it with no event."""
        return self._context.alarms.next()

    def handle(self, events: Sequence[Event], now: Millis) -> list[Action]:
        """Take in what happened.

        Args:
            events: In order of arrival.
            now: Milliseconds since the epoch; never less than in the call before.

        Returns:
            What is to be done, once `take_changes` is safely written.
        """
        context = self._context
        context.begin(now)
        if self._forgets:
            self._forget()
        for event in events:
            self._apply(event)
        for alarm in context.alarms.ring(context.now):
            if alarm != _PERIOD or self._period_is_over():
                context.wake(alarm)
        if context.take_resync():
            converge.resync(context)
            context.outbox.add(SyncCloud())
            context.alarms.at(Millis(context.now + self.settings.sync_period_ms), _RESYNC)
        self._converge()
        self._plan()
        if self._forgets and (over_ms := self.state.forgets_next()) is not None:
            context.alarms.at(Millis(over_ms + self.settings.history_kept_ms), _FORGET)
        return context.outbox.actions

    def published(self) -> ReadModel:
        """The state as it is now, for whoever only looks; unchanged parts are those of before.

        From the first call on the state keeps account of what changes from one to the next.
        """
        if self._publisher is None:
            self._publisher = Publisher(self.state, self.settings)
        return self._publisher.publish(self._context.now)

    def take_changes(self) -> Changes:
        """What is to be written before the actions are handed out."""
        return self.state.take_changes()

    def _forget(self) -> None:
        """Let go of what has been over for long enough, and was written in an earlier turn."""
        until = Millis(self._context.now - self.settings.history_kept_ms)
        self.state.forget(until, _FORGOTTEN_AT_ONCE)

    def _converge(self) -> None:
        context = self._context
        while True:
            if (job := context.touched_job()) is not None:
                converge.converge_job(context, job)
            elif (instance := context.touched_instance()) is not None:
                converge.converge_instance(context, instance)
            else:
                return

    def _apply(self, event: Event) -> None:  # noqa: C901, PLR0912 - one line per event type
        context = self._context
        match event:
            case JobSubmitted():
                commands.submit(context, event)
            case CancelRequested():
                commands.cancel(context, event)
            case InstanceUp():
                handlers.instance_up(context, event)
            case InstanceGone():
                handlers.instance_gone(context, event)
            case LaunchFailed():
                handlers.launch_failed(context, event)
            case Quoted():
                handlers.quoted(context, event)
            case InstanceInterrupted():
                spot.interrupted(context, event)
            case CloudListed():
                handlers.cloud_listed(context, event)
            case CloudTrouble():
                self.state.trouble = event
            case WorkerRegistered():
                handlers.worker_registered(context, event)
            case WorkerReported():
                handlers.worker_reported(context, event)
            case WorkerFetched():
                handlers.worker_fetched(context, event)
            case ProgressSampled():
                handlers.progress_sampled(context, event)
            case WorkerLost():
                handlers.worker_lost(context, event)
            case CheckpointsListed():
                gangs.listed(context, event)
            case PlanReady():
                self._planned(event)
            case PlanFailed():
                self._plan_failed(event)
            case ClosingDown():
                handlers.closing_down(context)
            case Tick():
                pass
            case _:
                assert_never(event)

    # -- planning --------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Request a plan if one is wanted, none is under way and the last one is not too recent."""
        context = self._context
        if self._in_flight is not None or not context.plan_wanted or context.closing_down:
            return
        earliest = self._next_request()
        if context.now < earliest:
            context.alarms.at(earliest, _ROUND)
            return
        context.plan_wanted = False
        context.alarms.at(Millis(context.now + self.settings.round_period_ms), _PERIOD)
        if self._nothing_new():
            return
        self._requested = context.now
        self._in_flight = self.state.count(rounds=1).rounds
        seen = snapshot(self.state, context.now, self.settings)
        since = context.now - self.settings.round_period_ms
        self._refused = {what: at for what, at in self._refused.items() if at > since}
        self._reserved = reserve(seen, self._refused, availability.paused_jobs(context))
        shown = self._reserved.snapshot
        context.outbox.add(RequestPlan(self._in_flight, shown, self.state.memory))

    def _next_request(self) -> Millis:
        """When the next plan may be requested."""
        gap, grid = self.settings.round_gap_ms, self.settings.round_grid_ms
        now = self._context.now
        earliest = now if self._requested is None else max(now, Millis(self._requested + gap))
        return Millis(-(-earliest // grid) * grid) if grid else earliest

    def _nothing_new(self) -> bool:
        """Whether a policy would see what it has seen before, with a place for every task."""
        before = self._seen
        self._seen = revision(self.state, self._context.now, self.settings)
        if self._seen != before or self.state.unplaced:
            return False
        self.state.write_learned()  # there may be what no plan depends on
        return True

    def _period_is_over(self) -> bool:
        """Whether the last round is so long ago that there has to be one; each sets an alarm."""
        last = self._requested
        return last is None or self._context.now - last >= self.settings.round_period_ms

    def _plan_failed(self, event: PlanFailed) -> None:
        if event.round == self._in_flight:
            self._in_flight = self._seen = None
            self._context.plan_wanted = True

    def _planned(self, event: PlanReady) -> None:
        if event.round != self._in_flight:
            return
        context = self._context
        self._in_flight = None
        if context.closing_down:
            return
        present = snapshot(self.state, context.now, self.settings)
        plan = event.plan if self._reserved is None else self._reserved.completed(event.plan)
        plan, put_off = availability.gate(context).passed(present, plan)
        plan = limits.within(plan, present, self.settings.limits, len(self.state.live), self._owner)
        decision = reconcile(present, plan)
        self._note_urgent(decision, put_off=put_off)
        names = self._adopt(decision)
        self.state.set_memory(event.memory)
        self.state.write_learned()
        dropped = set(decision.dropped) | _left_out(event.plan, plan)
        reasons = event.plan.reasons.adopted(names, dropped)
        self.state.put_round(self._round(event.round, event.plan, decision, reasons))
        if decision.dropped and not put_off:  # else there is a plan once it is known who boots
            context.plan_wanted = True

    def _note_urgent(self, decision: Decision, *, put_off: bool) -> None:
        """Have those planned for who were kept back while the more urgent were."""
        reserved, self._reserved = self._reserved, None
        if reserved is None or not reserved.urgent:
            return
        if reserved.urgent.isdisjoint(run for run, _ in decision.places) and not put_off:
            self._refused[reserved.occasion] = self._context.now
        if not put_off:
            self._context.plan_wanted = True

    def _owner(self, job: JobId) -> str:
        return self.state.jobs[job].spec.owner

    def _round(self, number: int, plan: Plan, decision: Decision, reasons: Reasons) -> Round:
        moves = sum(self.state.runs[run].instance is not None for run, _ in decision.places)
        assert self._requested is not None
        return Round(
            number=number,
            at_ms=self._requested,
            planned_ms=self._context.now - self._requested,
            launches=len(decision.launches),
            moves=moves,
            figures=plan.figures,
            reasons=reasons,
        )

    def _adopt(self, decision: Decision) -> dict[int, InstanceId]:
        """Make a checked plan the desired state; returns the names of new instances."""
        context = self._context
        names: dict[int, InstanceId] = {}
        listed = (
            {offering.id: offering for offering in self.state.catalog} if decision.launches else {}
        )
        for launch in decision.launches:
            names[launch.key] = InstanceId(f"i{self.state.count(instances=1).instances:05d}")
            # In the snapshot its delays were the learned ones, its price what it is worth.
            offering = listed[launch.offering.id]
            context.put_instance(
                Instance(
                    id=names[launch.key],
                    offering=replace(offering, unavailable_until=None, why_unavailable=""),
                    history=((InstanceState.LAUNCHING.value, int(context.now)),),
                    requested_ms=context.now,
                )
            )
        for run, where in decision.places:
            target = names[where] if isinstance(where, int) else where
            context.retarget(self.state.runs[run], target)
        for run, reason in decision.holds:
            held = self.state.runs[run]
            if held.waiting_for != reason:
                context.put_run(replace(held, waiting_for=reason))
                if self.settings.profile and learn.unprofiled(self.state, held):
                    context.plan_wanted = True  # without room of its own it may be packed
        for run, reason in decision.suspends:
            suspended = replace(self.state.runs[run], waiting_for=reason)
            context.put_run(replace(suspended, target=None, fetched=None))
        return names


def _left_out(plan: Plan, part: Plan) -> set[RunId]:
    """The task runs that a plan places and a part of it does not."""
    if plan is part:
        return set()
    placed = {entry.run for entry in part.entries if isinstance(entry, Assign)}
    return {entry.run for entry in plan.entries if isinstance(entry, Assign)} - placed
