"""The way of a plan, from the question to the policy to the part of its answer that is carried out.

The control loop plans so for the jobs that are there, and `eva plan` for one that might be.
"""

from __future__ import annotations

from collections.abc import Collection

from eva_master.control.rounds.draft import Draft, PlanStage, Question
from eva_master.control.rounds.moment import Moment
from eva_master.control.rounds.stages import (
    ClaimantsFirst,
    ClaimsShown,
    ClusterLimits,
    Deadlines,
    DearOfferings,
    DearPurchases,
    Declined,
    FailedBoots,
    GangsInZones,
    GivingWay,
    HandedMembers,
    HiddenForks,
    LateLaunches,
    LaunchLeeway,
    LawfulSizes,
    Leftovers,
    LoneUnit,
    MoreRuns,
    PartitionAllowance,
    PoolPurchases,
    Quotas,
    QuotasAndBudgets,
    Reconciled,
    RoomOfClaims,
    RoomOfOthers,
    SpareMembers,
    StillWaiting,
    TurnReasons,
    TurnsAtLimits,
    WaitingReasons,
    WaitingTurns,
    checked,
    shown,
)
from eva_master.model.planning.plan import Plan
from eva_wire.values.ids import InstanceId, RunId

SEEN: tuple[PlanStage, ...] = (
    LaunchLeeway(),
    RoomOfOthers(),
    DearOfferings(),
    Deadlines(),
    Quotas(),
    SpareMembers(),
    HiddenForks(),
    ClaimsShown(),
    WaitingTurns(),
)
"""Stages that hide something from the policy, and complete its plan by that."""

POSSIBLE: tuple[PlanStage, ...] = (StillWaiting(), LawfulSizes(), LateLaunches())
"""Stages that leave out of a plan that which has no use by now."""

LIMITS: tuple[PlanStage, ...] = (
    ClaimantsFirst(),
    GangsInZones(),
    DearPurchases(),
    Leftovers(),
    FailedBoots(),
    TurnsAtLimits(),
    PartitionAllowance(),
    ClusterLimits(),
    PoolPurchases(),
    HandedMembers(),
    GivingWay(),
    MoreRuns(),
    QuotasAndBudgets(),
    RoomOfClaims(),
    GangsInZones(seats=False),
    WaitingReasons(),
    Reconciled(),
    Declined(),
    TurnReasons(),
)
"""Stages that leave of a plan what all limits allow and what holds by now."""

ROUND: tuple[PlanStage, ...] = (*SEEN, *POSSIBLE, *LIMITS, LoneUnit(LIMITS))
"""All stages: each shows, from the first to the last, then the policy plans, then each checks."""


def ask(moment: Moment) -> Question:
    """The question for the policy of a partition."""
    return shown(moment, ROUND)


def answer(
    moment: Moment,
    question: Question,
    plan: Plan,
    taken: Collection[RunId] = (),
    ordered: Collection[InstanceId] = (),
) -> Draft:
    """The outcome of a policy's plan.

    Args:
        moment: The partition as it is.
        question: The question to the policy.
        plan: The policy's plan.
        taken: Task runs that took room from a line meanwhile.
        ordered: Instances that no plan may take back.
    """
    return checked(Draft.begun(moment, question, plan, taken, ordered), ROUND)
