"""Pools, lines, drains and owned nodes are each of one partition."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.lines.memory import LineMemory
from eva_master.control.measure import ledger
from eva_master.model.actions import RequestPlan, StartTask, StopTask
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import (
    DrainRequested,
    Phase,
    RunReport,
    Tick,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.fleet.partitions import Budget, Offers, Partition, PartitionLimits, with_nodes
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price
from tests.unit.partitions.test_partition_cycles import HOUR, MAIN, ROOM, SHORT, Cluster

G = replace(MAIN, offers=Offers(families=frozenset({"g"})))


def pool(cluster: Cluster, partition: str, size: int, *jobs: str) -> Plan:
    """A plan that states a pool of new instances, and a line for it."""
    sold = cluster.asked[partition].snapshot.catalog[0]
    keys = tuple(range(size))
    lines = (Line(("kept",), tuple(map(JobId, jobs))),) if jobs else ()
    told = Pool("kept", keys, f"{partition} keeps them")
    return Plan(tuple(NewInstance(key, sold) for key in keys), pools=(told,), lines=lines)


def ask(cluster: Cluster) -> None:
    """Have both partitions ask for a plan."""
    cluster.submit(f"a{cluster.commands}", partition="short")
    cluster.submit(f"b{cluster.commands}", partition="main")
    assert set(cluster.asked) == {"short", "main"}


def settle(cluster: Cluster, *partitions: str) -> None:
    """Have partitions plan nothing for as long as they ask."""
    while there := [it for it in partitions if it in cluster.asked]:
        cluster.answer(there[0])


def members(cluster: Cluster, partition: str) -> list[InstanceId]:
    """The instances that stand in pools of a partition."""
    there = cluster.machine.state.instances
    return [
        it for it in cluster.machine.state.membership.standing if there[it].partition == partition
    ]


def test_a_plan_leaves_the_pools_and_lines_of_other_partitions_alone() -> None:
    cluster = Cluster(SHORT, MAIN)
    ask(cluster)
    cluster.answer("short", pool(cluster, "short", 1))
    cluster.answer("main", pool(cluster, "main", 2))
    assert [len(members(cluster, name)) for name in ("short", "main")] == [1, 2]
    standings = cluster.machine._context.memory(LineMemory).standings
    assert [it.reason for it in standings.of("short").pools] == ["short keeps them"]
    assert cluster.machine.state.membership.reasons == {
        "short/kept": "short keeps them",
        "main/kept": "main keeps them",
    }
    cluster.submit("more", partition="main")
    cluster.answer("main")  # it states no pool any more
    assert [len(members(cluster, name)) for name in ("short", "main")] == [1, 0]
    drained = cluster.machine.state.membership.draining
    assert {cluster.machine.state.instances[it].partition for it in drained} <= {"main"}
    assert cluster.machine.state.membership.reasons == {"short/kept": "short keeps them"}


def test_a_line_takes_room_in_its_own_partition_alone() -> None:
    cluster = Cluster(SHORT, MAIN)
    ask(cluster)
    short, main = [job.id for job in cluster.machine.state.jobs.values()]
    cluster.answer("short", pool(cluster, "short", 1, short, main))
    cluster.answer("main", pool(cluster, "main", 1, main))
    cluster.up()
    runs = {it.job: it.instance for it in cluster.machine.state.runs.values()}
    there = cluster.machine.state.instances
    assert {job: there[on].partition for job, on in runs.items() if on} == {
        short: "short",
        main: "main",
    }


def test_who_has_moved_away_takes_no_room_from_the_line_in_which_it_stood() -> None:
    cluster = Cluster(SHORT, MAIN)
    cluster.submit("job", partition="short")
    cluster.answer("short", pool(cluster, "short", 1, "job-1"))
    assert list(cluster.machine.state.membership.queued) == ["job-1"]
    assert cluster.move("job-1", "main").error is None
    assert cluster.machine.state.membership.queued == {}
    cluster.up()
    (run,) = cluster.machine.state.members(JobId("job-1"))
    assert (run.target, run.instance) == (None, None)


def test_limits_and_budgets_count_members_of_pools() -> None:
    for part, most in (
        (replace(MAIN, limits=PartitionLimits(instances=2)), 2),
        (replace(MAIN, budget=Budget(per_hour=3_500_000)), 3),
    ):
        cluster = Cluster(part)
        cluster.submit("job")
        plan = cluster.one_each("main")
        kept = pool(cluster, "main", 5)
        moved = tuple(replace(it, key=it.key + 10) for it in kept.launches)
        keys = tuple(it.key for it in moved)
        launches, pools = (*plan.launches, *moved), (replace(kept.pools[0], members=keys),)
        cluster.answer("main", replace(plan, launches=launches, pools=pools))
        assert len(cluster.machine.state.live) == most, "who waits for one comes first"
        assert len(members(cluster, "main")) == most - 1


def test_an_instance_that_is_drained_is_its_own_partitions() -> None:
    cluster = Cluster(SHORT, G)
    ask(cluster)
    cluster.answer("short", cluster.one_each("short"))
    cluster.up()
    (there,) = cluster.machine.state.live
    cluster.handle(DrainRequested("drain", there, False, "ops"))
    settle(cluster, "short", "main")
    cluster.submit("c", partition="short")
    cluster.submit("d", partition="main")
    short, main = cluster.asked["short"].snapshot, cluster.asked["main"].snapshot
    assert [it.id for it in short.draining] == [there]
    assert main.draining == ()
    limits = [it.limit for it in (*short.catalog, *main.catalog)]
    assert limits == [1, 0], "what the drained one leaves is for the job that came first"


def test_a_partition_is_told_when_what_was_drained_elsewhere_is_gone() -> None:
    cluster = Cluster(SHORT, G)
    cluster.submit("job", partition="short", tasks=2)
    cluster.submit("other", partition="main")
    cluster.answer("short", cluster.one_each("short"))
    cluster.up()
    first, second = cluster.machine.state.live
    cluster.handle(DrainRequested("drain", first, False, "ops"))
    settle(cluster, "short", "main")
    cluster.handle(DrainRequested("drain-2", second, False, "ops"))
    assert "main" not in cluster.asked, "nothing is to be had yet"
    cluster.gone(first)
    assert cluster.asked["main"].snapshot.catalog[0].limit == 1


def test_what_stands_in_pools_of_one_name_is_booked_for_each_partition() -> None:
    cluster = Cluster(SHORT, MAIN)
    ask(cluster)
    cluster.answer("short", pool(cluster, "short", 1))
    cluster.answer("main", pool(cluster, "main", 2))
    cluster.up()
    cluster.handle(Tick(), after_ms=HOUR)
    running = ledger.running_up(cluster.machine.state, Millis(cluster.now)).pools
    for name in cluster.machine.state.live:
        ledger.book(cluster.machine.state, name, Millis(cluster.now))
    pools = cluster.machine.state.totals.pools
    assert running.keys() == pools.keys(), "a pool has one name, booked or not"
    assert {name: (it.charged // HOUR, it.idle // HOUR) for name, it in pools.items()} == {
        "short/kept": (1_000_000, 1_000_000),
        "main/kept": (2_000_000, 2_000_000),
    }


NODE = OwnedNode(
    InstanceId("rack"),
    Offering(
        InstanceType("own.1", Family("c"), Resources(0, 1000, 1024)),
        Price(0),
        NODE_ZONE,
        Purchase.OWNED,
    ),
    60_000,
)


class Racks(Cluster):
    """A cluster with an owned node."""

    def __init__(self, *parts: Partition) -> None:
        super().__init__(*parts, catalog=(*Cluster(MAIN).catalog, replace(NODE.offering, limit=1)))
        self.nodes(*parts)

    def nodes(self, *parts: Partition) -> None:
        """Begin again with these partitions."""
        divided = with_nodes(parts, {NODE.name: NODE.offering.id})
        self.settings = replace(self.settings, nodes={NODE.name: NODE})
        self.restart(*divided.parts)
        settle(self, *[it.name for it in parts])

    def join(self) -> None:
        """The node's agent opens a session."""
        self.handle(WorkerRegistered(NODE.name, 1, ROOM, ()))
        settle(self, *self.asked)


