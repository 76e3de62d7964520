"""`eva explain` tells what goes before a job in a line, and when its next task starts at most."""

from __future__ import annotations

from dataclasses import replace

from eva_client.cli.views import explanation
from eva_master.control.features.pools.admission import Bar, bar
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.catalog import Purchase
from eva_master.model.job import JobSpec
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_master.model.tenants.quotas import Tenancy, quota_of
from eva_master.testing.job_views import with_values
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis, run_id
from eva_wire.values.states import RunState
from tests.fakes.rpc.server import CATALOG, SMALL, add_instance, add_job, spec
from tests.unit.standing.test_explained_lines import NOW, explained, told

SPOT = replace(SMALL, purchase=Purchase.SPOT)
POOLS = ("steady", "spot")


def array(name: str, tasks: int, seconds: int | None = 10) -> JobSpec:
    made = spec(name, tasks=tasks, kind=JobKind.ARRAY)
    return replace(made, duration_ms=None if seconds is None else seconds * 1000)


class Cluster:
    """Pools of instances with two slots each, and one line of jobs."""

    def __init__(self, *jobs: JobSpec, steady: int = 1, spot: int = 0) -> None:
        self.state = State(CATALOG)
        self.steady = [self._member("steady", f"i-{n + 1}") for n in range(steady)]
        self.spot = [self._member("spot", f"s-{n + 1}") for n in range(spot)]
        self.jobs = [add_job(self.state, it) for it in jobs]
        self.say(Line(POOLS, tuple(self.jobs), by_arrival=True))

    def _member(self, pool: str, name: str) -> InstanceId:
        made = add_instance(self.state, name, SPOT if pool == "spot" else SMALL)
        self.state.put_instance(replace(self.state.instances[made], pool=pool))
        return made

    def say(self, *lines: Line, closed: tuple[InstanceId, ...] = (), shared: bool = False) -> None:
        """A plan states the pools, and some lines."""
        pools = (
            Pool("steady", tuple(self.steady), "why", closed=closed, shared=shared),
            Pool("spot", tuple(self.spot), "why"),
        )
        self.state.membership.state("", tuple(it for it in pools if it.members), lines)

    def run(self, job: JobId, index: int, where: InstanceId, since: int = 5_000) -> None:
        """A task runs."""
        run = self.state.runs[run_id(job, index)]
        run = run.to(RunState.STARTING, Millis(since)).to(RunState.RUNNING, Millis(since))
        self.state.put_run(replace(run, instance=where, target=where, attempt=1))

    def line(self, job: JobId) -> pb.LinePlace:
        """What the job is told of its first line."""
        return explained(self.state, job).lines[0]


def test_the_work_before_it_and_the_bound_by_hand() -> None:
    cluster = Cluster(array("a", 4), array("b", 3, 20), array("c", 2), steady=2)
    a, _, c = cluster.jobs
    cluster.run(a, 0, cluster.steady[0], since=1_000)
    cluster.run(a, 1, cluster.steady[1], since=3_000)
    # At 5 s 6 s and 8 s are left of what runs; two tasks of 10 s and three of 20 s go before c.
    line = cluster.line(c)
    assert (line.tasks_before, line.slots, line.work_ms) == (5, 4, 14_000 + 20_000 + 60_000)
    assert line.latest_start_ms == NOW + 94_000 // 4 + 20_000
    assert not line.others_first
    assert told(explained(cluster.state, c))[-1] == (
        "    its next task starts in 43s at the latest: 5 waiting tasks before it, 1m 34s of "
        "estimated work with what runs, on 4 slots that no cloud takes back"
    )
    # Without the longer one of them its wait is bounded better.
    first = cluster.line(a)
    assert (first.tasks_before, first.slots, first.work_ms) == (0, 2, 6_000)
    assert first.latest_start_ms == NOW + 6_000 // 2 + 6_000
    assert explanation.shape(explained(cluster.state, c))["lines"][0] == {
        "pools": ["steady", "spot"],
        "rank": 0,
        "jobs_before": 2,
        "first_before": a,
        "at_most": None,
        "only": [],
        "more_only": 0,
        "tasks_before": 5,
        "work_ms": 94_000,
        "slots": 4,
        "latest_start_ms": NOW + 43_500,
        "no_bound": None,
        "others_first": False,
        "reason": None,
        "note": None,
    }


