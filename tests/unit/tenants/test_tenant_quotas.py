"""Quotas of tenants: what is stated, what there is of it, and who begins beyond it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eva_master.app.master import control_settings
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_master.model.catalog import spot_family
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.elastic import Elastic
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import fleet_of, overdrawn, quota_of, scaled
from eva_master.model.tenants.tenancy import ANY_FAMILY, TenantView
from eva_master.packing import quotas
from eva_master.packing.plan_effect import PlanEffect
from eva_master.packing.quotas import QuotaUse, Use, admitted
from eva_master.testing.job_views import changed, job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, RunId, Workload
from tests.fakes.snapshots import offer

V, K = Family("v"), Family("k")
LAUNCH = NewInstance(0, offer("v.x", (4, 8, 32), 1, family="v"))
CATALOG = (
    offer("v.x", (4, 8, 32), 1, family="v", limit=4),
    offer("k.x", (4, 8, 32), 1, family="k", limit=2),
)


def test_quotas_stand_while_there_are_as_many() -> None:
    quotas = {"a": quota_of({"v": 12, "*": 4}), "b": quota_of({"v": 4, "k": 4})}
    assert scaled(quotas, fleet_of(CATALOG)) is quotas


def test_a_missing_node_is_missing_to_all_in_proportion() -> None:
    quotas = {"a": quota_of({"v": 12}), "b": quota_of({"v": 4, "k": 4})}
    left = scaled(quotas, {V: 10, K: 8})
    # 7.5 and 2.5: the half that is left over goes to the first by name.
    assert left == {"a": ((V, 8),), "b": ((K, 4), (V, 2))}
    assert scaled(quotas, {}) == {"a": ((V, 0),), "b": ((K, 0), (V, 0))}


def test_quotas_of_any_family_share_what_named_ones_leave() -> None:
    quotas = {"a": quota_of({"v": 12, "*": 6}), "b": quota_of({"*": 2})}
    assert scaled(quotas, {V: 12, K: 4}) == {
        "a": ((ANY_FAMILY, 3), (V, 12)),
        "b": ((ANY_FAMILY, 1),),
    }
    assert scaled(quotas, {V: 12, K: None}) is quotas


def test_quotas_beyond_the_fleet_are_told_by_family() -> None:
    fleet = fleet_of(CATALOG)
    assert fleet == {V: 16, K: 8}
    assert list(overdrawn([quota_of({"v": 12}), quota_of({"v": 5})], fleet)) == [(V, 17, 16)]
    assert list(overdrawn([quota_of({"v": 16, "*": 9})], fleet)) == [(ANY_FAMILY, 25, 24)]
    assert not list(overdrawn([quota_of({"v": 16, "*": 8})], fleet))
    assert not list(overdrawn([quota_of({"v": 16, "*": 99})], {**fleet, Family("rented"): None}))


def test_a_cut_quota_allows_no_more_of_a_family_and_all_of_another() -> None:
    share = QuotaUse("a", quota_of({"v": 4, "k": 4}), {V: 8})
    assert not share.allows({V: 1})
    assert share.allows({K: 4})
    assert not share.allows({K: 5})
    assert share.refusal([V]) == "quota of a: 8 of 4 v in use"


def test_any_family_counts_beside_named_ones() -> None:
    share = QuotaUse("a", quota_of({"v": 4, "*": 2}), {V: 5})
    assert (share.room(V), share.room(K)) == (1, 1)
    assert share.allows({V: 1})
    assert not share.allows({V: 1, K: 1})
    assert share.refusal([V]) == "quota of a: 5 of 4 v, 1 of 2 GPUs of any family in use"


# -- before a plan -------------------------------------------------------------------------------


def task(gpus: int, *families: Family) -> TaskSpec:
    need = Resources(gpus, 1_000, 1_024)
    return TaskSpec(Workload("w"), Program("x"), tuple(sorted((it, need) for it in families)))


class Cluster:
    """A snapshot under construction; the tenant is `a`, all on one large instance per family."""

    def __init__(self, quota: dict[str, int]) -> None:
        self._tenant = TenantView("a", quota_of(quota))
        self._jobs: list[JobView] = []
        self._runs: list[RunView] = []

    def add(
        self,
        name: str,
        spec: TaskSpec,
        count: int = 1,
        *,
        kind: JobKind = JobKind.ARRAY,
        on: str = "",
        held: bool = False,
        elastic: Elastic | None = None,
        priority: int = 0,
        tenant: str = "a",
    ) -> None:
        place = InstanceId(on) if on else None
        runs = [
            RunView(RunId(f"{name}/{n}"), JobId(name), spec, place, False, bool(on), held)
            for n in range(count)
        ]
        names = tuple(run.id for run in runs)
        number = Millis(len(self._jobs))
        view = job_view(JobId(name), kind, names, number, priority, elastic=elastic)
        self._jobs.append(changed(view, tenant=tenant))
        self._runs += runs

    def snapshot(self) -> Snapshot:
        instances = tuple(
            InstanceView(InstanceId(it.type.family), it, (), True)  # residents do not matter
            for it in (offer(f"{one}.x", (99, 99, 99), 1, family=one) for one in "kv")
        )
        runs = tuple(sorted(self._runs, key=lambda it: it.id))
        jobs = tuple(sorted(self._jobs, key=lambda it: it.id))
        whole = Snapshot(Millis(0), CATALOG, jobs, runs, instances)
        return replace(whole, tenants=(self._tenant,))

    def seen(self, **use: int) -> tuple[set[str], dict[str, str]]:
        """The task runs that a policy sees, and why others wait."""
        whole = self.snapshot()
        found = admitted(whole, {"a": {Family(it): count for it, count in use.items()}})
        return {run.id for run in found.snapshot.runs}, dict(found.holds)


def test_who_waits_beyond_the_quota_is_held_in_order() -> None:
    cluster = Cluster({"v": 4})
    cluster.add("x", task(1, V), 3)
    cluster.add("y", task(2, V), priority=1)
    cluster.add("cpu", task(0, V))
    cluster.add("other", task(9, V), tenant="b")
    seen, holds = cluster.seen(v=1)
    assert seen == {"y/0", "x/0", "cpu/0", "other/0"}
    assert holds == dict.fromkeys(["x/1", "x/2"], "quota of a: 4 of 4 v in use")


def test_a_gang_is_held_whole() -> None:
    cluster = Cluster({"v": 4})
    cluster.add("g", task(2, V), 3, kind=JobKind.GANG)
    cluster.add("x", task(2, V), 2)
    seen, holds = cluster.seen()
    assert seen == {"x/0", "x/1"}
    assert set(holds) == {"g/0", "g/1", "g/2"}


def test_a_task_of_two_families_loses_the_one_that_is_used_up() -> None:
    cluster = Cluster({"v": 2, "k": 2})
    cluster.add("x", task(2, V, K))
    found = admitted(cluster.snapshot(), {"a": {V: 2}})
    (run,) = found.snapshot.runs
    assert [family for family, _ in run.task.demand] == [K]
    found = admitted(cluster.snapshot(), {"a": {V: 2, K: 1}})
    assert found.holds == {
        "x/0": "quota of a: 1 of 2 k, 2 of 2 v in use, and 2 are needed together"
    }


def test_a_task_that_can_do_without_gpus_is_never_held() -> None:
    cluster = Cluster({"v": 0})
    bare = (K, Resources(0, 4_000, 1_024))
    cluster.add("x", replace(task(1, V), demand=(bare, *task(1, V).demand)))
    (run,) = admitted(cluster.snapshot(), {}).snapshot.runs
    assert [family for family, _ in run.task.demand] == [K]


def test_spot_instances_count_like_others() -> None:
    cluster = Cluster({"v": 1})
    cluster.add("x", task(1, V, spot_family(V)), 2)
    assert cluster.seen() == ({"x/0"}, {"x/1": "quota of a: 1 of 1 v in use"})


def test_who_found_no_room_last_time_keeps_nothing_from_others() -> None:
    cluster = Cluster({"v": 4})
    cluster.add("g", task(1, V), 4, kind=JobKind.GANG, held=True)
    cluster.add("h", task(1, V), 4, kind=JobKind.GANG, held=True)
    cluster.add("x", task(1, V), 5)
    whole = cluster.snapshot()
    passed_over = {run.id for run in whole.runs if run.held}
    found = admitted(whole, {}, passed_over)
    # Whoever is like the gang that found no room finds none either.
    assert {run.job for run in found.snapshot.runs} == {"g", "x"}
    assert len(found.snapshot.runs) == 8


def test_an_elastic_gang_waits_for_its_least_and_grows_within_the_quota() -> None:
    cluster = Cluster({"v": 4})
    cluster.add("e", task(1, V), 6, kind=JobKind.GANG, elastic=Elastic(2, 8))
    found = admitted(cluster.snapshot(), {"a": {V: 1}})
    (job,) = found.snapshot.jobs
    assert (len(job.runs), job.sharing.elastic) == (3, Elastic(2, 3))
    assert [(it.job, it.members) for it in found.completed(Plan()).sizes] == [("e", 3)]
    held = admitted(cluster.snapshot(), {"a": {V: 3}})
    assert set(held.holds) == {f"e/{n}" for n in range(6)}
    running = Cluster({"v": 4})
    running.add("e", task(1, V), 6, kind=JobKind.GANG, elastic=Elastic(2, 8), on="v")
    (job,) = admitted(running.snapshot(), {"a": {V: 6}}).snapshot.jobs
    assert (len(job.runs), job.sharing.elastic) == (6, Elastic(2, 6))


def within(plan: Plan, now: Snapshot, use: Use) -> Plan:
    return quotas.within(PlanEffect(now, plan), use).plan


def test_nothing_changes_without_quotas() -> None:
    cluster = Cluster({"v": 4})
    cluster.add("x", task(1, V), 9)
    whole = replace(cluster.snapshot(), tenants=())
    assert admitted(whole, {}).snapshot is whole
    plan = Plan(entries=(Assign(RunId("x/0"), InstanceId("v")),))
    assert within(plan, whole, {}) is plan


# -- after it ------------------------------------------------------------------------------------


def test_what_a_plan_takes_beyond_a_quota_waits() -> None:
    cluster = Cluster({"v": 2, "k": 2})
    cluster.add("x", task(2, V, K))
    cluster.add("y", task(2, V, K), priority=1)
    cluster.add("z", task(2, V, K), on="v")
    whole = cluster.snapshot()
    v, k = InstanceId("v"), InstanceId("k")
    both = Plan(entries=(Assign(RunId("x/0"), v), Assign(RunId("y/0"), v)))
    cut = within(both, whole, {})
    assert cut.entries[1:] == (Assign(RunId("y/0"), v),)
    assert cut.entries[0] == Hold(
        RunId("x/0"), "quota of a: 2 of 2 v in use, and 2 are needed together"
    )
    spread = Plan(entries=(Assign(RunId("x/0"), k), Assign(RunId("y/0"), v)))
    assert within(spread, whole, {}) is spread
    # One that runs stays where it is; within its family it may move.
    moved = Plan(entries=(Assign(RunId("z/0"), k),))
    assert within(moved, whole, {"a": {V: 2, K: 2}}).entries == ()
    stays = Plan(entries=(Assign(RunId("z/0"), v),))
    assert within(stays, whole, {"a": {V: 9}}) is stays


def test_an_elastic_gang_begins_with_as_many_members_as_its_quota_allows() -> None:
    cluster = Cluster({"v": 1, "k": 2})
    cluster.add("x", task(1, V, K), 3, kind=JobKind.GANG, elastic=Elastic(1, 3))
    v, k = InstanceId("v"), InstanceId("k")
    names = [RunId(f"x/{number}") for number in range(3)]
    whole = cluster.snapshot()
    plan = Plan(entries=tuple(Assign(name, v) for name in names), launches=(LAUNCH,))
    cut = within(plan, whole, {})
    assert cut.entries == (Assign(names[0], v),)
    assert [(it.job, it.members) for it in cut.sizes] == [("x", 1)]
    assert cut.launches == ()
    mixed = Plan(entries=tuple(map(Assign, names, (v, v, k))))
    assert within(mixed, whole, {}).entries == (Assign(names[0], v), Assign(names[1], k))


def test_an_elastic_gang_waits_if_its_quota_does_not_allow_its_least() -> None:
    cluster = Cluster({"v": 1, "k": 2})
    cluster.add("x", task(1, V, K), 3, kind=JobKind.GANG, elastic=Elastic(2, 3))
    names = [RunId(f"x/{number}") for number in range(3)]
    plan = Plan(entries=tuple(Assign(name, InstanceId("v")) for name in names))
    cut = within(plan, cluster.snapshot(), {})
    assert [type(entry) for entry in cut.entries] == [Hold] * 3
    assert cut.sizes == ()


def test_a_gang_that_fits_no_family_whole_is_shown_as_many_of_each_as_it_may_have() -> None:
    cluster = Cluster({"v": 2, "k": 1})
    cluster.add("x", task(1, V, K), 3, kind=JobKind.GANG)
    seen = admitted(cluster.snapshot(), {}).snapshot
    families = [family for run in seen.runs for family, _ in run.task.demand]
    assert sorted(families) == [K, V, V]
    # If the policy found no room for it so, it may divide the gang in another way.
    again = admitted(cluster.snapshot(), {}, [run.id for run in seen.runs]).snapshot
    assert all(len(run.task.demand) == 2 for run in again.runs)


# -- settings ------------------------------------------------------------------------------------

NODES = """
nodes:
  n1: {type: v100.x, capacity: {gpus: 4, cpus: 8, memory: 32GiB}}
  n2: {type: v100.x, capacity: {gpus: 4, cpus: 8, memory: 32GiB}}
