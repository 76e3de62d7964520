"""Plans that are followed by none: completion, answers to the same question, and who looks for
clusters on which that fails."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks import conformance
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.configuration.completion import completed
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.reconfiguration.memory import ReconfigurationMemory
from eva_master.packing.reconfiguration.replan_trigger import ReplanTrigger
from eva_master.packing.reconfiguration.state_digest import StateDigest
from eva_master.policies.eva import POLICY
from eva_master.ports import PolicyKind
from eva_master.testing.clusters import CATALOG, TASKS
from eva_master.testing.found import FOUND
from eva_master.testing.job_views import changed
from eva_master.testing.minimal import minimal, source
from eva_master.testing.plan_checks import check, quiet
from eva_master.testing.policy_suite import Variant, later
from eva_master.testing.snapshots import (
    START,
    Cluster,
    carried_out,
    ended,
    offer,
    table,
    task,
)
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId

EVA = POLICY.build(POLICY.config())
GPUS = task("gpus", p=(4, 4, 10))
GPU = task("gpu", p=(1, 4, 24))


def gang_behind_a_lone_task():
    return FOUND["a gang waits for an instance that the search empties"]


# -- completion ------------------------------------------------------------------------------------


def test_what_waits_gets_the_instance_that_the_plan_empties_and_no_other_is_launched_for_it():
    snapshot = gang_behind_a_lone_task()
    plan, memory = EVA.plan(snapshot, None)
    check(snapshot, plan)
    places = {entry.run: entry.on for entry in plan.entries if isinstance(entry, Assign)}
    assert {places["job-3/0"], places["job-3/1"]} == {"i-p.large-0", "i-p.large-1"}
    assert {launch.offering.type.name for launch in plan.launches} == {"p.small"}
    assert quiet(EVA.plan(carried_out(snapshot, plan), memory)[0])


def test_a_configuration_that_leaves_no_room_is_complete_as_it_is():
    cluster = Cluster(offer("p.large", (4, 32, 244), 12.24, family="p", limit=1))
    snapshot = cluster.job("a", GPUS).job("b", GPUS).snapshot()
    problem = Problem(snapshot, Valuation())
    configuration = configure(problem, waiting(problem))
    assert configuration.unplaced.keys() == {"b/0"}
    assert completed(problem, configuration) is configuration


def test_who_would_lose_their_place_is_not_taken_for_one_who_keeps_it():
    # All may move, and the packing has no place for the first any more.
    snapshot = FOUND["the packing leaves an instance of few"]
    plan, _ = EVA.plan(snapshot, None)
    placed = ended(carried_out(snapshot, plan), "job-2")
    problem = Problem(placed, Valuation())
    whole = completed(problem, configure(problem, list(placed.runs)))
    assert whole.unplaced.keys() == {"job-3/0"}
    assert whole.places.keys() == {"job-6/0"}


# -- the same question -----------------------------------------------------------------------------


def test_a_search_is_not_repeated_until_it_finds_something_by_luck():
    snapshot = FOUND["a search misses what another one finds"]
    memory, changed = None, []
    for number in range(12):
        plan, memory = EVA.plan(snapshot, memory)
        if not quiet(plan):
            changed.append(number)
        snapshot = later(carried_out(snapshot, plan), event=True)
    assert changed == [0]


def test_a_search_of_which_nothing_comes_is_over_soon():
    cluster = Cluster(offer("c", (0, 4, 8), 1.0, family="c"))
    for number in range(5):
        cluster.job(f"job-{number}", task(c=(0, 4, 8)))
    snapshot = cluster.snapshot()
    plan, _ = EVA.plan(snapshot, None)
    assert len(plan.launches) == 5
    # Of the 2,000 of a round.
    assert plan.figures["iterations"] == 500


@pytest.fixture
def resting():
    """A cluster at rest, with the memory of that."""
    snapshot, memory = gang_behind_a_lone_task(), ReconfigurationMemory()
    placed = tuple(run for run in snapshot.runs if run.instance)
    snapshot = replace(snapshot, runs=placed, jobs=snapshot.jobs[2:3])
    trigger = ReplanTrigger(memory, snapshot, PlannerCache())
    present = configure(Problem(snapshot, Valuation()), ())
    return snapshot, trigger.answered(trigger.remember(memory), present)


def test_an_event_that_changed_nothing_asks_nothing(resting):
    snapshot, memory = resting
    trigger = ReplanTrigger(memory, later(snapshot, event=True), PlannerCache())
    assert (trigger.events, trigger.full, trigger.partial) == (2, False, False)
    assert trigger.remember(memory).events == trigger.total


@pytest.mark.parametrize(
    "change",
    [
        lambda s: replace(s, catalog=s.catalog[:1]),
        lambda s: replace(s, catalog=(replace(s.catalog[0], price=1), *s.catalog[1:])),
        lambda s: replace(s, catalog=(*s.catalog[:1], replace(s.catalog[1], limit=9))),
        lambda s: replace(s, throughput=table({("gpu", ("gpu",)): 0.5})),
        lambda s: replace(s, runs=(replace(s.runs[0], pinned=True),)),
        lambda s: replace(s, runs=(replace(s.runs[0], instance=InstanceId("i-p.large-1")),)),
        lambda s: replace(s, jobs=(changed(s.jobs[0], checkpoint_ms=1),)),
        lambda s: replace(s, runs=(replace(s.runs[0], instance=None),)),
    ],
)
def test_an_event_after_a_change_asks_again(resting, change):
    snapshot, memory = resting
    changed = change(later(snapshot, event=True))
    moved_between_equals = changed.runs[0].instance == "i-p.large-1"
    assert ReplanTrigger(memory, changed, PlannerCache()).full is not moved_between_equals


def test_other_options_ask_again(resting):
    snapshot, memory = resting
    event = later(snapshot, event=True)
    assert ReplanTrigger(memory, event, PlannerCache(), "others").full


def test_what_only_time_changes_is_no_change(resting):
    snapshot, _ = resting
    week = later(snapshot, minutes=7 * 24 * 60)
    assert StateDigest(week, "").of() == StateDigest(snapshot, "").of()


def test_answers_to_one_question_end(resting):
    snapshot, _ = resting
    elsewhere = replace(snapshot, runs=(replace(snapshot.runs[0], instance=None),))
    memory, here, there, asked = ReconfigurationMemory(), snapshot, elsewhere, 0
    for number in range(20):
        trigger = ReplanTrigger(memory, replace(here, arrivals=10 + number), PlannerCache())
        memory = trigger.remember(memory)
        if trigger.full:
            answer = configure(Problem(there, Valuation()), ())
            memory, here, there = trigger.answered(memory, answer), there, here
            asked += 1
    assert asked == 3


def test_the_memory_of_answers_survives_the_journal(resting):
    _, memory = resting
    assert ReconfigurationMemory.from_json(json.loads(json.dumps(memory.to_json()))) == memory
    older = {k: v for k, v in memory.to_json().items() if k not in ("aimed_at", "answers")}
    assert ReconfigurationMemory.from_json(older) == replace(memory, aimed_at="", answers=0)


# -- who looks for clusters that fail --------------------------------------------------------------


def test_a_cluster_is_written_as_python_that_makes_it():
    cluster = Cluster(
        offer("p.large", (4, 32, 244), 12.24, family="p", limit=2, until=START + 60_000),
        *(offer(name, size, usd, family=family) for name, size, usd, family in CATALOG[2:]),
    )
    cluster.instance("i-0", "p.large", ready=False).instance("i-1", "c.large")
    cluster.job("a", *TASKS[:2], on=["i-0", None], running=False, priority=1, left_s=100)
    cluster.job("b", *[TASKS[3]] * 3, on=["i-1", "i-1", None], pinned=True)
    cluster.throughput = table({("gpu", ("any", "small")): 0.3})
    names = {**vars(__import__("eva_master.testing.snapshots", fromlist=["x"]))}
    for snapshot in (cluster.snapshot(), *FOUND.values()):
        made: dict[str, object] = {}
        exec(source(snapshot), {**names, "JobKind": type(snapshot.jobs[0].spec.kind)}, made)
        assert made["cluster"].snapshot() == snapshot


def test_what_does_not_matter_is_left_out():
    snapshot = FOUND["a search misses what another one finds"]
    small = minimal(snapshot, lambda it: any(run.task.workload == "gpus" for run in it.runs))
    assert [run.task.workload for run in small.runs] == ["gpus"]
    assert not small.instances
    assert not small.catalog


class _Restless:
    """Buys an instance in every round while there is a gang."""

    name = "restless"

    def __init__(self, config):
        pass

    def plan(self, snapshot, memory):
        gang = any(len(job.runs) > 1 for job in snapshot.jobs)
        return Plan((NewInstance(0, snapshot.catalog[0]),) if gang else ()), memory


def test_the_long_run_finds_what_fails_makes_it_small_and_goes_on_where_it_was(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(conformance, "PER_BATCH", 8)
    monkeypatch.setattr(conformance, "_TRIES", 60)
    asked = [
        *("--property", "followed", "--seed", "5", "--json"),
        *("--progress", str(tmp_path / "progress.json")),
    ]

    def told(*more):
        variants = {
            "restless": Variant(PolicyKind(name="restless", config=POLICY.config, build=_Restless))
        }
        code = conformance.main([*asked, *more], variants)
        return code, json.loads(capsys.readouterr().out)

    code, first = told("--clusters", "8")
    assert code == 1
    assert first["clusters"] == 8
    assert first["failures"]
    assert "cluster.job('job-" in first["failures"][0]["python"]
    code, again = told("--clusters", "8")
    assert again == first
    code, more = told("--clusters", "16")
    assert (more["clusters"], more["seed"]) == (16, 5)
    assert more["failures"][: len(first["failures"])] == first["failures"]
    # Another seed is another run.
    assert told("--clusters", "0", "--seed", "6")[1]["clusters"] == 0


def test_the_long_run_passes_where_nothing_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(conformance, "PER_BATCH", 4)
    progress = str(tmp_path / "progress.json")
    some = ["--policy", "no_packing", "--clusters", "4", "--property", "rest"]
    assert conformance.main([*some, "--progress", progress]) == 0
    assert "seed" in capsys.readouterr().err


def test_room_that_is_kept_is_part_of_the_state_and_the_time_until_it_is_there_is_not():
    cluster = Cluster(offer("box", (0, 4, 16), 0.4, limit=1)).instance("i", "box")
    cluster.job("a", task(any=(0, 1, 2)), on=["i"]).job("u", task(any=(0, 4, 8)))
    snapshot = cluster.snapshot()
    claim = Claim(JobId("u"), (RunId("u/0"),), 0, (InstanceId("i"),), equals=True)
    claimed = replace(snapshot, claims=(claim,))
    assert StateDigest(claimed, "").of() != StateDigest(snapshot, "").of()
    later = replace(claimed, claims=(replace(claim, complete_ms=Millis(5)),))
    assert StateDigest(later, "").of() == StateDigest(claimed, "").of()
    none = replace(claimed, claims=(replace(claim, instances=()),))
    assert StateDigest(none, "").of() != StateDigest(claimed, "").of()
