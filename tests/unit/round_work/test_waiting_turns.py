"""Where more tasks wait than a round plans for, owners and their jobs are shown in turn."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace

import pytest

from eva_master.control.state.parts.policy_memories import document_of, memory_of
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.plan import Hold, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.round_work import tasks_shown
from eva_master.packing.waiting_turns import NO_TURNS, WAITS_ITS_TURN, Shown, Turns, shown
from eva_master.testing.job_views import changed
from eva_master.testing.snapshots import Cluster, offer, task
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis

TASK = task(any=(0, 1, 1))
MOST = 40


class Queue:
    """A cluster in which many jobs wait."""

    def __init__(self) -> None:
        self.cluster = Cluster(offer("large", (0, 16, 64), 1.0)).instance("i", "large")
        self.owners: list[str] = []
        self.priorities: list[int] = []

    def add(
        self, owner: str, jobs: int, tasks: int = 1, *, kind: JobKind = JobKind.GANG, priority=0
    ) -> Queue:
        for _ in range(jobs):
            name = f"j{len(self.owners):05}"
            self.cluster.job(name, *[TASK] * tasks, kind=kind, priority=priority)
            self.owners.append(owner)
        return self

    def snapshot(self) -> Snapshot:
        snapshot = self.cluster.snapshot()
        jobs = (
            changed(job, owner=owner, submitted_ms=Millis(number))
            for number, (job, owner) in enumerate(zip(snapshot.jobs, self.owners, strict=True))
        )
        return replace(snapshot, jobs=tuple(jobs))


def rounds(snapshot: Snapshot, count: int, turns: Turns = NO_TURNS) -> list[Shown]:
    """Rounds one after the other in which no task finds a place."""
    found = []
    for _ in range(count):
        part = shown(snapshot, turns, MOST)
        # A restart between two rounds reads them from the journal.
        turns = Turns.load(memory_of(json.loads(json.dumps(document_of(part.turns.dump())))))
        assert turns == part.turns
        found.append(part)
    return found


def seen(part: Shown) -> set[str]:
    return {job.id for job in part.snapshot.jobs}


def test_all_tasks_are_shown_while_a_round_has_time_for_them() -> None:
    snapshot = Queue().add("a", MOST).snapshot()
    assert shown(snapshot, NO_TURNS, MOST) == Shown(snapshot)


def test_the_budget_says_for_how_many_tasks_there_is_time() -> None:
    assert tasks_shown(10_000_000) == 5_000
    assert tasks_shown(1) == 1


def test_a_user_with_one_job_is_shown_at_once_beside_one_with_thousands() -> None:
    snapshot = Queue().add("many", 3_000).add("one", 1).snapshot()
    part = rounds(snapshot, 1)[0]
    assert "j03000" in seen(part)
    assert len(part.snapshot.runs) == MOST
    assert len(part.hidden) == 3_001 - MOST


def test_owners_are_shown_equally_much_beside_the_most_urgent_jobs() -> None:
    queue = Queue().add("a", 500)
    for owner in "bcd":
        queue.add(owner, 500)
    owners = {f"j{number:05}": owner for number, owner in enumerate(queue.owners)}
    part = rounds(queue.snapshot(), 1)[0]
    counts = Counter(owners[job] for job in seen(part))
    # Half of the round is for the first in order of submission, all of which are of one owner.
    assert counts == {"a": 25, "b": 5, "c": 5, "d": 5}


@pytest.mark.parametrize("tasks", [1, 2])
def test_each_job_is_shown_within_the_rounds_that_are_stated(tasks: int) -> None:
    snapshot = Queue().add("a", 150, tasks).add("b", 30, tasks).snapshot()
    first = rounds(snapshot, 1)[0]
    parts = rounds(snapshot, first.rounds)
    assert set.union(*map(seen, parts)) == {job.id for job in snapshot.jobs}


def test_a_thousand_owners_are_shown_in_turn() -> None:
    queue = Queue()
    for number in range(1_000):
        queue.add(f"o{number:04}", 1)
    parts = rounds(queue.snapshot(), 1_000 // (MOST // 2))
    assert len(set.union(*map(seen, parts))) == 1_000


def test_the_most_urgent_are_shown_in_each_round() -> None:
    snapshot = Queue().add("a", 300).add("b", 5, priority=7).snapshot()
    for part in rounds(snapshot, 4):
        assert {f"j{number:05}" for number in range(300, 305)} <= seen(part)


def test_of_gangs_that_are_large_for_a_round_one_is_shown_whole() -> None:
    queue = Queue().add("a", 2, 1_000).add("b", 2, 11).add("c", 60)
    snapshot = queue.snapshot()
    first, second, third, fourth = rounds(snapshot, 4)
    large = [{"j00000", "j00001", "j00002", "j00003"} & seen(it) for it in (first, second)]
    assert large == [{"j00000"}, {"j00002"}]
    assert {"j00000", "j00001", "j00002", "j00003"} == set.union(
        *map(seen, (first, second, third, fourth))
    ) & {"j00000", "j00001", "j00002", "j00003"}
    # The others are shown as if there were no such gang.
    assert len(first.snapshot.runs) == 1_000 + MOST
    for part in (first, second):
        for job in part.snapshot.jobs:
            assert len(job.runs) == len([it for it in part.snapshot.runs if it.job == job.id])


def test_of_an_array_a_part_is_shown_with_tasks_of_each_kind() -> None:
    queue = Queue().add("a", 1, 300, kind=JobKind.ARRAY).add("b", 50)
    other = task("other", any=(0, 2, 2))
    snapshot = queue.snapshot()
    runs = tuple(
        replace(run, task=other) if run.job == "j00000" and number >= 250 else run
        for number, run in enumerate(snapshot.runs)
    )
    part = shown(replace(snapshot, runs=runs), NO_TURNS, MOST)
    job = part.snapshot.jobs[0]
    assert 0 < len(job.runs) < 300
    assert len(job.runs) + job.array.unseen == 300
    kinds = Counter(run.task for run in part.snapshot.runs if run.job == job.id)
    assert set(kinds) == {TASK, other}
    assert sorted(job.runs) == [run.id for run in part.snapshot.runs if run.job == job.id]


def test_tasks_that_have_a_place_are_shown_always() -> None:
    queue = Queue()
    queue.cluster.job("run", TASK, TASK, on=["i", "i"])
    queue.cluster.job("some", TASK, TASK, on=["i", None])
    queue.owners += ["a", "a"]
    queue.add("b", 500)
    snapshot = queue.snapshot()
    jobs = {job.id: job for job in shown(snapshot, NO_TURNS, MOST).snapshot.jobs}
    assert len(jobs[JobId("run")].runs) == 2
    # A gang that is somewhere already is not torn apart.
    assert len(jobs[JobId("some")].runs) == 2


def test_jobs_with_room_and_the_first_of_each_claim_are_shown() -> None:
    snapshot = Queue().add("a", 500).snapshot()
    names = [job.id for job in snapshot.jobs]
    claims = tuple(
        Claim(names[at], tuple(snapshot.jobs[it].runs[0] for it in range(at, at + 100)), 0)
        for at in (200, 300)
    )
    part = shown(replace(snapshot, claims=claims), NO_TURNS, MOST, [names[450]])
    assert {names[200], names[300], names[450]} <= seen(part)
    runs = {run.id for run in part.snapshot.runs}
    for before, after in zip(claims, part.snapshot.claims, strict=True):
        assert after.runs
        assert after.runs == tuple(run for run in before.runs if run in runs)


def test_where_lines_are_stated_jobs_in_them_stay_there() -> None:
    snapshot = Queue().add("a", 500).add("b", 100, 2).snapshot()
    part = shown(snapshot, NO_TURNS, MOST, lines=True)
    assert {job.id for job in snapshot.jobs[:500]} <= seen(part)
    assert len(seen(part)) == 500 + MOST // 2


def test_tasks_that_were_not_looked_at_are_told_so_once() -> None:
    snapshot = Queue().add("a", MOST + 1).snapshot()
    part = shown(snapshot, NO_TURNS, MOST)
    (hidden,) = part.hidden
    assert part.with_reasons(Plan()) == Plan(entries=(Hold(hidden.id, WAITS_ITS_TURN),))
    told = replace(part, hidden=(replace(hidden, held=True),))
    assert told.with_reasons(Plan()) == Plan()


def test_a_memory_of_another_version_begins_anew() -> None:
    memory = Turns.load(None).dump()
    assert memory is None
    part = shown(Queue().add("a", 500).snapshot(), NO_TURNS, MOST)
    dumped = part.turns.dump()
    assert dumped is not None
    assert Turns.load(replace(dumped, version=9)) == NO_TURNS
    assert Turns.load(replace(dumped, data={"small": 3, "large": {"jobs": {"a": "x"}}})) == NO_TURNS
    assert asdict(dumped)["policy"] == "waiting turns"
