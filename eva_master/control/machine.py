"""Events to actions: the one place where the state of the cluster changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from eva_master.control import commands, converge, gangs, handlers
from eva_master.control.alarms import Alarm, Wake
from eva_master.control.context import Context
from eva_master.control.features.capping import orders
from eva_master.control.features.catalog import listing
from eva_master.control.features.emptied import keeping, withdrawing
from eva_master.control.features.emptied.memory import EmptiedMemory
from eva_master.control.features.forks import epochs
from eva_master.control.features.installed import features
from eva_master.control.features.partitions import membership
from eva_master.control.features.pools import filling
from eva_master.control.features.replicas import outputs
from eva_master.control.features.results.memory import follow as follow_results
from eva_master.control.features.secrets import waiting as secrets
from eva_master.control.features.shared_limits.memory import SharedLimitsMemory
from eva_master.control.lines.memory import LineMemory
from eva_master.control.measure import memory
from eva_master.control.rounds.cycle import Cycle
from eva_master.control.rounds.moment import Recent
from eva_master.control.settings import NEVER_MS, Settings
from eva_master.control.state.store import State
from eva_master.control.supply import draining, nodes, restored, spot
from eva_master.control.turn.rounds import RoundMemory
from eva_master.model.actions import Action, SyncCloud
from eva_master.model.changes import Changes
from eva_master.model.events import (
    CancelRequested,
    CatalogListed,
    CheckpointsListed,
    ClocksMoved,
    ClosingDown,
    CloudListed,
    CloudTrouble,
    DrainRequested,
    Event,
    InstanceGone,
    InstanceInterrupted,
    InstanceUp,
    JobSubmitted,
    LaunchFailed,
    MoveRequested,
    NodeRequested,
    OutputsPlaced,
    PartGiven,
    PartsMerged,
    PlanFailed,
    PlanReady,
    ProgressSampled,
    Quoted,
    RemovalRequested,
    ResultsExpired,
    ResultsRemoved,
    ResumeRequested,
    SecretChanged,
    SecretsListed,
    SecretsRefused,
    SuspendRequested,
    Tick,
    WorkerFetched,
    WorkerLost,
    WorkerRegistered,
    WorkerReported,
)
from eva_wire.values.ids import Millis

if TYPE_CHECKING:
    from eva_master.control.readside.publisher import Publisher
    from eva_master.ports.reading import ReadModel

_RESYNC = Alarm(Wake.RESYNC)
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
        state.estimates = settings.estimates
        self.state = state
        self.settings = settings
        self._context = Context(state, settings, features(state, settings))
        self._cycles = [Cycle(self._context, partition) for partition in settings.partitions.all]
        self._publisher: Publisher | None = None
        self._forgets = settings.history_kept_ms < NEVER_MS

    def recover(self, now: Millis) -> list[Action]:
        """Begin, or begin again after a crash: everything that still holds is said again."""
        context = self._context
        context.begin(now)
        restored.begin(context)
        for started in context.features.started:
            started(context)
        membership.follow_settings(context)
        context.plan_wanted = True
        context.touch_everything()
        return self.handle([Tick()], now)

    def next_alarm(self) -> Millis | None:
        """When `handle` must be called at the latest, be it with no event."""
        return self._context.alarms.next()

    def handle(self, events: Sequence[Event], now: Millis) -> list[Action]:
        """Process events, and decide on actions.

        Args:
            events: Events in order of arrival.
            now: Milliseconds since the epoch; never less than in the call before.

        Returns:
            Actions to carry out, once `take_changes` is safely written.
        """
        context = self._context
        context.begin(now)
        if self._forgets:
            self._forget()
        for event in events:
            self._apply(event)
        for alarm in context.alarms.ring(context.now):
            self._ring(alarm)
        if context.touched.take_resync():
            converge.resync(context)
            context.outbox.add(SyncCloud())
            context.alarms.at(Millis(context.now + self.settings.sync_period_ms), _RESYNC)
        self._converge()
        self._plan()
        if self._forgets and (over_ms := self.state.over.next_ms()) is not None:
            context.alarms.at(Millis(over_ms + self.settings.history_kept_ms), _FORGET)
        for end in context.features.end:
            end(context)
        return context.outbox.actions

    def published(self) -> ReadModel:
        """The state as it is now, for whoever only looks; unchanged parts are those of before.

        From the first call on the state keeps account of what changes from one to the next.
        """
        if self._publisher is None:
            from eva_master.control.readside.publisher import Publisher  # simulations have none

            memory = self._context.memory(SharedLimitsMemory)
            kept = self._context.memory(EmptiedMemory).kept
            self._publisher = Publisher(
                self.state, self.settings, self._recents, lambda: memory.queue, kept
            )
        return self._publisher.publish(self._context.now)

    def _recents(self) -> dict[str, Recent]:
        return {cycle.partition.name: cycle.recent() for cycle in self._cycles}

    def take_changes(self) -> Changes:
        """Changes to write before the actions are handed out."""
        return self.state.take_changes()

    def _forget(self) -> None:
        """Let go of what has been over for long enough, and was written in an earlier turn."""
        until = Millis(self._context.now - self.settings.history_kept_ms)
        self.state.forget(until, _FORGOTTEN_AT_ONCE)

    def _converge(self) -> None:
        context = self._context
        standings, waiting = context.memory(LineMemory).standings, context.touched
        for doubted in self.state.boots.doubted_jobs():
            standings.touch_job(doubted)  # that it is held back no more is no event
        while True:
            if waiting.jobs:
                job, members = waiting.take_job()
                converge.converge_job(context, job, members)
                standings.touch_job(job)
            elif waiting.runs:
                run = waiting.take_run()
                converge.converge_run(context, run)
                filling.look(context, run)
            elif waiting.instances:
                instance = waiting.take_instance()
                converge.converge_instance(context, instance)
                standings.touch_instance(instance)
            elif not (
                filling.fill(context, converge.placed)
                or withdrawing.look(context)
                or keeping.look(context)
            ):
                return

    def _apply(self, event: Event) -> None:  # noqa: C901, PLR0912, PLR0915 - two lines per event type
        context = self._context
        match event:
            case WorkerReported():  # by far the most frequent
                handlers.worker_reported(context, event)
            case JobSubmitted():
                commands.submit(context, event)
            case CancelRequested():
                commands.cancel(context, event)
            case DrainRequested():
                draining.ordered(context, event)
            case SuspendRequested() | ResumeRequested():
                orders.follow(context, event)
            case SecretChanged() | SecretsListed() | SecretsRefused():
                secrets.follow(context, event)
            case NodeRequested():
                nodes.requested(context, event)
            case MoveRequested():
                membership.move(context, event)
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
            case CatalogListed():
                listing.listed(context, event)
            case CloudTrouble():
                self.state.trouble = event
            case WorkerRegistered():
                handlers.worker_registered(context, event)
            case WorkerFetched():
                handlers.worker_fetched(context, event)
            case ProgressSampled():
                handlers.progress_sampled(context, event)
            case WorkerLost():
                handlers.worker_lost(context, event)
            case CheckpointsListed() | OutputsPlaced() | PartGiven() | PartsMerged():
                self._apply_stored(event)
            case RemovalRequested() | ResultsRemoved() | ResultsExpired():
                follow_results(context, event)
            case PlanReady() | PlanFailed():
                self._planned(event)
            case ClosingDown():
                handlers.closing_down(context)
            case ClocksMoved():
                handlers.clocks_moved(context, event)
            case Tick():
                pass
            case _:
                assert_never(event)

    def _apply_stored(
        self, event: CheckpointsListed | OutputsPlaced | PartGiven | PartsMerged
    ) -> None:
        """Apply news of what tasks have stored."""
        context = self._context
        match event:
            case CheckpointsListed():
                gangs.listed(context, event)
            case OutputsPlaced():
                outputs.placed(context, event)
            case PartGiven():
                epochs.given(context, event)
            case PartsMerged():
                epochs.merged(context, event)

    # -- planning --------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Have every partition request the plan that it wants."""
        context = self._context
        lines, rounds = context.memory(LineMemory), context.memory(RoundMemory)
        wanted = context.plan_wanted or self._room_is_left(lines)
        wanted = wanted or not lines.came.isdisjoint(self.state.unplaced)
        lines.came.clear()
        context.plan_wanted = False
        lines.rooms_left.clear()
        for cycle in self._cycles:
            cycle.ended(lines.ended)
        lines.ended.clear()
        for cycle in self._cycles:
            if wanted:
                overdue = cycle.partition.name in rounds.overdue
                at_once = cycle.partition.name in rounds.refused
                cycle.want(overdue=overdue, at_once=at_once)
        rounds.refused.clear()
        if wanted:
            rounds.overdue.clear()
        for cycle in self._cycles:
            cycle.request()

    def _room_is_left(self, lines: LineMemory) -> bool:
        """Whether tasks have left room in pools that jobs may want which stand in no line."""
        if not any(count > 0 for count in lines.rooms_left.values()):
            return False
        queued = self.state.membership.queued
        return any(job not in queued for job in self.state.unplaced)

    def _ring(self, alarm: Alarm) -> None:
        if alarm.wake is Wake.AGAIN:
            for cycle in self._cycles:
                if cycle.partition.name == alarm.about:
                    cycle.look_again()
        elif alarm.wake is not Wake.PERIOD:
            self._context.wake(alarm)
        elif self.state.active or self.state.membership.standing:
            for cycle in self._cycles:
                if cycle.partition.name == alarm.about and cycle.period_is_over():
                    cycle.want(insists=True)

    def _planned(self, event: PlanReady | PlanFailed) -> None:
        for cycle in self._cycles:
            if cycle.plans(event.round):
                if isinstance(event, PlanReady):
                    cycle.planned(event)
                else:
                    cycle.failed()
                return
