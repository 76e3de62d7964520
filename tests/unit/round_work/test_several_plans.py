"""Plans of one round share its work: each has what the earlier ones have left."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.planning.elastic import Elastic
from eva_master.model.planning.plan import Hold, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.claims.asking import ask
from eva_master.packing.claims.making import Rules, with_claims
from eva_master.packing.round_work import WORK_DONE
from eva_master.policies.eva import POLICY
from eva_master.policies.eva.policy import Eva
from eva_master.testing.job_views import changed
from tests.fakes.snapshots import Cluster, offer, task

FOUR, ONE = task("w", any=(0, 4, 8)), task("w", any=(0, 1, 2))
BOX = offer("box", (0, 4, 16), 0.4, limit=2)
WORK = 1_000_000


class Refuses:
    """A policy that places nothing, and takes a quarter of the work that it is given."""

    name = "refuses"

    def __init__(self) -> None:
        self.given: list[int] = []

    def plan(self, snapshot: Snapshot, memory: None) -> tuple[Plan, None]:
        self.given.append(snapshot.work)
        holds = tuple(Hold(run.id, "none") for run in snapshot.runs if run.instance is None)
        return Plan(entries=holds, figures={WORK_DONE: snapshot.work // 4}), None


def claimed() -> Snapshot:
    """Two boxes of which one is empty, an urgent task that wants it, and another that waits."""
    cluster = Cluster(BOX).instance("i", "box").instance("k", "box")
    cluster.job("a", FOUR, on=["i"]).job("u", FOUR).job("v", ONE)
    snapshot = cluster.snapshot()
    jobs = tuple(replace(job, priority=5 * (job.id == "u")) for job in snapshot.jobs)
    return with_claims(replace(snapshot, jobs=jobs, work=WORK), Rules())


def test_a_policy_that_is_asked_again_has_what_it_left():
    policy, snapshot = Refuses(), claimed()
    assert snapshot.claims
    ask(policy, snapshot, None)
    assert len(policy.given) > 1
    assert policy.given == [WORK * 3**asked // 4**asked for asked in range(len(policy.given))]


def test_sizes_of_elastic_gangs_are_tried_within_the_work_of_one_round(monkeypatch):
    cluster = Cluster(offer("box", (0, 4, 16), 0.4))
    for number in range(4):
        cluster.instance(f"i{number}", "box").job(f"g{number}", *[ONE] * 3, on=[f"i{number}"] * 3)
    snapshot = cluster.snapshot()
    jobs = tuple(changed(job, elastic=Elastic(1, 4)) for job in snapshot.jobs)
    given: list[int] = []
    inner = Eva.plan

    def counted(self, seen, memory):
        given.append(seen.work)
        plan, after = inner(self, seen, memory)
        return replace(plan, figures={**plan.figures, WORK_DONE: seen.work // 4}), after

    monkeypatch.setattr(Eva, "plan", counted)
    plan, _ = POLICY.build(POLICY.config()).plan(replace(snapshot, jobs=jobs, work=WORK), None)
    assert len(given) > 1
    assert given == [WORK * 3**asked // 4**asked for asked in range(len(given))]
    assert plan.figures[WORK_DONE] == WORK - WORK * 3 ** len(given) // 4 ** len(given)
