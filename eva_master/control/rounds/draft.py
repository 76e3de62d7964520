"""A plan on its way through the stages of a round, and the question that it answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from eva_master.control.features.emptied import giving_way, leftovers
from eva_master.control.features.emptied.memory import Comers
from eva_master.control.planning.validate_plan import NOTHING_DECIDED, Decision
from eva_master.control.rounds.moment import Moment
from eva_master.control.rounds.rules.given_up import GivenUp
from eva_master.control.rounds.rules.shared_limits import NOTHING_SHARED, PartitionShare
from eva_master.model.catalog import Offering
from eva_master.model.planning.plan import Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import quick, replace
from eva_master.packing.plan_effect import PlanEffect
from eva_master.packing.quotas import QuotaView
from eva_master.packing.shared_limits.queue import SharedQueue
from eva_master.packing.waiting_turns import Shown
from eva_wire.values.ids import InstanceId, JobId, OfferingId, RunId


@quick
@dataclass(frozen=True, slots=True)
class Question:
    """A question to the policy, with the parts of the cluster hidden from it.

    Attributes:
        part: The partition as it was.
        shown: The snapshot that the policy plans with.
        masked: The offerings hidden since they are too dear.
        admitted: The task runs hidden for quotas of tenants; `None` without quotas.
        given_up: Members of pools that are given up.
        queue: The queue at the limits that partitions share; `None` if they share none.
        turn: The shown part of the waiting tasks.
    """

    part: Snapshot
    shown: Snapshot
    masked: Mapping[OfferingId, Offering] = field(default_factory=dict)
    admitted: QuotaView | None = None
    given_up: GivenUp | None = None
    queue: SharedQueue | None = None
    turn: Shown | None = None

    @property
    def closed(self) -> set[InstanceId]:
        """Instances that claims keep for waiting task runs."""
        return {name for claim in self.shown.claims for name in claim.instances}


@quick
@dataclass(frozen=True, slots=True)
class Draft:
    """A plan on its way through the stages, with their notes.

    Attributes:
        effect: The plan, on the partition as it is, with the sizes of the plan.
        moment: The partition when the plan has arrived.
        question: The question that the plan answers.
        taken: Task runs that took room from a line meanwhile.
        ordered: Instances that no plan may take back.
        whole: The cluster, with the sizes of the plan.
        share: Share that is left to the partition of limits that others share.
        wanted: The plan before any limit.
        priced: The plan after the price limit and leftovers, before other limits.
        before_limits: The plan before limits of instances cut it; `after_limits` afterwards.
        put_off: Whether purchases were put off since boots have failed.
        cut: Whether a part was cut that a later plan may have.
        over_quota: Whether quotas or budgets of tenants cut a part.
        spent: Whether the month's budget of the partition or of a tenant cut a part.
        dear: Chosen offerings that are too dear.
        overtaking: Task runs placed where task runs of another partition take precedence.
        reused: Empty instances used in place of new ones, by the keys of the new ones.
        yielding: Empty instances that are terminated so that limits allow the launches of the next
            plan.
        decision: The part of the plan that is carried out.
        declined: Jobs that the policy leaves waiting though it was shown room for them.
        lapsed: The declined jobs for which room was kept.
        awaited: For each instance that is about to empty, the task runs that are to move there.
    """

    effect: PlanEffect
    moment: Moment
    question: Question
    taken: Collection[RunId]
    ordered: Collection[InstanceId]
    whole: Snapshot
    share: PartitionShare
    wanted: PlanEffect
    priced: PlanEffect
    before_limits: PlanEffect
    after_limits: PlanEffect
    put_off: bool = False
    cut: bool = False
    over_quota: bool = False
    spent: bool = False
    dear: frozenset[OfferingId] = frozenset()
    overtaking: frozenset[RunId] = frozenset()
    reused: leftovers.Reused = field(default_factory=dict)
    yielding: giving_way.GivenWay = giving_way.NONE
    decision: Decision = NOTHING_DECIDED
    declined: frozenset[JobId] = frozenset()
    lapsed: frozenset[JobId] = frozenset()
    awaited: Mapping[InstanceId, Comers] = field(default_factory=dict)

    @classmethod
    def begun(
        cls,
        moment: Moment,
        question: Question,
        plan: Plan,
        taken: Collection[RunId],
        ordered: Collection[InstanceId],
    ) -> Draft:
        """A plan before any stage.

        Args:
            moment: The partition as it is.
            question: The question to the policy.
            plan: The policy's plan.
            taken: Task runs that took room from a line meanwhile.
            ordered: Instances that no plan may take back.
        """
        effect, whole = PlanEffect(moment.part, plan), moment.whole
        notes = NOTHING_SHARED, effect, effect, effect, effect
        return cls(effect, moment, question, taken, ordered, whole, *notes)

    def begun_again(self, plan: Plan) -> Draft:
        """Another plan for the same question, before any stage."""
        return Draft.begun(self.moment, self.question, plan, self.taken, self.ordered)

    @property
    def plan(self) -> Plan:
        """The plan as far as it has come."""
        return self.effect.plan

    @property
    def now(self) -> Snapshot:
        """The partition as it is, with the sizes of the plan."""
        return self.effect.now

    def with_plan(self, plan: Plan) -> Draft:
        """The draft with another plan."""
        return replace(self, effect=self.effect.with_plan(plan))

    def cut_to(self, effect: PlanEffect) -> Draft:
        """The draft with a part of its plan, which a later plan may complete."""
        return replace(self, effect=effect, cut=self.cut or effect is not self.effect)


class PlanStage:
    """One rule of a round. A stage without a method of its own changes nothing."""

    def show(self, _moment: Moment, question: Question) -> Question:
        """The question with what the policy is shown of it."""
        return question

    def check(self, draft: Draft) -> Draft:
        """The plan with what is left of it, or comes to it."""
        return draft