def test_who_may_go_first_is_told() -> None:
    cluster = Cluster(array("a", 1), array("b", 1))
    a, b = cluster.jobs
    assert not cluster.line(b).others_first
    whole = Line(("steady",), (a, b), by_arrival=True)
    cluster.say(replace(whole, by_arrival=False))
    assert cluster.line(b).others_first
    assert (
        "at the latest, unless others go first: 1 waiting task before it"
        in told(explained(cluster.state, b))[-1]
    )
    # Another line for the same room; its jobs count where it is offered room no later.
    cluster.say(Line(("steady",), (a,), rank=0), Line(("steady",), (b,), 1, by_arrival=True))
    assert (cluster.line(b).tasks_before, cluster.line(b).others_first) == (1, True)
    assert (cluster.line(a).tasks_before, cluster.line(a).others_first) == (0, True)
    cluster.say(Line(("other",), (a,)), Line(("steady",), (b,), by_arrival=True))
    assert (cluster.line(b).tasks_before, cluster.line(b).others_first) == (0, False)


def test_a_task_that_needs_less_or_comes_back_from_a_spot_instance_may_go_first() -> None:
    large = spec("large", kind=JobKind.ARRAY)
    need = tuple((family, one + one) for family, one in large.tasks[0].demand)
    large = replace(large, tasks=(replace(large.tasks[0], demand=need),), duration_ms=10_000)
    cluster = Cluster(large, array("b", 1))
    line = cluster.line(cluster.jobs[1])
    assert (line.slots, line.others_first) == (1, True)
    assert Cluster(array("a", 1), array("b", 1), spot=1).line(JobId("b-2")).others_first


def test_there_is_no_bound_without_estimates_and_it_says_whose() -> None:
    cluster = Cluster(array("a", 1, None), array("b", 1), array("c", 1))
    a, _, c = cluster.jobs
    line = cluster.line(c)
    assert not line.HasField("latest_start_ms")
    assert not line.HasField("work_ms")
    assert told(explained(cluster.state, c))[-1] == (
        "    no bound on when its next task starts: how long a task of a-1 takes is not known, "
        "and it goes before; 2 waiting tasks before it"
    )
    assert cluster.line(a).HasField("latest_start_ms"), "its own time makes no difference"
    # It runs: what it takes is no matter where other slots are.
    cluster.run(a, 0, cluster.steady[0])
    assert "that run on its slots is not known" in cluster.line(c).no_bound
    more = Cluster(array("a", 1, None), array("b", 1), array("c", 1), steady=2)
    more.run(a, 0, more.steady[0])
    assert (more.line(c).slots, more.line(c).latest_start_ms) == (2, NOW + 5_000 + 10_000)


def test_only_what_no_cloud_takes_back_and_is_ready_counts() -> None:
    cluster = Cluster(array("a", 1), array("b", 1), steady=0, spot=2)
    line = cluster.line(cluster.jobs[1])
    assert (
        line.no_bound
        == "only spot instances are ready in its pools, and the cloud may take them back"
    )
    assert (line.work_ms, line.slots) == (10_000, 0)
    cluster = Cluster(array("a", 1), array("b", 1), steady=3)
    b, whole = cluster.jobs[1], Line(("steady",), tuple(cluster.jobs), by_arrival=True)
    assert cluster.line(b).slots == 6
    cluster.say(whole, closed=(cluster.steady[0],))
    assert cluster.line(b).slots == 4
    cluster.say(replace(whole, only=(cluster.steady[2],)))
    assert cluster.line(b).slots == 2
    cluster.say(whole, shared=True)
    assert cluster.line(b).no_bound == "no instance of its pools is ready"
    cluster.say(whole)
    del cluster.state.sessions[cluster.steady[0]]
    assert cluster.line(b).slots == 4
    large = CATALOG[1].type.capacity
    wide = array("w", 1)
    demand = tuple((family, large) for family, _ in wide.tasks[0].demand)
    cluster = Cluster(replace(wide, tasks=(replace(wide.tasks[0], demand=demand),)))
    told_of = cluster.line(cluster.jobs[0])
    assert told_of.no_bound == "no instance on demand in its pools holds its tasks"


