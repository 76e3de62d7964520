"""The stages of a round, each one rule: what a policy sees for it, and what it leaves of a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial

from eva_master.control.features.deadlines.ordering import with_due
from eva_master.control.features.emptied import giving_way, leftovers
from eva_master.control.planning.validate_sizes import lawful, reconciled, sizes_of
from eva_master.control.planning.validate_standing import without
from eva_master.control.rounds.draft import Draft, PlanStage, Question
from eva_master.control.rounds.moment import Moment
from eva_master.control.rounds.rules import caps
from eva_master.control.rounds.rules.claimed_room import claimants_first, kept_off, seated
from eva_master.control.rounds.rules.cluster_limits import Usage
from eva_master.control.rounds.rules.late_launches import without_awaited, without_late_launches
from eva_master.control.rounds.rules.limit_reasons import LimitReasons
from eva_master.control.rounds.rules.lone_unit import crowded_out, lone, placed_alone
from eva_master.control.rounds.rules.one_zone import in_one_zone
from eva_master.control.rounds.rules.own_room import Bounds
from eva_master.control.rounds.rules.partition_limits import PartitionCap
from eva_master.model.accounting.per_hour import counted_per_hour
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import UNLIMITED, InstanceView
from eva_master.model.values import replace
from eva_master.packing import waiting_turns
from eva_master.packing.claims.making import Rules, with_claims
from eva_master.packing.claims.views import ClaimView
from eva_master.packing.extra_runs import forks, stragglers
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_master.packing.round_work import tasks_shown
from eva_wire.values.ids import OfferingId, RunId

# -- before the policy plans: a part is hidden, and the plan is completed by it ------------------


class LaunchLeeway(PlanStage):
    """The launches that limits leave, and jobs that stand in lines already."""

    def show(self, moment: Moment, question: Question) -> Question:
        """The question with the rest of the limits of the partition and the cluster."""
        joined, leeway = moment.recent.joined, moment.leeway
        if not joined and leeway is UNLIMITED:
            return question
        return replace(question, shown=replace(question.shown, joined=joined, leeway=leeway))


class RoomOfOthers(PlanStage):
    """Room at shared limits that is free for other partitions."""

    def show(self, moment: Moment, question: Question) -> Question:
        """The question without that room."""
        share = moment.share
        return replace(question, shown=share.shown(question.shown), queue=share.queue)


class DearOfferings(PlanStage):
    """Offerings that cost more than all that may run there is worth."""

    def show(self, moment: Moment, question: Question) -> Question:
        """The question with these as unavailable."""
        pools = moment.partition.short is not None or moment.recent.pools
        masked = moment.price_limit.shown(question.shown, pools=pools)
        return replace(question, shown=masked.snapshot, masked=masked.offerings)

    def check(self, draft: Draft) -> Draft:
        """The plan with the price as the reason of tasks that wait for it."""
        explained = draft.moment.price_limit.explained
        return replace(draft, effect=explained(draft.effect, draft.question.masked))


class Deadlines(PlanStage):
    """The standing of jobs against their deadlines, and their order by it."""

    def show(self, moment: Moment, question: Question) -> Question:
        """The question with standing and order."""
        own_order, settings = moment.partition.own_order, moment.settings
        seen = with_due(moment.state, question.shown, moment.now, settings, own_order=own_order)
        return replace(question, shown=seen)


class Quotas(PlanStage):
    """Task runs that wait beyond the quotas of their tenants."""

    def show(self, moment: Moment, question: Question) -> Question:
        """The question without these task runs."""
        over_quota = moment.recent.over_quota
        admitted = moment.tenants.admitted(question.shown, over_quota, moment.share)
        if admitted is None:
            return question
        return replace(question, shown=admitted.snapshot, admitted=admitted)

    def check(self, draft: Draft) -> Draft:
        """The plan with the quota as their reason."""
        admitted = draft.question.admitted
        return draft if admitted is None else draft.with_plan(admitted.completed(draft.plan))


class SpareMembers(PlanStage):
    """Empty members of pools that are given up for tasks outside them."""

    def show(self, moment: Moment, question: Question) -> Question:
        """The question with these as ordinary instances, or without them."""
        given_up = moment.pool_members.given_up(question.shown, moment.whole)
        return replace(question, shown=given_up.snapshot, given_up=given_up)

    def check(self, draft: Draft) -> Draft:
        """The plan with the unused ones in their pools again."""
        given_up, claims = draft.question.given_up, draft.question.shown.claims
        if given_up is None:
            return draft
        return replace(draft, effect=given_up.completed(draft.effect, claims))


class HiddenForks(PlanStage):
    """Forks: policies see the first one of each job alone."""

    def show(self, _moment: Moment, question: Question) -> Question:
        """The question without the others."""
        return replace(question, shown=forks.hidden(question.shown))


class ClaimsShown(PlanStage):
    """Room that is kept for jobs that come first."""

    def show(self, moment: Moment, question: Question) -> Question:
        """The question with the claims."""
        recent, settings, partition = moment.recent, moment.settings, moment.partition
        rules = Rules(
            {*recent.paused, *recent.withheld},
            settings.preemption,
            settings.patience.get(partition.name),
            partition.short,
            recent.lapsed,
        )
        return replace(question, shown=with_claims(question.shown, rules))


class WaitingTurns(PlanStage):
    """Waiting tasks beyond what one round plans for."""

    def show(self, moment: Moment, question: Question) -> Question:
        """The question without those whose turn comes later."""
        name, work, queue = moment.partition.name, moment.settings.round_work, question.queue
        granted = [] if queue is None else [job for job, _ in queue.granted(name)]
        statement = moment.recent.stated.get(name)
        lines = statement is not None and bool(statement.lines)
        seen = replace(question.shown, work=work)
        turns, count = moment.recent.turns, tasks_shown(work)
        turn = waiting_turns.shown(seen, turns, count, granted, lines=lines)
        return replace(question, shown=turn.snapshot, turn=turn)

    def check(self, draft: Draft) -> Draft:
        """The plan with their turn as the reason of the others."""
        turn = draft.question.turn
        return draft if turn is None else draft.with_plan(turn.with_reasons(draft.plan))


# -- the plan as it can be, before any limit -----------------------------------------------------


class StillWaiting(PlanStage):
    """Task runs that have taken room from a line since the policy was asked."""

    def check(self, draft: Draft) -> Draft:
        """The plan without their places."""
        return draft.with_plan(without(draft.plan, draft.taken))


class LawfulSizes(PlanStage):
    """Sizes that elastic gangs may have."""

    def check(self, draft: Draft) -> Draft:
        """The plan without other sizes, and without what depends on these."""
        return draft.with_plan(lawful(draft.now, draft.plan))


class LateLaunches(PlanStage):
    """New instances that are up too late for tasks that run; none where rounds have fixed times."""

    def check(self, draft: Draft) -> Draft:
        """The plan without these launches."""
        if draft.moment.round_grid_ms:
            return draft
        effect, awaited = without_awaited(without_late_launches(draft.effect))
        return replace(draft, effect=effect, awaited=awaited)


# -- limits, each on what is left by those before it ---------------------------------------------


class ClaimantsFirst(PlanStage):
    """The order in which limits cut equally urgent tasks: those with claims come first."""

    def check(self, draft: Draft) -> Draft:
        """The plan in this order; from here on elastic gangs have its sizes."""
        plan = claimants_first(draft.plan, draft.question.shown.claims)
        sizes = sizes_of(plan)
        effect = PlanEffect(with_sizes(draft.moment.part, sizes), plan)
        whole = with_sizes(draft.moment.whole, sizes)
        return replace(draft, effect=effect, wanted=effect, whole=whole)


@dataclass(frozen=True, slots=True)
class GangsInZones(PlanStage):
    """One availability zone for each gang.

    Attributes:
        seats: Whether a gang gets room in one zone in place of what the plan chose; else it waits.
    """

    seats: bool = True

    def check(self, draft: Draft) -> Draft:
        """The plan without gangs in several zones, where one zone holds all of such a gang."""
        claims, bounds = draft.question.shown.claims, partial(bounds_of, draft)
        effect = in_one_zone(draft.effect, bounds if self.seats else None, claims)
        rest = draft.cut_to(effect) if len(effect.assigned) < len(draft.effect.assigned) else draft
        return replace(rest, effect=effect, wanted=effect if self.seats else draft.wanted)


class DearPurchases(PlanStage):
    """The price of an instance, against the worth of its tasks."""

    def check(self, draft: Draft) -> Draft:
        """The plan without what is too dear."""
        effect, dear = draft.moment.price_limit.within(draft.effect)
        return replace(draft.cut_to(effect), dear=dear)


class Leftovers(PlanStage):
    """Empty instances that the plan leaves unused."""

    def check(self, draft: Draft) -> Draft:
        """The plan with these in place of launches of the same offerings."""
        vacant = draft.moment.vacant(draft.question.closed)
        effect, reused = leftovers.used(draft.effect, vacant)
        return replace(draft, effect=effect, priced=effect, reused=reused)


class FailedBoots(PlanStage):
    """Purchases of what has failed to boot."""

    def check(self, draft: Draft) -> Draft:
        """The plan without those that are put off."""
        effect, put_off = draft.moment.recent.gate.passed(draft.effect)
        return replace(draft.cut_to(effect), put_off=put_off)


class TurnsAtLimits(PlanStage):
    """Limits that partitions share: what is free is left to the next in the queue."""

    def check(self, draft: Draft) -> Draft:
        """The plan without what others come before."""
        share = draft.moment.share_of(draft.whole)
        rest = share.within(draft.effect)
        overtaking = frozenset(draft.effect.assigned.keys() - rest.assigned.keys())
        draft = draft.cut_to(rest)
        return replace(draft, share=share, overtaking=overtaking, before_limits=rest)


class PartitionAllowance(PlanStage):
    """Instances and budget of the partition."""

    def check(self, draft: Draft) -> Draft:
        """The plan without what is beyond them."""
        moment = draft.moment
        if not moment.divided or not draft.plan.launches:
            return draft
        rest = caps.within(draft.effect, PartitionCap(draft.effect, moment.allowance))
        spent = rest is not draft.effect and moment.partition.budget.per_month is not None
        return replace(draft.cut_to(rest), spent=spent)


class ClusterLimits(PlanStage):
    """Instances of the cluster, of a user and of a job."""

    def check(self, draft: Draft) -> Draft:
        """The plan without what is beyond them."""
        moment, live = draft.moment, len(draft.moment.state.live)
        if not draft.plan.launches:
            return draft
        usage = Usage(draft.whole, moment.settings.limits, moment.owner_of, live)
        return draft.cut_to(caps.within(draft.effect, usage))


class PoolPurchases(PlanStage):
    """Members of pools for which tasks of other partitions come first."""

    def check(self, draft: Draft) -> Draft:
        """The plan without their purchase, and with those that empty closed."""
        members, contested = draft.moment.pool_members, draft.share.contested
        return draft.cut_to(members.within(draft.effect, draft.whole, contested=contested))


class HandedMembers(PlanStage):
    """Members that pools have given up for tasks whose own purchase limits forbid."""

    def check(self, draft: Draft) -> Draft:
        """The plan with these tasks there."""
        given_up = draft.question.given_up
        if given_up is None:
            return draft
        return draft.cut_to(given_up.seated(draft.priced, draft.effect))


class GivingWay(PlanStage):
    """Empty instances whose end allows what limits have cut."""

    def check(self, draft: Draft) -> Draft:
        """The plan without less urgent tasks on them."""
        before, vacant = draft.before_limits, draft.moment.vacant(draft.question.closed)
        rest, yielding = giving_way.give_way(before, draft.effect, vacant, self._allows(draft))
        return replace(draft.cut_to(rest), yielding=yielding, after_limits=rest)

    @staticmethod
    def _allows(draft: Draft) -> Callable[[Unit, Collection[InstanceView]], bool]:
        """Whether limits allow a unit after the end of some instances."""
        moment, state = draft.moment, draft.moment.state
        launched, bought = draft.before_limits.launched, set(draft.effect.launched)
        # Most plans are not cut, so that there is no question.
        usage = cache(partial(Usage, draft.whole, moment.settings.limits, moment.owner_of, 0))

        def allows(unit: Unit, gone: Collection[InstanceView]) -> bool:
            if usage().excess(unit, len(state.live) - len(gone) + len(bought)):
                return False
            if not moment.divided:
                return True
            now = moment.allowance
            freed = counted_per_hour(state.instances[view.id] for view in gone)
            rest = replace(now, instances=now.instances - len(gone), per_hour=now.per_hour - freed)
            new = bought | unit.bought
            return not rest.refusal(len(new), sum(launched[key].price for key in new))

        return allows


class MoreRuns(PlanStage):
    """Extra runs of late tasks, and forks, in the room that the plan leaves."""

    def check(self, draft: Draft) -> Draft:
        """The plan with those that begin and end."""
        return replace(draft, effect=forks.completed(stragglers.completed(draft.effect)))


class QuotasAndBudgets(PlanStage):
    """Quotas and budgets of tenants."""

    def check(self, draft: Draft) -> Draft:
        """The plan without what is beyond them."""
        moment = draft.moment
        rest, spent = moment.tenants.within(draft.effect, moment.now, draft.share)
        over_quota = rest is not draft.effect
        return replace(draft, effect=rest, over_quota=over_quota, spent=draft.spent or spent)


class RoomOfClaims(PlanStage):
    """Room that claims keep for their jobs."""

    def check(self, draft: Draft) -> Draft:
        """The plan without other tasks there, and with claimants whose purchase a limit forbids."""
        claims = draft.question.shown.claims
        draft = draft.cut_to(kept_off(draft.effect, claims))
        return replace(draft, effect=seated(draft.effect, draft.wanted, claims))


# -- what is carried out, and what users are told ------------------------------------------------


class WaitingReasons(PlanStage):
    """The limits and pools that tasks wait for."""

    def check(self, draft: Draft) -> Draft:
        """The plan with these in the reasons."""
        moment, state = draft.moment, draft.moment.state
        reasons = LimitReasons(
            moment.settings.limits,
            len(state.live),
            moment.owner_of,
            (lambda: moment.allowance) if moment.divided else None,
        )
        effect = moment.pool_members.told(reasons.told(draft.effect), draft.whole)
        return replace(draft, effect=effect)


class Reconciled(PlanStage):
    """The part of the plan that still holds, and is not too dear without the rest of it."""

    def check(self, draft: Draft) -> Draft:
        """The plan with its decision."""
        effect, dropped, dear = draft.effect, dict[RunId, None](), frozenset[OfferingId]()
        while True:
            decision = reconciled(draft.moment.part, effect.plan, draft.ordered)
            dropped.update(dict.fromkeys(decision.dropped))
            if effect is draft.priced and not decision.dropped:
                break
            rest = effect.with_plan(without(effect.plan, decision.dropped))
            rest, more = draft.moment.price_limit.within(rest)
            if not more:
                decision = replace(decision, dropped=tuple(dropped))
                break
            effect, dear = rest, dear | more
        cut = draft.cut or bool(decision.dropped or draft.question.masked or dear)
        return replace(draft, effect=effect, decision=decision, dear=draft.dear | dear, cut=cut)


class Declined(PlanStage):
    """Jobs that their policy left waiting though it was shown room for them."""

    def check(self, draft: Draft) -> Draft:
        """The plan with these jobs; none where a part was cut."""
        if draft.cut or draft.put_off or draft.over_quota or draft.overtaking:
            return draft
        shown = draft.question.shown
        declined = draft.moment.pool_members.declined(shown, draft.effect, draft.whole)
        lapsed = ClaimView.of(shown).unused(draft.plan) if shown.claims else frozenset()
        return replace(draft, declined=declined, lapsed=lapsed)


class TurnReasons(PlanStage):
    """Task runs that wait behind those of other partitions."""

    def check(self, draft: Draft) -> Draft:
        """The decision with the first of these in the reasons."""
        return replace(draft, decision=draft.share.explained(draft.decision))


@dataclass(frozen=True, slots=True)
class LoneUnit(PlanStage):
    """A waiting unit, where no task has a place or gets one; or a gang on too many instances.

    Attributes:
        stages: Stages that the plan passes which places it.
    """

    stages: Sequence[PlanStage]

    def check(self, draft: Draft) -> Draft:
        """The plan that places it as well, if all stages leave it and all others there."""
        job = lone(draft.effect, draft.decision)
        if job is None:
            job = crowded_out(draft.before_limits, draft.after_limits, draft.decision)
        if job is None or job.id in draft.moment.recent.paused or draft.yielding.instances:
            return draft
        alone = placed_alone(draft.effect, job, bounds_of(draft))
        if alone is None:
            return draft
        other = checked(draft.begun_again(alone), self.stages)
        places = dict(other.decision.places)
        kept = all(run in places for run, _ in draft.decision.places)
        return other if kept and len(places) > len(draft.decision.places) else draft


def bounds_of(draft: Draft) -> Bounds:
    """The limits on room that a unit gets beside a plan."""
    moment = draft.moment
    return Bounds(
        leeway=moment.leeway,
        limits=moment.settings.limits,
        quota=moment.tenants.room(draft.now),
        worth=moment.price_limit.allowed(draft.now),
        packs=moment.partition.packs,
    )


def shown(moment: Moment, stages: Sequence[PlanStage]) -> Question:
    """The question to the policy, after all stages in order."""
    question = Question(moment.part, moment.part)
    for stage in stages:
        question = stage.show(moment, question)
    return question


def checked(draft: Draft, stages: Sequence[PlanStage]) -> Draft:
    """A plan after all stages in order."""
    for stage in stages:
        draft = stage.check(draft)
    return draft
