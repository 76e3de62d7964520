"""The sizes that policies give to elastic gangs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.planning.validate_sizes import reconciled
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.elastic import Elastic, Scaling
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import InstanceView, RemainingWork, RunView, Snapshot
from eva_master.model.planning.standing import Pool
from eva_master.model.resources import Resources
from eva_master.packing.elastic.fixed import built, fixed_sizes
from eva_master.packing.fleet.contenders import Contenders
from eva_master.policies import eva, no_packing
from eva_master.policies.eva.elastic import ElasticEva
from eva_master.ports import Policy
from eva_master.testing.job_views import changed, job_view
from eva_policies import stratus, synergy
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload, run_id

CPU = Family("c")
USUAL = Scaling((), 900_000)
HOUR_MS = 3_600_000


def offering(cpus: int, usd: float, limit: int | None = None) -> Offering:
    kind = InstanceType(f"c.{cpus}", CPU, Resources(0, cpus * 1000, cpus * 4096), 10_000, 30_000)
    return Offering(kind, Price(round(usd * 1e6)), limit=limit)


def task(cpus: int, name: str) -> TaskSpec:
    need = Resources(0, cpus * 1000, 1024)
    return TaskSpec(Workload(name), Program("true"), ((CPU, need),), reports_steps=False)


class Cluster:
    """A small cluster that plans are carried out on, at once."""

    def __init__(self, *catalog: Offering) -> None:
        self.catalog = catalog
        self.now = 0
        self.jobs: dict[JobId, JobView] = {}
        self.runs: dict[RunId, RunView] = {}
        self.instances: dict[InstanceId, Offering] = {}
        self.memory: PolicyMemory | None = None
        self.arrivals = self.completions = 0
        self.sizes: list[tuple[JobId, int, str]] = []
        self._bought = 0

    def gang(
        self, name: str, least: int, most: int, cpus: int = 1, scaling: Scaling = USUAL
    ) -> None:
        job, spec = JobId(f"{name}-{len(self.jobs)}"), task(cpus, name)
        names = tuple(run_id(job, index) for index in range(least))
        elastic = Elastic(least, most, scaling, scaling) if most > least else None
        self.jobs[job] = job_view(
            job,
            JobKind.GANG,
            names,
            Millis(self.now),
            0,
            checkpoint_ms=8_000,
            launch_ms=47_000,
            elastic=elastic,
        )
        for run in names:
            self.runs[run] = RunView(run, job, spec, None, pinned=False, running=False)
        self.arrivals += 1

    def end(self, name: str) -> None:
        (job,) = [it for it in self.jobs if it.startswith(f"{name}-")]
        del self.jobs[job]
        self.runs = {run: view for run, view in self.runs.items() if view.job != job}
        self.completions += 1

    def snapshot(self) -> Snapshot:
        busy = {view.instance for view in self.runs.values()}
        self.instances = {name: it for name, it in self.instances.items() if name in busy}
        return Snapshot(
            Millis(self.now),
            self.catalog,
            tuple(self.jobs[job] for job in sorted(self.jobs)),
            tuple(self.runs[run] for run in sorted(self.runs)),
            tuple(
                InstanceView(
                    name,
                    self.instances[name],
                    tuple(sorted(run for run, it in self.runs.items() if it.instance == name)),
                    ready=True,
                )
                for name in sorted(self.instances)
            ),
            self.arrivals,
            self.completions,
        )

    def round(self, policy: Policy, later_s: int = 60) -> Plan:
        """Hold a round, have its plan carried out, and let time pass."""
        seen = self.snapshot()
        plan, self.memory = policy.plan(seen, self.memory)
        decision = reconciled(seen, plan)
        assert not decision.dropped, plan
        assert decision.sizes == plan.sizes
        self.sizes += [(entry.job, entry.members, entry.reason) for entry in plan.sizes]
        seen = with_sizes(seen, {entry.job: entry.members for entry in plan.sizes})
        self.jobs = {job.id: job for job in seen.jobs}
        self.runs = {run.id: run for run in seen.runs}
        names = {}
        for launch in decision.launches:
            self._bought += 1
            names[launch.key] = InstanceId(f"i{self._bought}")
            self.instances[names[launch.key]] = launch.offering
        for run, where in decision.places:
            on = names[where] if isinstance(where, int) else where
            self.runs[run] = replace(self.runs[run], instance=on, running=True)
        self.runs = {
            run: replace(view, running=view.instance is not None) for run, view in self.runs.items()
        }
        self.now += later_s * 1000
        return plan

    def size(self, name: str) -> int:
        """How many members of a gang have places."""
        return sum(
            run.startswith(f"{name}-") and view.instance is not None
            for run, view in self.runs.items()
        )

    def comes_to_rest(self, policy: Policy, rounds: int = 8) -> None:
        """After some rounds nothing changes any more."""
        for _ in range(rounds):
            plan = self.round(policy)
        assert not plan.sizes
        assert not plan.launches
        assert not [entry for entry in plan.entries if type(entry).__name__ != "Hold"]


@pytest.fixture
def policy() -> Policy:
    return built(eva.POLICY, eva.POLICY.config())


OTHERS = [no_packing.POLICY, stratus.POLICY, synergy.POLICY]


def test_eva_starts_with_the_least_number_where_more_do_less_each(policy: Policy) -> None:
    cluster = Cluster(offering(1, 1.0))
    cluster.gang("g", 2, 8)
    cluster.round(policy)
    assert cluster.size("g") == 2
    cluster.comes_to_rest(policy)
    assert cluster.size("g") == 2


def test_eva_starts_with_as_many_as_the_instance_has_room_for(policy: Policy) -> None:
    cluster = Cluster(offering(4, 1.0))
    cluster.gang("g", 1, 8)
    cluster.round(policy)
    assert cluster.size("g") == 4
    cluster.comes_to_rest(policy)
    assert cluster.size("g") == 4
    assert len(cluster.instances) == 1


def test_eva_starts_larger_where_more_do_more_each(policy: Policy) -> None:
    cluster = Cluster(offering(1, 1.0))
    cluster.gang("g", 1, 4, scaling=Scaling(((1, 100), (2, 220), (3, 300), (4, 390))))
    cluster.round(policy)
    assert cluster.size("g") == 2


def test_eva_starts_smaller_where_limits_leave_no_room_and_grows_when_they_do(
    policy: Policy,
) -> None:
    cluster = Cluster(offering(1, 1.0, limit=4))
    cluster.gang("f", 3, 3)
    cluster.round(policy)
    cluster.gang("g", 1, 4, scaling=Scaling((), 1_100_000))
    cluster.round(policy)
    assert (cluster.size("f"), cluster.size("g")) == (3, 1)
    assert cluster.sizes == []
    cluster.end("f")
    cluster.comes_to_rest(policy)
    assert cluster.size("g") == 4
    assert [size for _, size, _ in cluster.sizes] == [4]


def test_eva_fills_room_that_is_paid_for_and_gives_it_up_to_others(policy: Policy) -> None:
    cluster = Cluster(offering(4, 1.0, limit=1))
    cluster.gang("f", 2, 2)
    cluster.round(policy)
    cluster.gang("g", 1, 8)
    cluster.round(policy)
    assert (cluster.size("f"), cluster.size("g")) == (2, 2)
    cluster.end("f")
    cluster.comes_to_rest(policy)
    assert cluster.size("g") == 4
    cluster.gang("h", 1, 1)
    cluster.round(policy)
    assert cluster.size("h") == 1
    assert 1 <= cluster.size("g") <= 3
    cluster.comes_to_rest(policy)
    assert (cluster.size("g"), cluster.size("h")) == (3, 1)


class _Standing:
    """The policy inside another one that has instances stand in a pool."""

    def __init__(self, inner: eva.policy.Eva, *, closed: bool) -> None:
        self._inner = inner
        self._closed = closed
        self.name, self.terms, self.problem = inner.name, inner.terms, inner.problem

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy.plan`."""
        plan, memory = self._inner.plan(snapshot, memory)
        members = tuple(view.id for view in snapshot.instances if view.pool)
        pool = Pool("p", members, "they stay", members if self._closed else ())
        return replace(plan, pools=(pool,)), memory


