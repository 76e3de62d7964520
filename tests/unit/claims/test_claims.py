"""Room that is kept for the most urgent task runs, and what policies see meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.planning.plan import Assign, Hold, Plan, Suspend
from eva_master.model.planning.snapshot import RemainingWork, Snapshot
from eva_master.model.planning.suspension import Preemption
from eva_master.packing.claims import making
from eva_master.packing.claims.making import Rules, with_claims
from eva_master.packing.claims.views import ClaimView
from eva_master.packing.claims.walk import Way
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, RunId
from tests.fakes.snapshots import START, Cluster, offer, task

FOUR, ONE = task("w", any=(0, 4, 8)), task("w", any=(0, 1, 2))
BOX = offer("box", (0, 4, 16), 0.4, limit=2)


def prioritised(cluster: Cluster, **priorities: int) -> Snapshot:
    snapshot = cluster.snapshot()
    jobs = (replace(job, priority=priorities.get(job.id, 0)) for job in snapshot.jobs)
    return replace(snapshot, jobs=tuple(jobs))


def full(*more: str) -> Cluster:
    """Two boxes, each with two small tasks on it, of which those that wait are named."""
    cluster = Cluster(BOX).instance("i", "box").instance("k", "box")
    for name, place in (("a", "i"), ("b", "i"), ("c", "k"), ("d", "k")):
        cluster.job(name, ONE, on=[place])
    for name in more:
        cluster.job(name, FOUR if name.startswith("u") else ONE)
    return cluster


def left(snapshot: Snapshot, **minutes: float) -> Snapshot:
    """The same where it is known of some jobs how long they take."""
    work = {name: RemainingWork(round(it * 60_000), START) for name, it in minutes.items()}
    runs = (replace(run, remaining=work.get(run.job, run.remaining)) for run in snapshot.runs)
    return replace(snapshot, runs=tuple(runs))


def shown(snapshot: Snapshot) -> tuple[set[str], set[str]]:
    """Which jobs and instances there are."""
    return {job.id for job in snapshot.jobs}, {view.id for view in snapshot.instances}


def view(
    snapshot: Snapshot,
    *refused: Way,
    ignored: tuple[JobId, ...] = (),
    preemption: Preemption = Preemption.NEVER,
    alone: int = -1,
) -> ClaimView:
    """The view of a policy, where the first claim is refused some ways."""
    claimed = with_claims(snapshot, Rules(ignored, preemption))
    return ClaimView.of(claimed, frozenset((0, way) for way in refused), alone)


def holds(seen: ClaimView) -> dict[RunId, str]:
    """Why task runs wait that a policy does not see."""
    return {it.run: it.reason for it in seen.completed(Plan()).entries if isinstance(it, Hold)}


def ways(seen: ClaimView) -> list[Way]:
    return [step.way for step in seen.walk.steps]


def test_equal_jobs_and_those_that_can_buy_are_kept_nothing():
    same = prioritised(full("u", "v"))
    assert with_claims(same, Rules()) is same
    anyway = Cluster(replace(BOX, limit=None)).instance("i", "box")
    anyway.job("a", ONE, on=["i"]).job("u", FOUR).job("v", ONE)
    endless = prioritised(anyway, u=5)
    assert with_claims(endless, Rules()) is endless


def test_all_that_could_be_free_first_is_hidden_with_the_job_that_waits_for_it():
    snapshot = with_claims(prioritised(full("u", "v"), u=5), Rules())
    (claim,) = snapshot.claims
    assert (claim.job, claim.runs, claim.priority) == ("u", ("u/0",), 5)
    assert (claim.instances, claim.slots) == (("i", "k"), ())
    seen = ClaimView.of(snapshot)
    assert shown(seen.shown) == ({"v"}, set())
    assert seen.shown.catalog[0].limit == 0
    told = "limit of box@local/on-demand reached; kept for it once there is room: i, k"
    assert holds(seen) == {"u/0": told}
    plan = seen.completed(Plan(entries=(Hold(RunId("v/0"), "whatever"),)))
    assert plan.entries == (
        Hold("v/0", "room is kept for u, which has a higher priority"),
        Hold("u/0", told),
    )


def test_room_that_is_known_to_be_free_first_is_kept_alone():
    known = left(prioritised(full("u", "v"), u=5), a=5, b=20, c=9, d=10)
    assert shown(view(known).shown) == ({"a", "b", "v"}, {"i"})
    # A task that should be over by now may end at any time.
    late = left(known, a=0)
    assert shown(view(late).shown)[1] == {"i"}
    late = left(known, a=0, b=0)
    assert shown(view(late).shown)[1] == set()
    # And an estimate is none.
    runs = tuple(
        replace(run, remaining=RemainingWork(1_200_000, START, estimated=True))
        if run.job == "b"
        else run
        for run in known.runs
    )
    assert shown(view(replace(known, runs=runs)).shown)[1] == set()


def test_an_urgent_job_that_fits_is_planned_for_with_those_that_fit_beside_it():
    cluster = Cluster(BOX).instance("i", "box").job("a", ONE, on=["i"]).job("u", FOUR)
    cluster.job("v", ONE)
    snapshot = prioritised(cluster, u=5)
    seen = view(snapshot)
    assert ways(seen) == [Way.READY]
    assert shown(seen.shown) == ({"a", "u", "v"}, {"i"})
    assert seen.missed(Plan(entries=(Assign(RunId("u/0"), 0),))) is None
    # If it gets no place, the others are to come after it; then its room is kept.
    missed = seen.missed(Plan(entries=(Assign(RunId("v/0"), 0),)))
    assert missed is not None
    assert missed.number == 0
    assert shown(view(snapshot, alone=0).shown) == ({"a", "u"}, {"i"})
    again = view(snapshot, Way.READY)
    assert ways(again) == [Way.OPEN]
    assert "u/0" in holds(again)
    assert "v" in shown(again.shown)[0]
    assert again.shown.catalog[0].limit == 0


def test_several_priorities_are_planned_for_at_once_as_far_as_there_is_room():
    cluster = Cluster(replace(BOX, limit=3)).instance("i", "box").job("a", FOUR, on=["i"])
    priorities = {"u": 9, "v": 7, "w": 5, "x": 3}
    for name in (*priorities, "y"):
        cluster.job(name, FOUR)
    seen = view(prioritised(cluster, **priorities))
    assert shown(seen.shown)[0] == {"a", "u", "v"}
    told = "room is kept for w, which has a higher priority"
    assert holds(seen) == {
        "w/0": "limit of box@local/on-demand reached; kept for it once there is room: i",
        "x/0": told,
        "y/0": told,
    }


def test_a_claim_is_served_by_any_of_its_task_runs_that_a_policy_places():
    cluster = Cluster(BOX).instance("i", "box").instance("k", "box")
    cluster.job("a", FOUR, on=["k"]).job("small", ONE).job("uhuge", FOUR).job("low", ONE)
    seen = view(prioritised(cluster, small=5, uhuge=5))
    (step,) = seen.walk.steps
    assert step.placed == {"small/0"}, "the first that fits leaves no room for the other"
    other = Plan(entries=(Assign(RunId("uhuge/0"), InstanceId("i")),))
    assert seen.missed(other) is None
    assert seen.unused(other) == frozenset()
    assert seen.missed(Plan()) is step
    assert seen.unused(Plan()) == {"small"}


def test_what_fits_into_no_cluster_keeps_nothing():
    cluster = full("v").job("u", FOUR, FOUR, FOUR)
    snapshot = prioritised(cluster, u=5)
    assert with_claims(snapshot, Rules()) is snapshot
    snapshot = prioritised(full("v", "u"), u=5)
    assert with_claims(snapshot, Rules([JobId("u")])) is snapshot


def test_a_job_that_had_no_use_for_its_room_is_kept_none_and_comes_first_all_the_same():
    cluster = Cluster(BOX).instance("i", "box").instance("k", "box")
    cluster.job("a", FOUR, on=["k"]).job("first", ONE).job("urgent", FOUR).job("low", ONE)
    snapshot = prioritised(cluster, first=9, urgent=5)
    claimed = with_claims(snapshot, Rules(unused=[JobId("first")]))
    kept = [(it.job, it.instances) for it in claimed.claims]
    assert kept == [("first", ()), ("urgent", ("i", "k"))]
    # It is planned for first: there may be use for the room by now.
    seen = ClaimView.of(claimed)
    assert ways(seen) == [Way.READY, Way.BEHIND]
    assert "first" in shown(seen.shown)[0]
    assert "i" in shown(seen.shown)[1]
    # If there is none, nobody waits for it.
    again = ClaimView.of(claimed, frozenset({(0, Way.READY)}))
    assert ways(again) == [Way.OPEN, Way.READY]
    assert shown(again.shown)[0] == {"a", "urgent"}


def test_equals_of_a_job_that_had_no_use_for_its_room_are_kept_theirs():
    snapshot = prioritised(full("u", "first"), u=5, first=5)
    claimed = with_claims(snapshot, Rules(unused=[JobId("first")]))
    assert [(it.job, it.instances) for it in claimed.claims] == [("u", ("i", "k"))]


def test_a_gang_on_both_sides_stays_where_it_is():
    other = offer("other", (0, 1, 4), 0.1, limit=1)
    cluster = Cluster(BOX, other).instance("i", "box").instance("o", "other")
    cluster.job("g", ONE, ONE, on=["i", "o"], kind=JobKind.GANG).job("u", FOUR).job("v", ONE)
    cluster.instance("k", "box").job("full", FOUR, on=["k"])
    seen = view(prioritised(cluster, u=5)).shown
    (mate,) = (run for run in seen.runs if run.job == "g")
    assert (mate.id, mate.pinned, mate.instance) == ("g/1", True, "o")
    (job,) = (job for job in seen.jobs if job.id == "g")
    assert job.runs == ("g/1",)


def test_jobs_that_cannot_use_it_are_no_rivals():
    cluster = full("u", "v").job("x", task("w", other=(0, 1, 2)))
    cluster.catalog = (*cluster.catalog, offer("o", (0, 4, 8), 1.0, family="other", limit=1))
    seen = view(prioritised(cluster, u=5))
    assert set(seen.walk.rivals) == {"v/0"}
    assert shown(seen.shown)[0] == {"v", "x"}


def test_below_the_most_urgent_the_next_one_comes():
    small = offer("small", (0, 1, 2), 0.1, family="s", limit=1)
    cluster = full("u", "v")
    cluster.catalog = (BOX, small)
    tiny = task("w", s=(0, 1, 2))
    cluster.instance("s", "small").job("busy", tiny, on=["s"]).job("m", tiny)
    seen = view(prioritised(cluster, u=9, m=5))
    assert set(holds(seen)) == {"u/0", "m/0"}
    assert shown(seen.shown) == ({"v"}, set())


def test_a_thousand_priorities_are_no_thousand_times_the_work():
    # Each of them may keep one box for itself, as it is known when it is free.
    cluster = Cluster(replace(BOX, limit=200))
    ends = {}
    for number in range(200):
        cluster.instance(f"i{number:03}", "box").job(f"a{number:03}", ONE, on=[f"i{number:03}"])
        cluster.job(f"u{number:03}", FOUR)
        ends[f"a{number:03}"] = 10.0 + number
    priorities = {f"u{number:03}": number + 1 for number in range(200)}
    seen = view(left(prioritised(cluster, **priorities), **ends))
    assert len(seen.whole.claims) == making._MOST_DEMANDS
    urgent = {f"u{number:03}/0" for number in range(200 - making._MOST_DEMANDS, 200)}
    assert holds(seen).keys() == urgent, "the most urgent come first"
    assert len(seen.shown.instances) == 200 - making._MOST_DEMANDS


def test_of_one_priority_only_so_many_sizes_are_kept_room_for():
    cluster = full()
    sizes = {}
    for number in range(100):
        cluster.job(f"u{number:03}", task("w", any=(0, 4, 4 + number / 100)))
        sizes[f"u{number:03}"] = 5
    assert len(holds(view(prioritised(cluster, **sizes)))) == making._MOST_DEMANDS
    alike = full(*(f"u{number:03}" for number in range(100)))
    assert len(holds(view(prioritised(alike, **sizes)))) == 100, "equal ones count once"


def test_as_many_are_suspended_as_need_be():
    snapshot = prioritised(full("u", "v"), u=5)
    seen = view(snapshot, preemption=Preemption.SUSPEND)
    jobs, instances = shown(seen.shown)
    assert "v" not in jobs
    assert (len(jobs & set("abcd")), instances) == (2, {"i", "k"})
    room = next(it for it in seen.shown.instances if not it.residents)
    gone = {"i": {"a/0", "b/0"}, "k": {"c/0", "d/0"}}[room.id]
    placed = seen.completed(Plan(entries=(Assign("u/0", room.id),)))
    suspends = {it.run: it.job for it in placed.entries if isinstance(it, Suspend)}
    assert suspends == dict.fromkeys(gone, "u")
    # It need not, as the policy has found room elsewhere; and it is in vain if it has found none.
    elsewhere = Plan(entries=(Assign("u/0", 0),))
    assert not any(isinstance(it, Suspend) for it in seen.completed(elsewhere).entries)
    held = Plan(entries=(Hold("u/0", "no"),))
    assert not any(isinstance(it, Suspend) for it in seen.completed(held).entries)
    again = view(snapshot, Way.YIELDED, preemption=Preemption.SUSPEND)
    assert ways(again) == [Way.OPEN]
    assert "u/0" in holds(again)


def test_equals_and_those_that_move_are_no_victims():
    same = prioritised(full("u"), u=5, a=5, b=5, c=5, d=5, v=0)
    assert not view(same, preemption=Preemption.SUSPEND).walk.victims
    snapshot = prioritised(full("u"), u=5)
    runs = tuple(replace(run, pinned=run.job in ("a", "c")) for run in snapshot.runs)
    moving = replace(snapshot, runs=runs)
    assert not view(moving, preemption=Preemption.SUSPEND).walk.victims


def gathering(*jobs: str, **priorities: int) -> Snapshot:
    """Gangs of three with a place for two members each, on boxes that each fill by a half."""
    cluster = Cluster(replace(BOX, limit=4))
    half = task("w", any=(0, 2, 8))
    for name in jobs:
        cluster.instance(f"{name}1", "box").instance(f"{name}2", "box")
        places = [f"{name}1", f"{name}2", None]
        cluster.job(name, FOUR, FOUR, half, on=places, running=False, kind=JobKind.GANG)
    return prioritised(cluster, **priorities)


@pytest.mark.parametrize("preemption", Preemption)
def test_a_gang_that_waits_for_a_place_is_not_in_the_way_of_the_urgent(preemption: Preemption):
    snapshot = gathering("g", "h", h=5)
    seen = view(snapshot, preemption=preemption)
    assert seen.walk.steps[0].placed == {"h/2"}
    assert shown(seen.shown)[0] == {"h"}
    plan = seen.completed(Plan(entries=(Assign("h/2", InstanceId("g1")),)))
    told = "makes room for h, which has a higher priority"
    assert {it for it in plan.entries if not isinstance(it, Hold)} == {
        Assign("h/2", InstanceId("g1")),
        *(Suspend(RunId(f"g/{member}"), told, JobId("h")) for member in range(3)),
    }


def test_of_two_gangs_that_wait_for_each_other_the_first_comes_first():
    snapshot = gathering("g", "h", g=5, h=5)
    low = Cluster(BOX).job("v", ONE).snapshot()
    snapshot = replace(snapshot, jobs=(*snapshot.jobs, *low.jobs), runs=(*snapshot.runs, *low.runs))
    seen = view(snapshot)
    assert seen.walk.steps[0].placed == {"g/2"}
    entries = seen.completed(Plan(entries=(Assign("g/2", InstanceId("h1")),))).entries
    reasons = {entry.reason for entry in entries if isinstance(entry, Suspend)}
    assert reasons == {"makes room for g, which was submitted before"}