RACK = Partition("racks", offers=Offers(purchase=frozenset()), nodes=frozenset({NODE.name}))


def test_an_owned_node_is_of_the_partition_that_names_it() -> None:
    cluster = Racks(RACK, MAIN)
    cluster.join()
    assert cluster.machine.state.instances[NODE.name].partition == "racks"
    cluster.submit("job", partition="racks")
    assert cluster.submit("other", partition="main").error is None
    racks, main = cluster.asked["racks"].snapshot, cluster.asked["main"].snapshot
    assert [it.id for it in racks.instances] == ["rack"]
    assert [(it.purchase, it.limit) for it in racks.catalog] == [(Purchase.OWNED, 1)]
    assert main.instances == ()
    assert Purchase.OWNED not in {it.purchase for it in main.catalog}


def test_who_is_on_a_node_that_is_another_partitions_now_goes_on_elsewhere() -> None:
    cluster = Racks(RACK, MAIN)
    cluster.join()
    cluster.submit("job", partition="racks")
    request: RequestPlan = cluster.asked["racks"]
    (run,) = request.snapshot.runs
    actions = cluster.answer("racks", Plan((), (Assign(run.id, NODE.name),)))
    assert any(isinstance(it, StartTask) for it in actions)
    cluster.nodes(Partition("racks"), MAIN)
    assert cluster.machine.state.instances[NODE.name].partition == "main"
    (there,) = cluster.machine.state.members(JobId("job-1"))
    assert there.target is None
    assert there.waiting_for == "rack is in partition main now"
    runs = RunReport(run.id, 1, Phase.RUNNING)
    actions = cluster.handle(WorkerRegistered(NODE.name, 2, ROOM, (runs,)))
    assert [it.run for it in actions if isinstance(it, StopTask)] == [run.id]
    over = RunReport(run.id, 1, Phase.EXITED, 0, stopped=True)
    actions = cluster.handle(WorkerReported(NODE.name, 2, (over,)))
    assert not any(isinstance(it, StartTask) for it in actions)
    assert [it.id for it in cluster.asked["racks"].snapshot.runs] == [run.id]