@pytest.mark.parametrize(
    ("pool", "closed", "size"), [("p", False, 4), ("p", True, 2), ("", False, 2)]
)
def test_a_gang_grows_onto_members_of_its_policys_pools_alone(
    pool: str, closed: bool, size: int
) -> None:
    cluster = Cluster(offering(2, 1.0))
    cluster.gang("g", 2, 4)
    seen = cluster.snapshot()
    held, empty = InstanceId("a"), InstanceId("b")
    places = tuple(replace(run, instance=held, running=True) for run in seen.runs)
    seen = replace(
        seen,
        runs=places,
        instances=(
            InstanceView(held, cluster.catalog[0], tuple(run.id for run in places), ready=True),
            InstanceView(empty, cluster.catalog[0], (), ready=True, pool=pool),
        ),
    )
    inner = _Standing(eva.policy.Eva(eva.POLICY.config()), closed=closed)
    plan, _ = ElasticEva(inner).plan(seen, None)  # type: ignore[arg-type]
    assert [entry.members for entry in plan.sizes] == ([size] if size > 2 else [])


def test_eva_gives_back_what_only_members_hold_that_do_not_pay(policy: Policy) -> None:
    cluster = Cluster(offering(2, 1.0), offering(1, 0.6))
    cluster.gang("f", 1, 1)
    cluster.gang("g", 1, 8)
    cluster.comes_to_rest(policy)
    cluster.end("f")
    cluster.comes_to_rest(policy)
    price = sum(it.price for it in cluster.instances.values())
    # Two members on the larger cost 1.0 / 2**0.9 = 0.536 a unit of work, one on the smaller 0.6.
    assert (cluster.size("g"), price) == (2, 1_000_000)


