"""The way of a plan: what a policy is shown of a partition, and what of its answer is carried out.

The control loop plans so for the jobs that are there, and `eva plan` for one that might be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

from eva_master.control import limits
from eva_master.control.features.deadlines.hurry import hurry
from eva_master.control.features.deadlines.ordering import with_due
from eva_master.control.features.emptied import giving_way, leftovers
from eva_master.control.features.emptied.memory import Comers
from eva_master.control.features.shared_limits.memory import NO_MEMORY, QueueMemory
from eva_master.control.limits import Unit
from eva_master.control.planning.allowance import afforded, allowance, leeway
from eva_master.control.planning.parts import Sums, part_of
from eva_master.control.planning.validate_plan import Decision
from eva_master.control.planning.validate_sizes import lawful, reconciled, sizes_of
from eva_master.control.planning.validate_standing import without
from eva_master.control.rounds.claimed_room import claimants_first, kept_off, seated
from eva_master.control.rounds.given_up import GivenUp, PoolMembers
from eva_master.control.rounds.late_launches import without_awaited, without_late_launches
from eva_master.control.rounds.limit_reasons import LimitReasons
from eva_master.control.rounds.lone_unit import Bounds, lone, placed_alone
from eva_master.control.rounds.price_limit import Masked, PriceLimit
from eva_master.control.rounds.quotas import TenantLimits
from eva_master.control.rounds.shared_limits import SharedLimitsStage
from eva_master.control.rounds.shared_queue import shared_queue
from eva_master.control.settings import Settings
from eva_master.control.standing.membership import Statement
from eva_master.control.state.records import PlanningRecords
from eva_master.control.supply.boot_gate import BootGate
from eva_master.learning.boots import Boots
from eva_master.model.accounting.per_hour import counted_per_hour
from eva_master.model.fleet.partitions import Partition
from eva_master.model.ids import InstanceId, JobId, Millis, OfferingId, RunId
from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import UNLIMITED, InstanceView, Snapshot
from eva_master.packing import forks, stragglers, waiting_turns
from eva_master.packing.claims.making import Rules, with_claims
from eva_master.packing.claims.views import View
from eva_master.packing.quotas import Admitted
from eva_master.packing.round_work import tasks_shown
from eva_master.packing.shared_limits.queue import SharedQueue
from eva_master.packing.valuation.on_demand import OnDemandPrices
from eva_master.packing.waiting_turns import NO_TURNS, Shown, Turns

_NO_GATE = BootGate(Boots(), frozenset(), Millis(0))


@dataclass(frozen=True, slots=True)
class Recent:
    """Data that earlier rounds of a partition leave to the next one; lost at a restart.

    Attributes:
        withheld: Jobs that limits kept from starting: no room is kept for them now.
        lapsed: Jobs that their policy placed nowhere though room was kept for them: no room is
            kept for them now.
        dear: Offerings that the last plan chose and that were too dear.
        judged: The task runs of that plan.
        over_quota: Task runs that waited for their tenants' quotas in the last plan.
        joined: Jobs that stand in lines already, and that the policy sees for the first time.
        pools: Whether instances stand in pools.
        paused: Jobs for which nothing is bought now, since boots for them have failed.
        held_back: Jobs whose tasks take no room in lines now, since instances ended while they ran.
        gate: Limits on purchases after failed boots.
        stated: Pools and lines of each partition, as stated by the last plans.
        declined: Jobs whose policies did not use room that was free for them: no pool gives a
            member up for them.
        queues: Data that the rounds of all partitions leave to the queues at shared limits.
        turns: Turns of the waiting tasks, where they are too many for one round.
    """

    withheld: Collection[JobId] = ()
    lapsed: Collection[JobId] = ()
    dear: frozenset[OfferingId] = frozenset()
    judged: frozenset[RunId] = frozenset()
    over_quota: Collection[RunId] = ()
    joined: frozenset[JobId] = frozenset()
    pools: bool = False
    paused: Collection[JobId] = ()
    held_back: Collection[JobId] = ()
    gate: BootGate = _NO_GATE
    stated: Mapping[str, Statement] = field(default_factory=dict)
    declined: Collection[JobId] = ()
    queues: QueueMemory = NO_MEMORY
    turns: Turns = NO_TURNS


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to the policy, with the parts of the cluster hidden from it.

    Attributes:
        shown: The snapshot that the policy plans with.
        masked: The offerings hidden since they are too dear.
        admitted: The task runs hidden for quotas of tenants; `None` without quotas.
        given_up: Members of pools that are given up.
        queue: The queue at the limits that partitions share; `None` if they share none.
        part: The shown part of the waiting tasks.
    """

    shown: Snapshot
    masked: Masked
    admitted: Admitted | None
    given_up: GivenUp
    queue: SharedQueue | None = None
    part: Shown | None = None

    @property
    def closed(self) -> Collection[InstanceId]:
        """Instances that claims keep for waiting task runs."""
        return {name for claim in self.shown.claims for name in claim.instances}


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a plan, after all stages of the pipeline.

    Attributes:
        plan: The plan before the check against the present.
        decision: The part of the plan that is carried out.
        present: The partition as it is, with the sizes of the plan.
        before_limits: The plan before limits cut it; `after_limits` afterwards.
        put_off: Whether purchases were put off since boots have failed.
        cut: Whether a part was cut that a later plan may have.
        over_quota: Whether quotas or budgets of tenants cut a part.
        spent: Whether the month's budget of the partition or of a tenant cut a part.
        dear: Chosen offerings that are too dear.
        overtaking: Task runs placed where task runs of another partition take precedence.
        reused: Empty instances used in place of new ones, by the keys of the new ones.
        yielding: Empty instances that are terminated so that limits allow the launches of the next
            plan.
        declined: Jobs that the policy leaves waiting though it was shown room for them.
        lapsed: The declined jobs for which room was kept.
        awaited: For each instance that is about to empty, the task runs that are to move there.
    """

    plan: Plan
    decision: Decision
    present: Snapshot
    whole: Snapshot
    before_limits: Plan
    after_limits: Plan
    put_off: bool = False
    cut: bool = False
    over_quota: bool = False
    spent: bool = False
    dear: frozenset[OfferingId] = field(default_factory=frozenset)
    overtaking: frozenset[RunId] = frozenset()
    reused: leftovers.Reused = field(default_factory=dict)
    yielding: giving_way.Yielding = giving_way.NONE
    declined: frozenset[JobId] = frozenset()
    lapsed: frozenset[JobId] = frozenset()
    awaited: Mapping[InstanceId, Comers] = field(default_factory=dict)


class Pipeline:
    """The stages of one partition at one moment; they change no state.

    Args:
        state: The records.
        sums: Sums over each partition, by the name on record.
        settings: Settings of the control loop.
        partition: The partition; the whole of a cluster that is not divided.
        prices: On-demand reservation prices of tasks, for the offerings of the partition.
        now: The time.
        recent: Data that earlier rounds left.
    """

    def __init__(
        self,
        state: PlanningRecords,
        settings: Settings,
        partition: Partition,
        *,
        sums: Sums,
        prices: OnDemandPrices,
        now: Millis,
        recent: Recent,
    ) -> None:
        self._state = state
        self._sums = sums
        self._settings = settings
        self._partition = partition
        self._prices = prices
        self._now = now
        self._recent = recent
        self._tenants = TenantLimits(state, settings.tenancy, partition)
        self._members = PoolMembers(
            state,
            settings,
            partition,
            sums=sums,
            now=now,
            stated=recent.stated,
            ignored=frozenset((*recent.paused, *recent.declined)),
            refused=[refusal.offerings for refusal in recent.queues.refusals],
        )

    def ask(self, whole: Snapshot) -> Asked:
        """The question for the policy.

        Args:
            whole: The cluster.
        """
        recent = self._recent
        seen = self._part(whole)
        room = leeway(self._state, self._sums, self._settings.limits, self._partition, self._now)
        if recent.joined or room is not UNLIMITED:
            seen = replace(seen, joined=recent.joined, leeway=room)
        stage = self._shared_limits(whole)
        seen = stage.shown(seen)
        pools = self._partition.short is not None or recent.pools
        masked = self._price_limit(seen).shown(seen, pools=pools)
        own_order = self._partition.own_order
        seen = with_due(
            self._state, masked.snapshot, self._now, self._settings, own_order=own_order
        )
        admitted = self._tenants.admitted(seen, recent.over_quota, stage)
        if admitted is not None:
            seen = admitted.snapshot
        given_up = self._members.given_up(seen, whole)
        rules = Rules(
            {*recent.paused, *recent.withheld},
            self._settings.preemption,
            self._settings.patience.get(self._partition.name),
            self._partition.short,
            recent.lapsed,
        )
        part = self._part_in_turn(with_claims(forks.hidden(given_up.snapshot), rules), stage)
        return Asked(part.snapshot, masked, admitted, given_up, stage.queue, part)

    def _part_in_turn(self, seen: Snapshot, stage: SharedLimitsStage) -> Shown:
        """Part of the tasks that wait for which a round has time."""
        name, work = self._partition.name, self._settings.round_work
        granted = [] if stage.queue is None else [job for job, _ in stage.queue.granted(name)]
        statement = self._recent.stated.get(name)
        lines = statement is not None and bool(statement.lines)
        seen = replace(seen, work=work)
        return waiting_turns.shown(
            seen, self._recent.turns, tasks_shown(work), granted, lines=lines
        )

    def answer(
        self,
        asked: Asked,
        answered: Plan,
        whole: Snapshot,
        taken: Collection[RunId] = (),
        ordered: Collection[InstanceId] = (),
    ) -> Answer:
        """The outcome of the policy's plan.

        Args:
            asked: The question to the policy.
            answered: The policy's plan.
            whole: The cluster as it is.
            taken: Task runs that took room from a line meanwhile.
            ordered: Instances that no plan may take back.
        """
        present = self._part(whole)
        price_limit = self._price_limit(present)
        plan = price_limit.explained(answered, present, asked.masked)
        plan = asked.given_up.completed(plan, present, asked.shown.claims)
        plan = plan if asked.admitted is None else asked.admitted.completed(plan)
        plan = plan if asked.part is None else asked.part.told(plan)
        plan = lawful(present, without(plan, taken))
        awaited: Mapping[InstanceId, Comers] = {}
        if not self._round_grid_ms:
            plan, awaited = without_awaited(without_late_launches(plan, present), present)
        answer = self._checked(asked, plan, whole, price_limit, ordered)
        answer = replace(answer, awaited=awaited)
        job = lone(answer.present, answer.decision)
        if job is None or job.id in self._recent.paused or answer.yielding.instances:
            return answer
        bounds = self._bounds(answer.present, price_limit)
        alone = placed_alone(answer.plan, job, answer.present, bounds)
        if alone is None:
            return answer
        other = self._checked(asked, alone, whole, price_limit, ordered)
        return other if other.decision.places else answer

    @property
    def _round_grid_ms(self) -> int:
        """At multiples of which time plans are made alone; 0 for at any time."""
        divided = self._settings.partitions.divided
        return self._partition.round_grid_ms if divided else self._settings.round_grid_ms

    def _bounds(self, present: Snapshot, price_limit: PriceLimit) -> Bounds:
        """Limits for what a job gets that is alone."""
        limits, state, partition = self._settings.limits, self._state, self._partition
        return Bounds(
            leeway=leeway(state, self._sums, limits, partition, self._now),
            limits=limits,
            quota=self._tenants.room(present),
            worth=price_limit.allowed(present),
            packs=partition.packs,
        )

    def _checked(
        self,
        asked: Asked,
        plan: Plan,
        whole: Snapshot,
        price_limit: PriceLimit,
        ordered: Collection[InstanceId],
    ) -> Answer:
        """Outcome of a plan for the whole partition, within all limits."""
        plan = claimants_first(plan, asked.shown.claims)
        before, present, sizes = plan, self._part(whole), sizes_of(plan)
        as_it_is, present, whole = present, with_sizes(present, sizes), with_sizes(whole, sizes)
        plan, dear = price_limit.within(plan, present)
        cut = plan is not before
        vacant = self._vacant(asked)
        plan, reused = leftovers.used(plan, present, vacant)
        priced = plan
        plan, put_off = self._recent.gate.passed(present, plan)
        stage, gated = self._shared_limits(whole), plan
        plan = stage.within(plan, present)
        overtaking = _held(gated, plan)
        gated, (plan, spent) = plan, self._within_limits(plan, present, whole)
        plan = self._members.within(plan, present, whole, contested=stage.contested)
        plan = asked.given_up.seated(priced, plan, present)
        plan, yielding = giving_way.give_way(
            gated, plan, present, vacant, self._allows(gated, plan, whole)
        )
        limited, cut = plan, cut or plan is not priced
        plan = begun = forks.completed(present, stragglers.completed(present, plan))
        plan, of_tenants = self._tenants.within(plan, present, self._now, stage)
        over_quota, uncut = plan is not begun, plan
        plan = kept_off(plan, present, asked.shown.claims)
        cut = cut or plan is not uncut
        plan = seated(plan, before, present, asked.shown.claims)
        plan = self._limit_reasons().told(plan, present)
        plan = self._members.told(plan, present, whole)
        plan, decision, more = _decision(
            price_limit, plan, priced, as_it_is=as_it_is, present=present, ordered=ordered
        )
        cut = cut or bool(decision.dropped or asked.masked.offerings or more)
        calm = not (cut or put_off or over_quota or overtaking)
        declined = self._members.declined(asked.shown, plan, whole) if calm else frozenset()
        lapsed = View.of(asked.shown).unused(plan) if calm else frozenset()
        return Answer(
            plan,
            stage.explained(decision),
            present,
            whole,
            gated,
            limited,
            put_off,
            cut,
            over_quota,
            spent or of_tenants,
            dear | more,
            overtaking,
            reused,
            yielding,
            declined,
            lapsed,
        )

    def _vacant(self, asked: Asked) -> Callable[[InstanceId], bool]:
        """Whether an instance holds no task, one that stops included, and is kept for nobody.

        None is where plans are made at fixed times: there it goes at once.
        """
        closed, divided = asked.closed, self._settings.partitions.divided
        if self._partition.round_grid_ms if divided else self._settings.round_grid_ms:
            return lambda _: False
        return lambda name: name not in closed and not self._state.occupants(name)

    def _part(self, whole: Snapshot) -> Snapshot:
        """Part of the cluster that is the partition's."""
        return part_of(whole, self._partition, self._settings.partitions, self._sums)

    def _shared_limits(self, whole: Snapshot) -> SharedLimitsStage:
        """Share that is left to the partition of limits that others share."""
        queue = shared_queue(
            self._state,
            self._settings,
            whole,
            sums=self._sums,
            now=self._now,
            memory=self._recent.queues,
        )
        return SharedLimitsStage(queue, self._partition.name)

    def _price_limit(self, now: Snapshot) -> PriceLimit:
        """How much may be paid for the tasks of the partition."""
        urgent = hurry(self._state, now, self._now, self._settings).jobs
        times_ppm, recent = self._settings.price_limit_ppm, self._recent
        return PriceLimit(
            times_ppm, self._prices, urgent, recent.dear, recent.judged, self._state.wall
        )

    def _within_limits(self, plan: Plan, present: Snapshot, whole: Snapshot) -> tuple[Plan, bool]:
        """The part that neither the partition's limits nor the cluster's forbid.

        Returns:
            That part, and whether the partition has a month's budget that cut something.
        """
        state, partition, asked, spent = self._state, self._partition, plan, False
        if self._settings.partitions.divided and plan.launches:
            plan = afforded(plan, present, allowance(state, self._sums, partition, self._now))
            spent = plan is not asked and partition.budget.per_month is not None
        limit = self._settings.limits
        return limits.within(plan, whole, limit, len(state.live), self._owner), spent

    def _limit_reasons(self) -> LimitReasons:
        """Reasons for tasks that limits and budgets keep waiting."""
        state, divided = self._state, self._settings.partitions.divided
        return LimitReasons(
            self._settings.limits,
            len(state.live),
            self._owner,
            (lambda: allowance(state, self._sums, self._partition, self._now)) if divided else None,
        )

    def _allows(
        self, before: Plan, after: Plan, whole: Snapshot
    ) -> Callable[[Unit, Collection[InstanceView]], bool]:
        """Whether limits allow a unit after the end of some instances."""
        state, partition = self._state, self._partition
        prices = {launch.key: launch.offering.price for launch in before.launches}
        bought = {launch.key for launch in after.launches}
        # Most plans are not cut, so that nobody asks.
        usage = cache(partial(limits.Usage, whole, self._settings.limits, self._owner))

        def allows(unit: Unit, gone: Collection[InstanceView]) -> bool:
            live = len(state.live) - len(gone) + len(bought)
            if usage().excess(unit, live):
                return False
            if not self._settings.partitions.divided:
                return True
            now = allowance(state, self._sums, partition, self._now)
            without = replace(
                now,
                instances=now.instances - len(gone),
                per_hour=now.per_hour - counted_per_hour(state.instances[view.id] for view in gone),
            )
            new = bought | {entry.on for entry in unit.entries if isinstance(entry.on, int)}
            return not without.refusal(len(new), sum(prices[key] for key in new))

        return allows

    def _owner(self, job: JobId) -> str:
        return self._state.jobs[job].spec.owner


def _held(plan: Plan, cut: Plan) -> frozenset[RunId]:
    """Task runs that a plan places and a part of it does not."""
    if plan is cut:
        return frozenset()
    kept = {entry.run for entry in cut.entries if isinstance(entry, Assign)}
    placed = {entry.run for entry in plan.entries if isinstance(entry, Assign)}
    return frozenset(placed - kept)


def _decision(
    price_limit: PriceLimit,
    plan: Plan,
    priced: Plan,
    *,
    as_it_is: Snapshot,
    present: Snapshot,
    ordered: Collection[InstanceId],
) -> tuple[Plan, Decision, frozenset[OfferingId]]:
    """Part of a plan that can be carried out, and what is too dear without the rest of it."""
    dropped, dear = dict[RunId, None](), frozenset[OfferingId]()
    while True:
        decision = reconciled(as_it_is, plan, ordered)
        dropped.update(dict.fromkeys(decision.dropped))
        if plan is priced and not decision.dropped:
            return plan, decision, dear
        kept, more = price_limit.within(without(plan, decision.dropped), present)
        if not more:
            return plan, replace(decision, dropped=tuple(dropped)), dear
        plan, dear = kept, dear | more
