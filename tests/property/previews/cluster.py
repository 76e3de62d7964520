"""A master with plans and workers at once, and the outlook of a job beside what happens."""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, RequestPlan
from eva_master.model.catalog import Catalog
from eva_master.model.events import (
    InstanceUp,
    JobSubmitted,
    PlanReady,
    WorkerRegistered,
)
from eva_master.model.job import JobSpec
from eva_master.ports import Policy
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, Millis


class Cluster:
    """A master whose planner answers at once, and whose workers are there as soon as asked."""

    def __init__(self, catalog: Catalog, policy: Policy, settings: Settings) -> None:
        self.machine = Machine(State(catalog), settings)
        self.policy = policy
        self.now = 0
        self.up: set[InstanceId] = set()

    def begin(self) -> None:
        """Have the master begin."""
        self.settle(self.machine.recover(Millis(0)))

    def submit(self, spec: JobSpec) -> None:
        """Submit a job, and have all plans made that follow."""
        self.settle(self.handle(JobSubmitted(spec.name, spec)))

    def handle(self, *events: object) -> list[Action]:
        """One turn."""
        self.now += 1_000
        return self.machine.handle(list(events), Millis(self.now))  # type: ignore[arg-type]

    def settle(self, actions: list[Action]) -> None:
        """Have all plans made that are asked for, and all instances come up."""
        for _ in range(40):
            asked = [it for it in actions if isinstance(it, RequestPlan)]
            if asked:
                plan, memory = self.policy.plan(asked[0].snapshot, asked[0].memory)
                actions = self.handle(PlanReady(asked[0].round, plan, memory))
                continue
            fresh = sorted(set(self.machine.state.live) - self.up)
            if not fresh:
                return
            self.up.add(fresh[0])
            size = self.machine.state.instances[fresh[0]].offering.type.capacity
            actions = self.handle(
                InstanceUp(fresh[0], Millis(self.now)), WorkerRegistered(fresh[0], 1, size, ())
            )

    def register(self, *nodes: InstanceId) -> None:
        """Have owned nodes join."""
        for name in nodes:
            self.up.add(name)
            size = self.machine.state.catalog[-1].type.capacity
            self.settle(self.handle(WorkerRegistered(name, 1, size, ())))


Seen = tuple[Mapping[str, object], Mapping[str, str]]


def outcome(cluster: Cluster, name: str) -> Seen:
    """Where a job's tasks are to be, by instance or by the type of a new one, and why not."""
    state = cluster.machine.state
    places: dict[str, object] = {}
    waits: dict[str, str] = {}
    for run in state.members(state.jobs[name].id):  # type: ignore[index]
        if run.target is None:
            if run.waiting_for:
                waits[run.id] = run.waiting_for
            continue
        places[run.id] = _place(state, run.target)
    return places, waits


def _place(state: State, name: InstanceId) -> object:
    instance = state.instances[name]
    return name if instance.ready_ms is not None else f"new {instance.offering.id}"


def foreseen(cluster: Cluster, spec: JobSpec) -> tuple[str, Seen]:
    """Outlook of the job as `eva plan` has it, and the job's id."""
    model = cluster.machine.published()
    preview = model.preview(spec, Millis(cluster.now + 1_000))
    plan = None
    if preview.question is not None:
        plan, _ = cluster.policy.plan(preview.question, preview.memory)
    told = preview.foreseen(plan)
    places: dict[str, object] = {}
    for run in told.runs:
        place = told.places.get(run)
        if isinstance(place, int):
            places[run] = f"new {told.offerings[place].id}"
        elif place is not None:
            places[run] = _place(cluster.machine.state, place)
    waits = {run: told.waiting[run] for run in told.runs if run not in places and told.waiting}
    return preview.job, (places, waits)


def compare(cluster: Cluster, before: list[JobSpec], spec: JobSpec) -> None:
    """Outlook of a job, beside what then happens."""
    for old in before:
        cluster.submit(old)
    told, (places, waits) = foreseen(cluster, spec)
    actions = cluster.handle(JobSubmitted("new", spec))
    known = {str(it) for it in cluster.machine.state.jobs}
    if told not in known:
        return  # refused: a preview tells nothing of that
    asked = [it for it in actions if isinstance(it, RequestPlan)]
    if asked:
        plan, memory = cluster.policy.plan(asked[0].snapshot, asked[0].memory)
        now = Millis(cluster.now)
        cluster.machine.handle([PlanReady(asked[0].round, plan, memory)], now)
    then, why = outcome(cluster, told)
    assert places == {run: it for run, it in then.items() if run in places or run in waits}
    assert then.keys() <= places.keys()
    for run, reason in why.items():
        if run in waits:
            # Tasks of an array that are alike and never had a place show one reason of theirs.
            alike = waits.values() if spec.kind is JobKind.ARRAY else [waits[run]]
            assert any(reason in told_of for told_of in alike)
