"""A plan that is sent back piece by piece arrives whole."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from eva_master.adapters.planner.fast_pickle import FastPickle
from eva_master.adapters.planner.plan_diff import PlanDiff, PlanReceiver, PlanSender
from eva_master.model.planning.plan import Plan
from eva_master.model.planning.reasons import Hosting, Occupant, Reasons
from eva_wire.values.ids import InstanceId, RunId

HOSTINGS = [
    Hosting(InstanceId(f"i{number}"), "c", 5, 7, (Occupant(RunId(f"j{number}/0"), 7, 1, 7),))
    for number in range(10)
]
"""Reasons that are the same objects in each plan."""


def _plan(number: int, hostings: list[int]) -> Plan:
    reasons = Reasons(tuple(HOSTINGS[each] for each in hostings))
    return Plan(figures={"round": number}, reasons=reasons)


def _arrived(diff: PlanDiff) -> PlanDiff:
    parcel: FastPickle[PlanDiff] = pickle.loads(pickle.dumps(FastPickle(diff)))
    return parcel.content


@given(
    st.lists(st.lists(st.integers(0, 9), unique=True), max_size=6),
    st.sets(st.integers(0, 5)),
    st.sets(st.integers(0, 5)),
)
def test_every_plan_arrives_as_it_was_made(
    story: list[list[int]], lost: set[int], restarts: set[int]
) -> None:
    sender, receiver = PlanSender(), PlanReceiver()
    for number, hostings in enumerate(story):
        plan = _plan(number, hostings)
        if number in restarts:
            sender, receiver = PlanSender(), PlanReceiver()
        diff = sender.diff(plan, receiver.number)
        if number not in lost:
            arrived = receiver.plan(_arrived(diff))
            assert (arrived, arrived.reasons) == (plan, plan.reasons)


def test_only_new_reasons_are_sent() -> None:
    sender, receiver = PlanSender(), PlanReceiver()
    first = receiver.plan(_arrived(sender.diff(_plan(0, [0, 1, 2]), receiver.number)))
    diff = sender.diff(_plan(1, [2, 3, 0]), receiver.number)
    assert diff.plan.reasons.hostings == (HOSTINGS[3],)
    second = receiver.plan(_arrived(diff))
    assert second.reasons.hostings[0] is first.reasons.hostings[2]