def test_who_may_start_no_more_tasks_is_told_that() -> None:
    cluster = Cluster(with_values(array("a", 3), {"concurrency": 1}), array("b", 4))
    a, b = cluster.jobs
    cluster.run(a, 0, cluster.steady[0])
    cluster.run(b, 0, cluster.steady[0])
    assert cluster.line(a).no_bound.endswith("as its job file allows at a time, 1")
    cluster.say(Line(POOLS, (a, b), at_most=((b, 1),)))
    assert cluster.line(b).no_bound == "the line admits no more than 1 of its tasks"
    cluster.say(Line(POOLS, (a, b)))
    assert cluster.line(b).HasField("latest_start_ms")
    cluster.state.put_job(replace(cluster.state.jobs[b], not_before_ms=Millis(NOW + 1)))
    assert cluster.line(b).no_bound == "it failed, and is not tried again at once"
    rests = Suspension(Suspender.USER, Millis(1), "ada")
    cluster.state.put_job(replace(cluster.state.jobs[b], suspension=rests))
    assert cluster.line(b).no_bound == "it is suspended"


def test_of_hundreds_of_lines_three_are_told() -> None:
    cluster = Cluster(array("a", 500), array("b", 1), steady=60)
    a, b = cluster.jobs
    before = [Line(("steady",), (b, a), only=(it,)) for it in cluster.steady[:50]]
    alone = [Line(("steady",), (a,), only=(it,)) for it in cluster.steady[50:]]
    cluster.say(*before, *alone)
    message = explained(cluster.state, a)
    assert [list(it.only) for it in message.lines] == [["i-51"], ["i-52"], ["i-53"]]
    assert message.more_lines == 57
    shown = told(message)
    assert shown[-1] == "  and in 57 more lines"
    assert len(shown) - len(told(pb.Explanation(kind="job", job=message.job))) == 3 * 2 + 1
    assert explanation.shape(message)["more_lines"] == 57
    cluster.say(Line(("steady",), (a,), only=tuple(cluster.steady)))
    (line,) = explained(cluster.state, a).lines
    assert (len(line.only), line.more_only) == (20, 40)
    assert ", i-20 and 40 more alone" in told(explained(cluster.state, a))[-2]
    bare = pb.Explanation()
    bare.CopyFrom(message)
    bare.ClearField("job")
    assert bare.ByteSize() < 1_000


def test_rules_that_keep_a_job_from_room_are_told_in_place_of_a_bound() -> None:
    """The loop gives such a job no room, and previews neither; they ask the same rule."""
    cluster = Cluster(array("a", 2))
    (job,) = cluster.jobs
    record = cluster.state.jobs[job]
    cluster.state.put_job(replace(record, not_before_ms=Millis(NOW + 1)))
    assert cluster.line(job).no_bound == "it failed, and is not tried again at once"
    cluster.state.put_job(record)
    assert not cluster.line(job).no_bound
    used = Tenancy({record.spec.tenant: quota_of({"c7i": 0})})
    assert _bar(cluster.state, Settings(tenancy=used), job) is None, "it takes no GPU"
    assert _bar(cluster.state, Settings(), job, held_back=True) is Bar.HELD_BACK
    assert _bar(cluster.state, Settings(), job, placeable=0) is Bar.NONE_LEFT


def _bar(
    state: State, settings: Settings, job: JobId, *, placeable: int = 1, held_back: bool = False
) -> Bar | None:
    home = settings.partitions.default
    return bar(
        state,
        settings,
        home,
        state.jobs[job],
        Millis(NOW),
        placeable=placeable,
        held_back=lambda: held_back,
    )
