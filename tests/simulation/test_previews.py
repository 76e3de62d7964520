"""`eva plan FILE` asks the same solver as a submission would, and nothing changes by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import RequestPlan
from eva_master.model.events import JobSubmitted, PlanReady
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Assign, Hold, Plan, PolicyMemory
from eva_master.policies.eva import POLICY
from eva_master.policies.eva_published import POLICY as PUBLISHED
from eva_master.ports import Policy
from eva_wire.values.ids import Millis
from tests.fakes.jobs import CATALOG, MEDIUM, job
from tests.fakes.snapshots import hypothetical

SETTINGS = Settings(round_gap_ms=0)
CHEAP_PAIR = (*CATALOG[:1], replace(MEDIUM, price=type(MEDIUM.price)(140_000)), *CATALOG[2:])
VARIANTS = {
    "default": POLICY.config(),
    **{tier: PUBLISHED.config(optimizer=tier) for tier in ("greedy", "lp", "auto")},
}


def requested(machine: Machine, spec: JobSpec, now: int) -> RequestPlan:
    """The round that a submission leads to."""
    actions = machine.handle([JobSubmitted(spec.name, spec)], Millis(now))
    (request,) = (action for action in actions if isinstance(action, RequestPlan))
    return request


def started(policy: Policy) -> Machine:
    """A cluster that has planned for two jobs."""
    machine = Machine(State(CHEAP_PAIR), SETTINGS)
    for now, spec in ((1_000, job("a", 2)), (2_000, job("b", 2, 4))):
        request = requested(machine, spec, now)
        plan, memory = policy.plan(request.snapshot, request.memory)
        machine.handle([PlanReady(request.round, plan, memory)], Millis(now + 100))
    machine.take_changes()
    return machine


def placed(plan: Plan, name: str, known_as: str) -> tuple[list[object], list[object]]:
    """What is bought and who goes where, with the new job's tasks by another name."""
    entries = [
        (entry.run.replace(f"{name}/", f"{known_as}/"), getattr(entry, "on", None))
        for entry in plan.entries
        if isinstance(entry, Assign | Hold)
    ]
    return list(plan.launches), sorted(entries, key=str)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cpus", [(2,), (2, 2, 2), (8,)])
def test_a_preview_is_the_plan_that_a_submission_gets(variant: str, cpus: tuple[int, ...]) -> None:
    kind, config = POLICY if variant == "default" else PUBLISHED, VARIANTS[variant]
    policy: Policy = kind.build(config)
    machine = started(policy)
    spec = job("new", *cpus)
    state, memory = machine.state, machine.state.memories.get("")
    before = state.counters, dict(state.jobs), dict(state.runs), dict(state.instances)

    imagined = hypothetical(state, spec, Millis(5_000), SETTINGS)
    preview, _ = policy.plan(imagined, memory)

    assert (state.counters, state.jobs, state.runs, state.instances) == before
    assert state.memories.get("") is memory
    assert not machine.take_changes()
    request = requested(machine, spec, 5_000)
    assert request.memory == memory
    plan, _ = policy.plan(request.snapshot, request.memory)
    assert placed(preview, "new-3", "new-3") == placed(plan, "new-3", "new-3")
    assert preview.figures.keys() == plan.figures.keys()
    assert len(plan.entries) >= len(cpus)


def test_a_preview_leaves_nothing_behind_in_the_policy() -> None:
    policy, other = (POLICY.build(POLICY.config()) for _ in range(2))
    machine = started(policy)
    memory: PolicyMemory | None = machine.state.memories.get("")
    for cpus in ((2,), (4, 4), (8, 8, 8)):
        policy.plan(hypothetical(machine.state, job("x", *cpus), Millis(5_000), SETTINGS), memory)
    request = requested(machine, job("new", 2), 5_000)
    assert policy.plan(request.snapshot, request.memory) == other.plan(
        request.snapshot, request.memory
    )
