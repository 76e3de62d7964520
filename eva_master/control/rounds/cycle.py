"""The planning cycle of a partition: when its policy is asked, and what becomes of the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import is_not

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.context import Context
from eva_master.control.features.deadlines.hurry import hurry
from eva_master.control.features.deadlines.yielding import yield_places
from eva_master.control.features.emptied import keeping
from eva_master.control.features.emptied.memory import EmptiedMemory
from eva_master.control.features.emptied.own_nodes import fill_own_nodes
from eva_master.control.features.emptied.redirecting import redirect
from eva_master.control.features.pools import filling
from eva_master.control.features.shared_limits.memory import (
    NO_MEMORY,
    QueueMemory,
    SharedLimitsMemory,
)
from eva_master.control.lines.memory import LineMemory
from eva_master.control.planning import arriving
from eva_master.control.planning.parts import events
from eva_master.control.planning.snapshot_builder import revision, snapshot
from eva_master.control.planning.validate_plan import Decision
from eva_master.control.rounds import pipeline
from eva_master.control.rounds.adoption import adopt
from eva_master.control.rounds.draft import Draft, Question
from eva_master.control.rounds.moment import Moment, Recent
from eva_master.control.rounds.preempting_across import make_room
from eva_master.control.rounds.rules.claimed_room import others_wait
from eva_master.control.rounds.rules.given_up import concerned
from eva_master.control.rounds.rules.tenant_quotas import TenantCaps
from eva_master.control.rounds.shared_queue import current
from eva_master.control.rounds.withheld import Withheld, withheld
from eva_master.control.supply import availability
from eva_master.control.turn.rounds import RoundMemory
from eva_master.control.turn.turn import AdoptedPlan
from eva_master.model.actions import RequestPlan
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.changes import Round
from eva_master.model.events import PlanReady
from eva_master.model.fleet.partitions import Partition
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Plan, PolicyMemory
from eva_master.model.planning.reasons import Reasons
from eva_master.model.planning.snapshot import InstanceView
from eva_master.packing.valuation.on_demand import OnDemandPrices
from eva_master.packing.waiting_turns import Turns
from eva_wire.values.ids import InstanceId, JobId, Millis, OfferingId, RunId, job_of

TURNS_MEMORY = "turns/"
"""Before the name of a partition: its document in the journal, beside the memory of its policy."""


class Cycle:
    """The rounds of one partition: at most one plan is under way.

    Args:
        context: Context of the control loop.
        partition: The partition; the whole of a cluster that is not divided.
    """

    def __init__(self, context: Context, partition: Partition) -> None:
        self.partition = partition
        self._context = context
        self._state = context.state
        self._standing = context.memory(LineMemory).standings.of(partition.name)
        self._partitions = context.settings.partitions
        divided = self._partitions.divided
        self._grid_ms = partition.round_grid_ms if divided else context.settings.round_grid_ms
        self._round_alarm = Alarm(Wake.ROUND, partition.name)
        self._period_alarm = Alarm(Wake.PERIOD, partition.name)
        self._again_alarm = Alarm(Wake.AGAIN, partition.name)
        self._wanted = False
        self._insists = False
        """Whether a plan is to be made though nothing has changed in the partition."""
        self._cut = False
        """Whether a part of the last plan was cut that another partition may make possible."""
        self._overdue = False
        """Whether the time has come for something that policies do not see."""
        self._at_once = False
        """Whether the last round goes on, since the cloud refused a launch of it."""
        self._again_ms: Millis | None = None
        """Time at which the policy asks for the next plan; set by the newest plan only."""
        self._milestones: dict[JobId, int] = {}
        """Number of succeeded tasks of jobs at which the policy asks for the next plan."""
        self._requested: Millis | None = None
        self._in_flight: int | None = None
        self._news = True
        """Whether the policy would see something new since its last plan."""
        self._seen: object = None
        """The revision of the snapshot of the last plan."""
        self._shown: frozenset[JobId] = frozenset()
        """Jobs that stand in lines already, and that policies see for the first time."""
        self._asked: Question | None = None
        """The last question to the policy."""
        self._yielded_to: set[JobId] = set()
        """Jobs for which others gave up their places before they had begun there."""
        self._withheld = Withheld()
        self._tenants = TenantCaps(self._state, context.settings.tenancy, partition)
        self._prices: tuple[tuple[object, object], OnDemandPrices] | None = None
        """Worth of tasks on demand, and what that was made of."""
        self._dear: frozenset[OfferingId] = frozenset()
        """Offerings that the last plan was to buy though they are too dear."""
        self._waiting_turns = Turns.load(self._state.memories.get(TURNS_MEMORY + partition.name))
        self._rounds_left = 0
        """Rounds until each task that waits was shown to the policy since it last saw news."""
        self._judged: frozenset[RunId] = frozenset()
        """The task runs that plan was about."""

    def want(self, *, insists: bool = False, overdue: bool = False, at_once: bool = False) -> None:
        """Have a plan made; unless it insists, not if the policy would see what it has seen.

        Args:
            insists: Whether there is to be one though nothing has changed in the partition.
            overdue: Whether the time has come for something that policies do not see: a task may be
                late by now, or the policy wanted to be asked.
            at_once: Whether it belongs to the last round, and so is not kept apart from it.
        """
        self._wanted = True
        self._at_once = self._at_once or at_once
        self._insists = self._insists or insists
        self._overdue = self._overdue or overdue

    def look_again(self) -> None:
        """Have a plan made if the time has come at which the policy wants to be asked again."""
        if self._again_ms is not None and self._context.now >= self._again_ms:
            self._again_ms = None
            self.want(insists=True, overdue=True)

    def ended(self, jobs: Iterable[JobId]) -> None:
        """Have a plan made if enough tasks of one of these jobs have ended by now."""
        milestones = self._milestones
        for job in jobs if milestones else ():
            if job in milestones and self._over(job) >= milestones[job]:
                del milestones[job]
                self.want(insists=True, overdue=True)

    def _over(self, job: JobId) -> int:
        """How many tasks of a job have ended for good."""
        return self._state.tasks.succeeded(job) + self._state.tasks.failed(job)

    def period_is_over(self) -> bool:
        """Whether the last round is so long ago that there has to be one; each sets an alarm."""
        last = self._requested
        return last is None or self._context.now - last >= self._context.settings.round_period_ms

    # -- asking ----------------------------------------------------------------------------------

    def request(self) -> None:
        """Request a plan if one is wanted, none is under way and the last one is not too recent."""
        context = self._context
        if self._in_flight is not None or not self._wanted or context.closing_down:
            return
        earliest = self._next_request()
        if context.now < earliest:
            context.alarms.at(earliest, self._round_alarm)
            return
        self._wanted = self._at_once = False
        period_ms = context.settings.round_period_ms
        context.alarms.at(Millis(context.now + period_ms), self._period_alarm)
        self._shown |= arriving.show(context, self._standing)
        if self._nothing_new():
            return
        self._insists = False
        self._requested = context.now
        self._standing.taken.clear()
        self._in_flight = self._state.count(rounds=1).rounds
        since = context.now - period_ms
        self._withheld.forget(since)
        self._yielded_to &= self._state.jobs.keys()
        context.memory(RoundMemory).forget(since)
        self._state.dependencies.settle_priorities()
        self._asked = pipeline.ask(self._moment())
        self._note_parts(self._asked)
        context.memory(EmptiedMemory).asked(self.partition.name, self._in_flight)
        shown, memory = self._asked.shown, self._memory
        context.outbox.add(RequestPlan(self._in_flight, shown, memory, self.partition.name))

    def _moment(self) -> Moment:
        """The partition as it is now."""
        context, state = self._context, self._state
        sources = state.catalog, state.figures.resolved.standalone
        if self._prices is None or any(map(is_not, self._prices[0], sources)):
            sold = tuple(filter(self.partition.sells, state.catalog))
            self._prices = sources, OnDemandPrices(sold, sources[1])
        return Moment(
            state,
            context.settings,
            self.partition,
            sums=state.tally.partitions.totals(),
            prices=self._prices[1],
            now=context.now,
            recent=self.recent(),
            whole=snapshot(state, context.now, context.settings),
        )

    def recent(self) -> Recent:
        """State that the rounds so far leave to the next one."""
        context, admitted = self._context, None if self._asked is None else self._asked.admitted
        return Recent(
            withheld=frozenset(self._withheld.limited),
            lapsed=frozenset(self._withheld.lapsed),
            dear=self._dear,
            judged=self._judged,
            over_quota=frozenset() if admitted is None else frozenset(admitted.holds),
            joined=self._shown,
            pools=self._has_members(),
            paused=frozenset(availability.paused_jobs(context)),
            held_back=availability.held_back_jobs(context),
            gate=availability.gate(context),
            stated=self._state.membership.stated,
            declined=frozenset(context.memory(RoundMemory).declined),
            queues=self._queue_memory(),
            turns=self._waiting_turns,
        )

    def _note_parts(self, asked: Question) -> None:
        """Remember whose turn it is next, where more tasks wait than one round plans for."""
        turn = asked.turn
        assert turn is not None, "a question has one"
        if self._news or turn.rounds == 1:
            self._rounds_left = turn.rounds
        self._rounds_left = max(0, self._rounds_left - 1)
        self._waiting_turns = turn.turns
        self._state.memories.put(turn.turns.dump(), TURNS_MEMORY + self.partition.name)

    def _queue_memory(self) -> QueueMemory:
        """State that the rounds of all partitions leave to the queues at shared limits."""
        context = self._context
        if len(self._partitions.parts) < 2:
            return NO_MEMORY
        kept_ms = context.settings.round_period_ms
        paused = availability.paused_jobs(context)
        return context.memory(SharedLimitsMemory).value(paused, context.now, kept_ms)

    def _next_request(self) -> Millis:
        """When the next plan may be requested."""
        gap, grid = self._context.settings.round_gap_ms, self._grid_ms
        now = self._context.now
        if self._requested is None or self._at_once:
            earliest = now
        else:
            earliest = max(now, Millis(self._requested + gap))
        return Millis(-(-earliest // grid) * grid) if grid else earliest

    def _nothing_new(self) -> bool:
        """Whether a policy would see what it has seen before, and there is no need to ask again.

        There is while a task has no place, or instances stand in pools: where the cluster is
        divided, only if a place may have been found for it by now.
        """
        before = self._seen
        self._seen = self._revision()
        self._news = self._seen != before
        open_ended = self._asks_again() and (self._has_unplaced() or self._has_members())
        due, self._overdue = self._overdue, False
        if self._seen != before or open_ended or due:
            return False
        self._state.write_learned()  # there may be what no plan depends on
        return True

    def _asks_again(self) -> bool:
        divided = self._partitions.divided
        return not divided or self._insists or self._cut or self.period_is_over()

    def _has_unplaced(self) -> bool:
        if not self._partitions.divided:
            return bool(self._state.unplaced)
        jobs = self._state.jobs
        return any(self._is_ours(jobs[name].partition) for name in self._state.unplaced)

    def _has_members(self) -> bool:
        return filling.has_members(self._context, self.partition.name)

    # -- the partition's part --------------------------------------------------------------------

    def _is_ours(self, name: str) -> bool:
        return self._partitions.home(name) is self.partition

    def _has(self, job: JobId) -> bool:
        record = self._state.jobs.get(job)
        return record is None or self._is_ours(record.partition)

    def _belongs(self, view: JobView | InstanceView) -> bool:
        return self._is_ours(view.partition)

    def _revision(self) -> object:
        """A value that is equal while snapshots of the partition differ in their time alone."""
        context = self._context
        whole = revision(self._state, context.now, context.settings)
        if not self._partitions.divided:
            return whole
        views = self._state.view_cache
        ours = sum(count for name, count in views.parts.items() if self._is_ours(name))
        limited = {
            offering.id
            for offering in self._state.catalog
            if offering.limit is not None and self.partition.sells(offering)
        }
        taken: Counter[str] = Counter()
        if limited:
            present = (*views.instances.ordered(), *views.draining.ordered())
            others = (instance for instance in present if not self._belongs(instance))
            taken.update(
                instance.offering.id for instance in others if instance.offering.id in limited
            )
        counters, sums = self._state.counters, self._state.tally.partitions.totals()
        come, gone = counters.arrivals, counters.completions
        coming = events(come, gone, self.partition, self._partitions, sums)
        return views.common, ours, coming, taken, self._quota_use(), self._turns()

    def _turns(self) -> object:
        """Shares of limits that are for this partition and for others, and who is next."""
        context = self._context
        queue = current(context)
        if queue is None:
            return None
        context.memory(SharedLimitsMemory).open = any(seat.taken for seat in queue.seats)
        if (changes := queue.changes_ms()) is not None:
            context.alarms.at(changes, Alarm(Wake.AVAILABILITY))
        return queue.digest(self.partition.name)

    def _quota_use(self) -> object:
        """Use that decides whether tasks that were kept back by a quota may begin."""
        admitted = None if self._asked is None else self._asked.admitted
        return None if admitted is None or not admitted.holds else self._tenants.use()

    @property
    def _memory(self) -> PolicyMemory | None:
        state, name = self._state, self.partition.name
        return state.memories.get("" if self.partition.default else name)

    def _set_memory(self, memory: PolicyMemory | None) -> None:
        self._state.memories.put(memory, "" if self.partition.default else self.partition.name)

    # -- the answer ------------------------------------------------------------------------------

    def plans(self, number: int) -> bool:
        """Whether the plan of a round is under way here."""
        return number == self._in_flight

    def failed(self) -> None:
        """Have the plan that is under way made again; others do not wait for it."""
        self._in_flight = self._seen = None
        keeping.failed(self._context, self.partition.name)
        if self._asked is not None and self._asked.queue is not None:
            units = self._asked.queue.granted(self.partition.name)
            memory = self._context.memory(SharedLimitsMemory)
            if memory.unused(units, (), self._context.now, again=False):
                self._context.plan_wanted = True
        self.want(insists=True)

    def planned(self, event: PlanReady) -> None:
        """Carry out the requested plan, as far as it still holds."""
        self._in_flight = None
        if self._context.closing_down:
            return
        self._note_wishes(event.plan)
        draft = self._checked(event.plan)
        self._note_cuts(draft)
        names = self._adopt(event, draft)
        self._open_lines(draft)
        self._record(event, draft, names)
        self._want_the_rest(draft)
        self._look_at_members()

    def _note_wishes(self, plan: Plan) -> None:
        """Remember when the policy asks for its next plan."""
        context = self._context
        self._milestones = self._ahead(plan.again.milestones)
        self.ended(tuple(self._milestones))
        self._again_ms = plan.again.at_ms
        if self._again_ms is not None:
            context.alarms.at(Millis(max(context.now, self._again_ms)), self._again_alarm)

    def _checked(self, plan: Plan) -> Draft:
        """The policy's plan after all stages."""
        assert self._asked is not None, "a plan was requested"
        taken, ordered = self._standing.taken, self._ordered()
        return pipeline.answer(self._moment(), self._asked, plan, taken, ordered)

    def _adopt(self, event: PlanReady, draft: Draft) -> dict[int, InstanceId]:
        """Make the plan the desired state; returns its new instances, by their keys."""
        context, name, closed = self._context, self.partition.name, draft.question.closed
        declined = context.memory(RoundMemory).declined
        declined.update(dict.fromkeys(draft.declined, context.now))
        names = {**adopt(context, draft.decision, name), **draft.reused}
        redirect(context, name, closed)
        if not self._grid_ms:
            placed = frozenset(run for run, _ in draft.decision.places)
            fill_own_nodes(context, name, closed, placed)
        keeping.adopted(context, name, event.round, draft.yielding, whole=not self._rounds_left)
        context.memory(EmptiedMemory).await_too(draft.awaited, self._state.live)
        adopted = AdoptedPlan(self.partition, event.plan, draft.question.shown)
        for plan_adopted in context.features.plan_adopted:
            plan_adopted(context, adopted)
        return names

    def _open_lines(self, draft: Draft) -> None:
        """Have jobs stand in their lines again, beside the room that claims keep."""
        claimed = self._context.memory(LineMemory).claimed
        claimed[self.partition.name] = draft.question.closed
        self._shown = frozenset()
        arriving.rejoin(self._context, tuple(self._standing.joined))
        if self._more_are_ready(draft.decision) or self._rounds_left:
            self.want(insists=True)

    def _record(self, event: PlanReady, draft: Draft, names: Mapping[int, InstanceId]) -> None:
        """Journal the round, with the policy's memory and the reasons of what was adopted."""
        self._set_memory(event.memory)
        self._state.write_learned()
        placed = {entry.run for entry in event.plan.entries if isinstance(entry, Assign)}
        dropped = {*draft.decision.dropped, *(placed - draft.effect.assigned.keys())}
        reasons = event.plan.reasons.adopted(names, dropped)
        self._state.put_round(self._round(event.round, event.plan, draft.decision, reasons))

    def _want_the_rest(self, draft: Draft) -> None:
        """Have a plan made for what this one leaves."""
        decision, shown = draft.decision, draft.question.shown
        behind = others_wait(decision, shown.claims)
        if (decision.dropped or behind) and not draft.put_off:
            self.want(insists=True)  # else there is a plan once the boots are known
        self._note_turns(draft)
        yield_places(self._context, shown, self._yielded_to)

    def _look_at_members(self) -> None:
        """Have plans made by which pools give up members for tasks that wait now."""
        context, state = self._context, self._state
        if not state.membership.bought:
            return
        whole = snapshot(state, context.now, context.settings)
        names = concerned(
            state,
            context.settings,
            sums=state.tally.partitions.totals(),
            now=context.now,
            ignored={*availability.paused_jobs(context), *context.memory(RoundMemory).declined},
            refused=[*context.memory(SharedLimitsMemory).refusals],
            whole=whole,
        )
        if names:
            context.memory(RoundMemory).overdue |= names
            context.plan_wanted = True

    def _ahead(self, milestones: Collection[tuple[JobId, int]]) -> dict[JobId, int]:
        """The milestones of present jobs that the policy had not seen reached when it planned.

        A policy that states a milestone already seen would be asked again and again.
        """
        if not milestones:
            return {}
        present, asked = self._state.tasks, self._asked
        seen = () if asked is None else asked.shown.jobs
        had = {view.id: view.progress.over for view in seen}
        return {
            job: count for job, count in milestones if job in present and count > had.get(job, 0)
        }

    def _more_are_ready(self, decision: Decision) -> bool:
        """Whether a partly placed array has more tasks than a plan is shown.

        Arrays whose other tasks are alike and found no room do not count.
        """
        placed = Counter(job_of(run) for run, _ in decision.places)
        held = {job_of(run) for run, _ in decision.holds}
        lined = {job for line in decision.lines for job in line.jobs}
        more = False
        for name in placed.keys() | held | lined:
            count, tasks = placed[name], self._state.tasks[name]
            unplaced = tasks.placeable(self._state.jobs[name])
            hidden = count > 0 < unplaced and count + unplaced > tasks.most_shown
            if hidden and (name not in held or len(tasks.kinds) > 1):
                more = True
            if tasks.planned(count, held=name in held, lined=name in lined):
                self._state.view_cache.job_changed(name)
        return more

    def _note_cuts(self, answer: Draft) -> None:
        """Remember the parts of a plan that rules cut, and the time of the next look."""
        context, asked, self._cut = self._context, answer.question, answer.cut
        # the next plan knows the rest of the quota
        if answer.over_quota and answer.decision.places:
            self.want(insists=True)
        if answer.spent:
            _, after = month_of(context.now)
            context.alarms.at(after, Alarm(Wake.AVAILABILITY))
        before, within = answer.before_limits, answer.after_limits
        jobs = withheld(context, self.partition, before, within, answer.whole)
        self._withheld.limited.update(dict.fromkeys(jobs, context.now))
        waiting = asked.shown.runs if answer.lapsed else ()
        held = {run.job for run in waiting if run.held}
        if self._withheld.note_unused(answer.lapsed, held, context.now):
            self.want(insists=True)
        if answer.dear - self._dear:  # the policy is to look for something cheaper
            self.want(insists=True)
        self._dear = self._dear | answer.dear if answer.dear else frozenset()
        runs = asked.part.runs if answer.dear else ()
        self._judged = frozenset(run.id for run in runs)
        if answer.dear or asked.masked:
            hasty = hurry(self._state, answer.now, context.now, context.settings)
            if hasty.next_ms is not None:
                context.alarms.at(hasty.next_ms, Alarm(Wake.AVAILABILITY))

    def _note_turns(self, answer: Draft) -> None:
        """Remember for whom this partition left unused what is free of shared limits."""
        context, queue = self._context, answer.question.queue
        memory = context.memory(SharedLimitsMemory)
        if queue is None:
            return
        placed, served = {run for run, _ in answer.decision.places}, _served(answer.decision)
        cut = answer.overtaking.union(answer.decision.dropped)
        overtaken = max((queue.ranks.get(run, -1) for run in answer.overtaking), default=-1)
        unused = [
            (unit.job.id, seat.offerings or queue.options(unit))
            for rank, (unit, seat) in enumerate(zip(queue.waiting, queue.seats, strict=True))
            if unit.partition == self.partition.name
            and unit.job.id not in served
            and (seat.complete or (rank < overtaken and not unit.together))
            and not any(run.id in placed or run.id in cut for run in unit.runs)
        ]
        jobs = {job_of(run) for run in placed} | served
        again = self._wanted and self._insists
        if memory.unused(unused, jobs, context.now, again=again):
            context.plan_wanted = True
        if context.settings.preemption_across:
            whole = snapshot(self._state, context.now, context.settings)
            make_room(context, self.partition, whole, current(context))

    def _ordered(self) -> set[InstanceId]:
        """Instances that no plan may take back: those drained by operators, and owned ones."""
        present = (self._state.instances[name] for name in self._state.membership.draining)
        return {
            instance.id
            for instance in present
            if instance.owned or (instance.drain is not None and instance.drain.ordered)
        }

    def _round(self, number: int, plan: Plan, decision: Decision, reasons: Reasons) -> Round:
        moves = sum(self._state.runs[run].instance is not None for run, _ in decision.places)
        assert self._requested is not None
        figures = plan.figures
        if self._partitions.divided:
            figures = {**figures, "partition": self.partition.name}
        return Round(
            number=number,
            at_ms=self._requested,
            planned_ms=self._context.now - self._requested,
            launches=len(decision.launches),
            moves=moves,
            figures=figures,
            reasons=reasons,
        )


def _served(decision: Decision) -> set[JobId]:
    """Jobs that stand in lines for pools of which a plan buys members."""
    bought = {launch.key for launch in decision.launches}
    growing = {pool.name for pool in decision.pools if not bought.isdisjoint(pool.members)}
    lines = (line for line in decision.lines if not growing.isdisjoint(line.pools))
    return {job for line in lines for job in line.jobs}
