"""Queues at the servers that a job has asked, as Eagle and CloudCoaster have them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.app.sections.base import PolicySection
from eva_master.app.sections.building import policy_config
from eva_master.model.catalog import Purchase, spot_family
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import (
    BackPolicyRoom,
    InstanceView,
    SharedInstance,
    SharedRoom,
)
from eva_master.model.resources import NOTHING
from eva_policies.cloudcoaster import POLICY
from eva_policies.cloudcoaster.config import Config
from eva_policies.cloudcoaster.memory import Memory, Needs
from eva_policies.cloudcoaster.order import Key
from eva_policies.cloudcoaster.probes import (
    ProbedServer,
    Probes,
    ProbingJob,
    asked,
    passed_over,
    probed,
    queues,
)
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, InstanceId, JobId, Millis
from tests.drawing import drawn
from tests.fakes.snapshots import Cluster, offer, task

SPOT = spot_family(Family("any"))
EITHER = task("w", **{"any": (0, 1, 1), SPOT: (0, 1, 1)})
SERVER = offer("s.1", (0, 1, 1), 1.0)
CHEAP = replace(
    SERVER,
    type=replace(SERVER.type, family=SPOT),
    purchase=Purchase.SPOT,
    price=round(MILLION / 3),
)
JOB = JobId("job")


@st.composite
def _servers(draw: st.DrawFn) -> list[ProbedServer]:
    def some(kind: str, most: int) -> list[InstanceId]:
        return [InstanceId(f"{kind}{number}") for number in range(draw(st.integers(0, most)))]

    shared = [ProbedServer(it, "shared", long=draw(st.booleans())) for it in some("n", 60)]
    steady = [ProbedServer(it, "steady", steady=True) for it in some("s", 30)]
    return shared + steady + [ProbedServer(it, "transient", transient=True) for it in some("t", 30)]


@drawn(100)
@given(_servers(), st.integers(1, 40), st.integers(0, 9))
def test_who_is_asked(servers: list[ProbedServer], tasks: int, seed: int) -> None:
    names = asked(JOB, tasks, servers, seed)
    assert len(set(names)) == len(names)
    found = [it for it in servers if it.id in names]
    without = [it for it in servers if not it.long]
    assert not [it for it in found if it.long]
    least = min(max(20, 2 * tasks), len(without))
    steady = sum(it.steady for it in servers)
    transient = sum(it.transient for it in found)
    assert least <= len(found) <= least + min(transient, steady)
    assert not transient or sum(it.steady for it in found) >= min(transient, steady)
    assert asked(JOB, tasks, servers, seed) == names


def test_who_is_asked_is_up_to_the_job_and_the_seed():
    servers = [ProbedServer(InstanceId(f"n{number:03d}"), "shared") for number in range(500)]
    every = [asked(JobId(f"j{job}"), 1, servers, seed) for job in range(50) for seed in (1, 2)]
    assert len({frozenset(it) for it in every}) == 100
    times = [sum(server.id in it for it in every) for server in servers]
    # 2,000 draws of 500: four each, give or take two of its deviations.
    assert sum(2 <= it <= 8 for it in times) > 400
    assert max(times) < 15


def member(name: str, *, spot: bool = False) -> InstanceView:
    pool, offering = ("transient", CHEAP) if spot else ("steady", SERVER)
    return InstanceView(InstanceId(name), offering, (), ready=True, pool=pool)


def node(name: str, *, held: bool) -> SharedInstance:
    whole = SERVER.type.capacity
    room = SharedRoom(SERVER, NOTHING if held else whole, whole if held else NOTHING)
    return SharedInstance(InstanceId(name), room)


MEMBERS = (*(member(f"s{n}") for n in range(4)), *(member(f"t{n}", spot=True) for n in range(4)))
PUBLISHED = {
    "slots": 8,
    "threshold_ppm": 250_000,
    "placement": "probes",
    "resize": "published",
    "largest_share_ppm": MILLION,
}


def planned(
    memory: PolicyMemory | None = None,
    *,
    members: tuple[InstanceView, ...] = MEMBERS,
    held: int = 5,
    nodes: int = 6,
    jobs: tuple[str, ...] = ("a", "b"),
    **options: object,
) -> tuple[Plan, PolicyMemory | None]:
    cluster = Cluster(SERVER, CHEAP)
    for name in jobs:
        cluster = cluster.job(name, *[EITHER] * 3, kind=JobKind.ARRAY)
    there = tuple(node(f"n{number}", held=number < held) for number in range(nodes))
    snapshot = replace(cluster.snapshot(), instances=members, beside=BackPolicyRoom(there))
    config = Config(**{**PUBLISHED, **options})  # type: ignore[arg-type]
    return POLICY.build(config).plan(snapshot, memory)


def test_each_server_has_a_queue_of_its_own():
    plan, _ = planned()
    assert [line.only for line in plan.lines] == [(it,) for it in ("n5", *MEMBER_NAMES)]
    assert {line.jobs for line in plan.lines} == {("a", "b")}
    pools = {pool.name: pool.members for pool in plan.pools}
    assert all(line.only[0] in pools[line.pools[0]] for line in plan.lines)
    assert pools["shared"] == ("n5",)
    assert not any(hasattr(entry, "on") for entry in plan.entries), "nobody is bound"


MEMBER_NAMES = tuple(view.id for view in MEMBERS)


def test_who_was_asked_stays_asked():
    plan, memory = planned(held=6)
    assert memory is not None
    assert {line.only[0] for line in plan.lines} == set(MEMBER_NAMES)
    later, memory = planned(memory, held=0, jobs=("a", "b", "c"))
    queues = {line.only[0]: line.jobs for line in later.lines}
    assert queues["n0"] == ("c",), "the others have asked before it was free"
    assert queues["s0"] == ("a", "b", "c")


def test_a_queue_goes_with_its_server_and_nobody_stands_in_none():
    _, memory = planned()
    plan, memory = planned(memory, members=MEMBERS[:5], held=6)
    assert {line.only[0] for line in plan.lines} == {"n5", *MEMBER_NAMES[:5]}
    plan, _ = planned(memory, members=(member("s9"),), nodes=0)
    assert [(line.only, line.jobs) for line in plan.lines] == [(("s9",), ("a", "b"))]


def test_a_server_that_is_released_finishes_what_stands_in_its_queue_and_takes_no_more():
    _, memory = planned(jobs=("a",))
    # Nobody holds a long task any more: the rule wants no transient server.
    plan, memory = planned(memory, jobs=("a", "b"), held=0)
    queues = {line.only[0]: line.jobs for line in plan.lines if line.only}
    assert {name: queues[name] for name in ("t0", "t1", "t2", "t3")} == dict.fromkeys(
        ("t0", "t1", "t2", "t3"), ("a",)
    )
    assert all("b" in queues[name] for name in ("s0", "s1", "s2", "s3"))
    # Though there is a need again those that were released go; others are bought as money allows.
    plan, memory = planned(memory, jobs=("b",))
    members = next(pool.members for pool in plan.pools if pool.name == "transient")
    assert not {"t0", "t1", "t2", "t3"} & {*members}


def test_with_released_servers_alone_a_job_waits_at_those_that_boot():
    transient = MEMBERS[4:]
    _, memory = planned(jobs=("a",), members=transient, nodes=0)
    plan, memory = planned(memory, jobs=("a", "b"), members=transient, nodes=0, held=0)
    asked = {line.only[0] for line in plan.lines if "b" in line.jobs}
    assert asked, "it stands somewhere"
    assert not asked & {"t0", "t1", "t2", "t3"}


def test_presets_say_how_the_papers_have_it():
    def config(preset: str, **options: object) -> Config:
        section = PolicySection(name=f"cloudcoaster:{preset}", options=options)
        found = policy_config(section, POLICY)
        assert isinstance(found, Config)
        return found

    assert config("published").placement == config("eagle").placement == "probes"
    assert config("published").resize == "published"
    assert config("eagle").steady_slots == config("eagle").slots
    assert config("published", slots=80).steady_slots == 40


def test_queues_want_the_published_size():
    with pytest.raises(ValueError, match="with placement: probes have resize: published"):
        Config(placement="probes")


def test_who_was_passed_over_for_long_enough_goes_first():
    # "a" came first and has more to do; "b" has less, and keeps its place on s0.
    waiting = [
        ProbingJob(
            job,
            1,
            10_000,
            {InstanceId("s0"): ProbedServer(InstanceId("s0"), "steady", steady=True)},
        )
        for job in (view("a", 0), view("b", 5))
    ]
    probes = probed(waiting, {}, 1)
    came = {it.job.id: it.job.submitted_ms for it in waiting}
    running = {InstanceId("s0"): (Millis(5), JobId("b"))}

    def less_first(job: JobView) -> Key:
        return (0, 0, {"a": 9, "b": 1}[job.id], job.submitted_ms, job.id)

    def queue(probes: Probes) -> tuple[str, ...]:
        (line,) = queues(waiting, probes, less_first, 5, 600_000)
        return line.jobs

    for _ in range(4):
        assert queue(probes) == ("b", "a")
        probes = probed(waiting, passed_over(probes, running, came, 12_000), 1)
    assert queue(probes) == ("b", "a"), "48 s are less than five times ten"
    probes = probed(waiting, passed_over(probes, running, came, 2_000), 1)
    assert queue(probes) == ("a", "b")
    after = passed_over(probes, {InstanceId("s0"): (Millis(0), JobId("a"))}, came, 99_000)
    assert after == probes, "nobody is passed over for one that came first"


def view(name: str, submitted: int) -> JobView:
    job = Cluster(SERVER).job(name, EITHER, kind=JobKind.ARRAY).snapshot().jobs[0]
    return replace(job, submitted_ms=Millis(submitted))


def test_what_is_carried_can_be_read():
    memory = Memory(
        Needs(((Millis(7), 3),)), {JOB: {InstanceId("s0"): 4, InstanceId("s1"): 0}}, Millis(9)
    )
    assert Memory.read(memory.written()) == memory
    released = Memory(released=frozenset({InstanceId("t1"), InstanceId("t0")}))
    assert Memory.read(released.written()) == released
    assert Memory().written() is None
