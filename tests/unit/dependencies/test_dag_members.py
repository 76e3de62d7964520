"""Which jobs are stages of one DAG, as they come and go."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from eva_master.control.state.derived.dags import MOST_ENDED, MOST_STAGES, Dags
from eva_master.learning.run_times.dags import EndedStage
from eva_master.model.records import Job
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from tests.fakes.jobs import job as spec_of


class Followed:
    """The jobs of a master, of which each ends when it is told to."""

    def __init__(self) -> None:
        self.changed: list[str] = []
        self.dags = Dags(self.changed.append)
        self.jobs: dict[str, Job] = {}

    def submit(self, name: str, *after: str, dag: str = "etl", owner: str = "me") -> str:
        number = len(self.jobs) + 1
        before = tuple(map(JobId, after))
        spec = spec_of(name, 1, dag=dag, owner=owner, depends_on=before)
        id_ = JobId(f"{name}-{number}")
        self.jobs[id_] = Job(id_, spec, Millis(number), ((JobState.PENDING.value, number),))
        self.dags.follow(self.jobs[id_])
        return id_

    def end(self, name: str) -> None:
        over = (*self.jobs[name].history, (JobState.SUCCEEDED.value, 99))
        self.jobs[name] = replace(self.jobs[name], history=over)
        self.dags.follow(self.jobs[name])

    def members(self, name: str) -> tuple[str, ...]:
        dag = self.dags.of(self.jobs[name])
        return () if dag is None else dag.members

    def held(self) -> tuple[int, int]:
        return len(self.dags._groups), len(self.dags._of)


def test_stages_that_wait_for_each_other_are_one_dag() -> None:
    jobs = Followed()
    a, b = jobs.submit("a"), jobs.submit("b")
    assert (jobs.members(a), jobs.members(b)) == ((a,), (b,))
    c = jobs.submit("c", a, b)
    assert jobs.members(a) == jobs.members(b) == jobs.members(c) == (a, b, c)
    assert jobs.changed[-3:] == [a, b, c]
    dag = jobs.dags.of(jobs.jobs[c])
    assert dag is not None
    assert (dag.first, dag.submitted_ms, dag.ended) == (a, 1, ())


@pytest.mark.parametrize("other", [{"dag": "web"}, {"dag": ""}, {"owner": "you"}])
def test_other_labels_and_owners_are_other_dags(other: dict[str, str]) -> None:
    jobs = Followed()
    a = jobs.submit("a")
    b = jobs.submit("b", a, **other)
    assert jobs.members(a) == (a,)
    assert jobs.members(b) == ((b,) if other.get("dag") != "" else ())


def test_two_that_wait_for_a_third_are_one_dag_be_that_a_stage_or_not() -> None:
    jobs = Followed()
    a = jobs.submit("a", dag="")
    b, c = jobs.submit("b", a), jobs.submit("c", a)
    assert jobs.members(b) == jobs.members(c) == (b, c)


def test_dags_of_one_label_are_kept_apart() -> None:
    jobs = Followed()
    first = [jobs.submit("a")]
    second = [jobs.submit("a")]
    first.append(jobs.submit("b", first[0]))
    second.append(jobs.submit("b", second[0]))
    assert jobs.members(first[0]) == tuple(first)
    assert jobs.members(second[1]) == tuple(second)


def test_what_has_ended_is_remembered_until_all_of_it_has() -> None:
    jobs = Followed()
    a = jobs.submit("a")
    b = jobs.submit("b", a)
    jobs.end(a)
    dag = jobs.dags.of(jobs.jobs[b])
    assert dag is not None
    assert (dag.members, dag.ended, dag.first) == ((b,), (a,), a)
    assert jobs.dags.of(jobs.jobs[a]) is None
    late = jobs.submit("c", a)
    assert jobs.members(b) == (b, late), "one that comes later belongs to it, too"
    jobs.end(b)
    jobs.end(late)
    assert jobs.held() == (0, 0)


def test_a_stage_that_arrives_is_told_to_all_stages() -> None:
    jobs = Followed()
    outside, a = jobs.submit("outside", dag=""), jobs.submit("a")
    b = jobs.submit("b", a, outside)
    jobs.changed.clear()
    jobs.dags.follow(jobs.jobs[b])
    assert jobs.changed == [], "it waits as it did"
    jobs.dags.follow(replace(jobs.jobs[b], released_ms=Millis(7)))
    assert jobs.changed == [a, b]


def test_a_task_that_finishes_is_told_to_all_stages() -> None:
    jobs = Followed()
    a = jobs.submit("a")
    b = jobs.submit("b", a)
    lone = jobs.submit("lone", dag="")
    jobs.changed.clear()
    jobs.dags.note_finished(jobs.jobs[a])
    jobs.dags.note_finished(jobs.jobs[lone])
    assert jobs.changed == [a, b]


def test_a_dag_without_end_is_cut() -> None:
    jobs = Followed()
    last = jobs.submit("a")
    for number in range(MOST_STAGES + 9):
        last = jobs.submit(f"s{number}", last)
    assert len(jobs.members("a-1")) == MOST_STAGES
    for name in list(jobs.jobs):
        jobs.end(name)
    assert jobs.held() == (0, 0)


def test_dags_that_would_be_too_many_stages_together_stay_apart() -> None:
    jobs = Followed()
    half = MOST_STAGES // 2
    ends = []
    for chain in "ab":
        last = jobs.submit(chain)
        for number in range(half - 1):
            last = jobs.submit(f"{chain}{number}", last)
        ends.append(last)
    both = jobs.submit("both", *ends)
    assert jobs.members(both) == (), "it is judged by itself"
    assert [len(jobs.members(end)) for end in ends] == [half, half]
    for name in list(jobs.jobs):
        jobs.end(name)
    assert jobs.held() == (0, 0)


def test_a_chain_that_never_ends_takes_no_more_room() -> None:
    jobs = Followed()
    last, held = jobs.submit("a"), []
    for number in range(4 * MOST_ENDED):
        after, outside = last, jobs.submit("outside", dag="")
        last = jobs.submit(f"s{number}", after, outside)
        jobs.end(after)
        held.append(jobs.held())
    dag = jobs.dags.of(jobs.jobs[last])
    assert dag is not None
    assert len(dag.ended) == MOST_ENDED
    assert not dag.whole, "it is not learned as if that were all"
    assert held[2 * MOST_ENDED :] == held[2 * MOST_ENDED - 1 : -1]


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_finds_the_same_dags(seed: int) -> None:
    """Of what has ended a new master knows what the journal has of it, and nothing else."""
    random_ = random.Random(seed)
    jobs = Followed()
    for _ in range(30):
        there = random_.sample(list(jobs.jobs), min(len(jobs.jobs), random_.randrange(3)))
        jobs.submit(random_.choice("abc"), *there, dag=random_.choice(["x", "y"]))
        if random_.random() < 0.5:
            active = [it for it in jobs.jobs if jobs.members(it)]
            jobs.end(random_.choice(active))
    again = Followed()
    again.jobs = jobs.jobs
    for job in jobs.jobs.values():
        if job.state is JobState.PENDING:
            again.dags.follow(job)
    live = {it for name in jobs.jobs if (it := jobs.dags.of(jobs.jobs[name])) is not None}
    known = {
        name: EndedStage(job.spec.stage.dag, job.spec.name, 1, 1, after=job.spec.stage.depends_on)
        for dag in live
        for name in dag.ended
        if (job := jobs.jobs[name])
    }
    left = EndedStage("x", "z", 1, 1)  # by a master that died before it noted that this was over
    stale = again.dags.restore({"me": {**known, JobId("z-99"): left}})
    assert list(stale) == [("me", "z-99")]
    for job in jobs.jobs.values():
        assert again.dags.of(job) == jobs.dags.of(job)
