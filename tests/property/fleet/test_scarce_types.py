"""Eva on catalogs where some types are limited: limits hold, and a cluster comes to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.job import TaskSpec
from eva_master.model.planning.plan import Assign, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.policies.eva import POLICY
from eva_wire.values.ids import MILLION, Family
from tests.drawing import drawn
from tests.fakes.snapshots import Cluster, carried_out, offer, task

_ROUNDS = 8


def kind(fast: int, slow: int | None, gpus: int) -> TaskSpec:
    """A task by its rates on the limited type and on the other one, which may not host it."""
    size = (gpus, gpus, gpus)
    demand = {"v": size} if slow is None else {"v": size, "p": size}
    rates = [(Family("v"), fast * MILLION)]
    if slow is not None:
        rates.insert(0, (Family("p"), slow * MILLION))
    return replace(task(f"w{fast}-{slow}", **demand), throughput=tuple(rates))


_KINDS = st.builds(kind, st.integers(1, 10), st.none() | st.integers(1, 10), st.integers(1, 2))
_GANGS = st.lists(st.tuples(_KINDS, st.integers(1, 3)), min_size=1, max_size=5)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Gangs that all wait, a limited type, and another one."""
    price = draw(st.integers(1, 6))
    limited = offer("v2", (2, 2, 2), price, family="v", limit=draw(st.integers(1, 2)))
    cluster = Cluster(limited, offer("p2", (2, 2, 2), 3, family="p"))
    for number, (each, count) in enumerate(draw(_GANGS)):
        cluster.job(f"j{number}", *[each] * count)
    return cluster.snapshot()


@drawn(25)
@given(clusters())
def test_limits_hold_and_a_cluster_comes_to_rest(snapshot: Snapshot) -> None:
    policy = POLICY.build(POLICY.config(explained=False))
    memory: PolicyMemory | None = None
    limits = {offering.id: offering.limit for offering in snapshot.catalog}
    for _ in range(_ROUNDS):
        plan, memory = policy.plan(snapshot, memory)
        changes = [entry for entry in plan.entries if isinstance(entry, Assign)]
        # What is bought costs what the catalog says.
        assert all(launch.offering in snapshot.catalog for launch in plan.launches)
        snapshot = carried_out(snapshot, plan)
        there = Counter(view.offering.id for view in snapshot.instances)
        assert all(limits[name] is None or count <= limits[name] for name, count in there.items())
        if not changes:
            break
    assert not changes
    # Whoever can run on the other type has a place.
    waiting = {run.job for run in snapshot.runs if run.instance is None}
    free = {run.job for run in snapshot.runs if run.task.demand_on(Family("p")) is not None}
    assert not waiting & free