def test_eva_changes_nothing_for_a_gang_that_is_about_to_end(policy: Policy) -> None:
    cluster = Cluster(offering(1, 1.0, limit=4))
    cluster.gang("f", 3, 3)
    cluster.round(policy)
    cluster.gang("g", 1, 4, scaling=Scaling((), 1_100_000))
    cluster.round(policy)
    cluster.end("f")
    cluster.runs = {
        run: replace(view, remaining=RemainingWork(20_000)) for run, view in cluster.runs.items()
    }
    cluster.round(policy)
    assert cluster.size("g") == 1


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.name)
def test_other_policies_take_the_largest_size_that_the_cluster_could_hold(kind: object) -> None:
    policy = built(kind, kind.config())  # type: ignore[attr-defined, arg-type]
    cluster = Cluster(offering(1, 1.0, limit=5))
    cluster.gang("g", 2, 8)
    cluster.gang("h", 1, 3)
    cluster.round(policy)
    assert cluster.size("g") in (0, 5)
    cluster.comes_to_rest(policy)
    assert {job: size for job, size, _ in cluster.sizes} == {JobId("g-0"): 5, JobId("h-1"): 3}


def test_on_a_fleet_members_shorten_the_work_that_is_left() -> None:
    cluster = Cluster(offering(4, 1.0, limit=1), offering(2, 0.5, limit=2))
    cluster.gang("g", 1, 8, scaling=Scaling((), 1_000_000))
    seen = cluster.snapshot()
    works = tuple(replace(run, remaining=RemainingWork(HOUR_MS)) for run in seen.runs)
    for members in (1, 4):
        grown = with_sizes(replace(seen, runs=works), {JobId("g-0"): members})
        _, (one,) = Contenders().of(grown, 0)
        assert one.alone_ms[CPU] == pytest.approx(HOUR_MS / members, rel=1e-5)
        assert one.left_ms == one.alone_ms[CPU]
        assert one.member_ms[CPU] == HOUR_MS, "what policies that choose sizes reckon with"


RATES = ((Family("k"), 1_000_000), (Family("v"), 3_000_000))


@pytest.mark.parametrize(
    ("limits", "split", "size"),
    [
        ((4, 4), False, 4),  # eight that wait for the slow ones do less
        ((9, 2), False, 11),  # two fast ones do 6
        ((4, 4), True, 8),  # with divided batches each adds what it can
        ((9, 0), False, 9),
        ((3, 1), False, 4),  # fewer than the least are no gang
    ],
)
def test_a_size_is_what_does_most_on_types_of_several_speeds(
    limits: tuple[int, int], split: bool, size: int
) -> None:
    need = Resources(0, 1000, 1024)
    kinds = [
        Offering(InstanceType(f"{name}.1", Family(name), need), Price(1_000_000), limit=limit)
        for name, limit in zip("kv", limits, strict=True)
    ]
    spec = TaskSpec(
        Workload("w"), Program("true"), tuple((it, need) for it, _ in RATES), throughput=RATES
    )
    linear = Scaling((), 1_000_000)
    elastic, names = Elastic(2, 12, linear, linear), (run_id(JobId("g"), 0), run_id(JobId("g"), 1))
    job = job_view(JobId("g"), JobKind.GANG, names, Millis(0), 0, elastic=elastic)
    runs = tuple(RunView(it, job.id, spec, None, pinned=False, running=False) for it in names)
    seen = Snapshot(Millis(0), tuple(kinds), (changed(job, split_batch=split),), runs, ())
    assert [entry.members for entry in fixed_sizes(seen)] == [size]
