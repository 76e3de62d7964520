"""Tasks that would wait for a boot start on own nodes that have emptied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_master.control.settings import Settings
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.job import JobSpec
from eva_wire.values.ids import InstanceId, Price, RunId
from tests.fakes.emptied.worlds import MINUTE_MS, SETTINGS, Scripted, ended_ms
from tests.fakes.jobs import MEDIUM, SMALL, Script, job

NODE = replace(MEDIUM, price=Price(0), zone=NODE_ZONE, purchase=Purchase.OWNED, limit=2)
QUICK_MS = 20_000
"""For a round, a start and a report; a boot takes 70 s."""


def world(
    wanted: Mapping[str, str], *, owned: Offering = NODE, count: int = 2, box: Offering = SMALL
) -> Scripted:
    """A cluster with own nodes, n0 and so on, in which tasks go where a test says."""
    names = [InstanceId(f"n{number}") for number in range(count)]
    nodes = {name: OwnedNode(name, replace(owned, limit=count), 600_000) for name in names}
    settings: Settings = replace(SETTINGS, nodes=nodes)
    script = Script(wanted, {"box": box, "more": MEDIUM})
    made = Scripted(script, SMALL, MEDIUM, settings=settings, work_of=_work)
    script.where.update({name: name for name in names})
    # Names of own nodes are those of places.
    script._learn_names = lambda snapshot: _learn(script, snapshot)  # type: ignore[method-assign]
    return made


def _work(run: RunId) -> Work:
    return Work((10 if run.startswith("stays") else 3) * MINUTE_MS)


def _learn(script: Script, snapshot: object) -> None:
    Script._learn_names(script, snapshot)  # type: ignore[arg-type]
    live = {view.id for view in snapshot.instances}  # type: ignore[attr-defined]
    script.where.update({str(name): name for name in live if str(name).startswith("n")})


def started_ms(cluster: Scripted, run: str) -> int:
    """When a task run began for the first time."""
    return next(at for state, at in cluster.state.runs[RunId(run)].history if state == "starting")


def places(cluster: Scripted, run: str) -> list[str]:
    """Instances on which a task run was."""
    return [place for _, place in cluster.state.runs[RunId(run)].places]


def two_jobs(later: JobSpec, *, cpus: int = 4, **more: object) -> Scripted:
    """A job on an own node until about minute 3, and another that goes to a new instance then."""
    cluster = world({"first-1/0": "n0", "later-2/0": "box", "later-2/1": "more"}, count=1, **more)
    cluster.come(job("first", cpus, minutes=3))
    cluster.come(later, at_min=2.5)
    cluster.finish()
    return cluster


def test_a_task_on_its_way_to_a_new_instance_starts_on_a_node_that_empties() -> None:
    cluster = two_jobs(job("later", 2, minutes=3))
    assert started_ms(cluster, "later-2/0") < ended_ms(cluster, "first-1/0") + QUICK_MS
    assert places(cluster, "later-2/0") == ["n0"]


def test_a_gang_comes_whole_or_not_at_all() -> None:
    cluster = two_jobs(job("later", 2, 2, minutes=3))
    assert "n0" not in places(cluster, "later-2/0") + places(cluster, "later-2/1")


def test_a_node_that_costs_more_than_the_new_instance_stays_empty() -> None:
    cluster = two_jobs(job("later", 2, minutes=3), owned=replace(NODE, price=Price(10_000_000)))
    assert places(cluster, "later-2/0") != ["n0"]


def test_a_task_that_a_node_cannot_host_waits_for_its_instance() -> None:
    small = replace(NODE, type=SMALL.type)
    cluster = two_jobs(job("later", 4, minutes=3), cpus=2, owned=small, box=MEDIUM)
    assert places(cluster, "later-2/0") != ["n0"]


@pytest.mark.parametrize("urgent", [0, 5])
def test_a_task_waits_for_no_other_that_leaves_a_node_while_another_is_empty(urgent: int) -> None:
    wanted = {"stays-1/0": "n0", "ends-2/0": "n1", "large-3/0": "n0"}
    cluster = world(wanted)
    cluster.come(job("stays", 2, minutes=10))
    cluster.come(job("ends", 4, minutes=3), at_min=0.1)
    cluster.play(2.5)
    # From here on the first is to make room for a third, and to move to a new instance.
    cluster._script.wanted["stays-1/0"] = "box"
    cluster.come(job("large", 4, minutes=3, priority=urgent), at_min=2.6)
    cluster.finish()
    assert started_ms(cluster, "large-3/0") < ended_ms(cluster, "ends-2/0") + QUICK_MS
    assert places(cluster, "large-3/0") == ["n1"]
    assert places(cluster, "stays-1/0") == ["n0"], "nothing comes to its place any more"