"""


def problem_of(tmp_path: Path, text: str) -> str:
    file = tmp_path / "master.yaml"
    file.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        load_master_config(policies=policies(), file=file)
    return "\n".join(f"{it.key}: {it.message}; {it.hint}" for it in caught.value.problems)


def test_settings_state_quotas_and_budgets(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    stated = "{owners: [ana], quota: {v100: 6}, budget: {usd_per_month: 12.50}}"
    file.write_text(f"{NODES}\ntenants:\n  vision: {stated}\n  other: {{owners: ['*']}}\n")
    settings = control_settings(load_master_config(policies=policies(), file=file))
    tenancy = settings.tenancy
    assert tenancy.quotas == {"vision": ((Family("v100"), 6),)}
    assert tenancy.budgets == {"vision": 12_500_000}
    assert tenancy.known == ["other", "vision"]
    assert not settings.partitions.default.lends


@pytest.mark.parametrize(
    ("quotas", "told"),
    [
        (["{v100: 6}", "{v100: 3}"], "9 v100, and the fleet has 8: 1 too many"),
        (["{v10: 6}", "{}"], "no GPUs of a family 'v10'; did you mean"),
        (["{v100: -1}", "{}"], "tenants.a.quota.v100"),
        (["{v100: 1.5}", "{}"], "tenants.a.quota.v100"),
    ],
)
def test_quotas_that_cannot_be_are_refused(tmp_path: Path, quotas: list[str], told: str) -> None:
    first, second = quotas
    text = f"{NODES}\ntenants:\n  a: {{owners: [x], quota: {first}}}\n"
    found = problem_of(tmp_path, f"{text}  b: {{owners: [y], quota: {second}}}\n")
    assert told in found


def test_an_owner_of_two_tenants_is_told_with_both_lines(tmp_path: Path) -> None:
    text = "tenants:\n  a: {owners: [x]}\n  b: {owners: [y, x]}\n"
    file = tmp_path / "master.yaml"
    file.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        load_master_config(policies=policies(), file=file)
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (3, "tenants.b.owners[1]")
    assert problem.message == "'x' belongs to the tenant 'a' already (line 2)"
