"""Jobs have the highest priority of those that wait for them, for as long as these do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from eva_client.cli.views import shapes, tables
from eva_master.adapters.rpc.server.explain import Subject, find
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Limits, Settings
from eva_master.control.state.derived import priorities as derived_priorities
from eva_master.control.state.derived.priorities import Priorities
from eva_master.control.state.store import State
from eva_master.model.changes import Changes
from eva_master.model.events import CancelRequested, JobSubmitted, ResumeRequested, SuspendRequested
from eva_master.model.planning.reasons import Handed
from eva_master.ports.reading import Archive
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB, JobState
from tests.fakes.jobs import CATALOG, job
from tests.unit.dependencies import test_dependencies


class Cluster(test_dependencies.Cluster):
    """As there, with priorities."""

    def add(self, name: str, priority: int, *after: str, operator: bool = False) -> JobId:
        before = len(self.state.jobs)
        spec = job(name, 1, depends_on=tuple(map(JobId, after)), priority=priority)
        self.handle(JobSubmitted(f"{name}{before}", spec, operator=operator))
        assert len(self.state.jobs) == before + 1
        return list(self.state.jobs)[-1]

    def cancel(self, name: JobId) -> None:
        self.handle(CancelRequested(f"cancel {name}", name))

    def suspend(self, name: JobId) -> None:
        self.handle(SuspendRequested(f"suspend {name} {self.now}", name, "me"))

    def resume(self, name: JobId) -> None:
        self.handle(ResumeRequested(f"resume {name} {self.now}", name, "me"))

    def handed(self) -> dict[str, tuple[int, str]]:
        return {name: (it.priority, it.by) for name, it in self.state.handed.items()}


def expected(state: State) -> dict[JobId, int]:
    """The priorities above their own, worked out from the records alone."""
    active = {name: it for name, it in state.jobs.items() if it.state not in TERMINAL_JOB}
    found = {name: it.spec.priority for name, it in active.items()}
    for name in reversed(active):  # those that wait come later than what they wait for
        record = active[name]
        if record.waits and record.suspension is None:
            for other in record.spec.stage.depends_on:
                if other in found:
                    found[other] = max(found[other], found[name])
    return {name: it for name, it in found.items() if it > active[name].spec.priority}


def test_it_goes_down_the_chain_and_is_taken_back() -> None:
    cluster = Cluster()
    first = cluster.add("first", 0)
    second = cluster.add("second", 2, first)
    assert cluster.handed() == {first: (2, second)}
    urgent = cluster.add("urgent", 5, second)
    later = cluster.add("later", 5, second)
    assert cluster.handed() == {first: (5, urgent), second: (5, urgent)}
    cluster.cancel(urgent)
    assert cluster.handed() == {first: (5, later), second: (5, later)}
    cluster.cancel(later)
    assert cluster.handed() == {first: (2, second)}
    cluster.end(first)
    assert cluster.handed() == {}


def test_what_only_has_to_end_gets_it_too_and_a_higher_one_of_its_own_stays() -> None:
    cluster = Cluster()
    low, high = cluster.add("low", 0), cluster.add("high", 9)
    spec = job("urgent", 1, depends_on=(low, high), only_ended=(low, high), priority=5)
    cluster.handle(JobSubmitted("urgent", spec))
    assert cluster.handed() == {low: (5, JobId("urgent-3"))}


def test_a_suspended_job_hands_on_nothing() -> None:
    cluster = Cluster()
    first = cluster.add("first", 0)
    urgent = cluster.add("urgent", 5, first)
    cluster.suspend(urgent)
    assert cluster.handed() == {}
    cluster.resume(urgent)
    assert cluster.handed() == {first: (5, urgent)}


def test_policies_see_it_in_a_round_that_the_urgent_job_asks_for() -> None:
    cluster = Cluster()
    cluster.add("other", 1)
    first = cluster.add("first", 0)
    spec = job("urgent", 1, depends_on=(first,), priority=5)
    actions = cluster.handle(JobSubmitted("urgent", spec))
    request = next(it for it in actions if isinstance(it, test_dependencies.RequestPlan))
    assert {it.id: it.priority for it in request.snapshot.jobs} == {"other-1": 1, first: 5}
    cluster.machine.handle([], cluster.now)
    actions = cluster.handle(CancelRequested("c", JobId("urgent-3")))
    request = next(it for it in actions if isinstance(it, test_dependencies.RequestPlan))
    assert {it.id: it.priority for it in request.snapshot.jobs} == {"other-1": 1, first: 0}


def test_users_hand_on_no_more_than_they_may_state() -> None:
    cluster = Cluster(limits=Limits(priority=3))
    first = cluster.add("first", 0)
    spec = job("urgent", 1, depends_on=(first,), priority=4)
    cluster.handle(JobSubmitted("urgent", spec))
    assert cluster.handed() == {}
    by = cluster.add("urgent", 4, first, operator=True)
    assert cluster.handed() == {first: (4, by)}


def test_another_users_job_is_never_raised() -> None:
    cluster = Cluster()
    first = cluster.add("first", 0)
    spec = job("urgent", 1, owner="you", depends_on=(first,), priority=5)
    cluster.handle(JobSubmitted("urgent", spec))
    assert cluster.handed() == {}


def test_an_array_is_raised_as_a_whole() -> None:
    cluster = Cluster()
    spec = job("array", 3, kind=JobKind.ARRAY)
    cluster.handle(JobSubmitted("array", spec))
    urgent = cluster.add("urgent", 5, "array-1")
    assert cluster.handed() == {"array-1": (5, urgent)}


def drawn(draw: random.Random) -> Iterator[Cluster]:
    """A cluster after each of many changes."""
    cluster = Cluster()
    for number in range(60):
        active = list(cluster.state.active)
        match draw.choice(("add", "add", "add", "end", "cancel", "suspend", "resume")):
            case "add":
                after = draw.sample(active, min(len(active), draw.randrange(4)))
                cluster.add(f"j{number}", draw.choice((0, 0, 0, 1, 2, 3)), *after)
            case "end" if active:
                free = [it for it in active if not cluster.job(it).waits]
                cluster.end(draw.choice(free), draw.choice((JobState.SUCCEEDED, JobState.FAILED)))
            case "cancel" if active:
                cluster.cancel(draw.choice(active))
            case "suspend" if active:
                cluster.suspend(draw.choice(active))
            case "resume" if active:
                cluster.resume(draw.choice(active))
        yield cluster


@pytest.mark.parametrize("seed", range(25))
def test_it_follows_from_the_records(seed: int) -> None:
    for cluster in drawn(random.Random(seed)):
        state = cluster.state
        assert {name: it.priority for name, it in state.handed.items()} == expected(state)
        for it in state.handed.values():
            assert state.jobs[it.by].spec.priority == it.priority
        for need, jobs in state.unplaced.by_need():
            for name in jobs:
                own = state.jobs[name].spec.priority
                assert need.priority == expected(state).get(name, own)
        again = State.restored(CATALOG, Changes(jobs=tuple(state.jobs.values())))
        assert again.handed == state.handed
    for name in list(cluster.state.active):
        cluster.cancel(name)
    assert len(cluster.state.dependencies._priorities) == 0


def test_many_that_wait_for_one_cost_no_more_than_each_by_itself() -> None:
    told: list[JobId] = []
    left = {JobId(f"w-{number}"): (JobId("first-0"),) for number in range(1, 20_001)}
    priorities = Priorities(lambda name: left.get(name, ()), told.append, {})
    cluster = Cluster()
    cluster.add("first", 0)
    record = cluster.state.jobs[JobId("first-1")]
    urgent = replace(record.spec, priority=3)
    for name in left:
        priorities.follow(replace(record, id=name, spec=urgent), waits=True)
    assert told == ["first-0"]
    assert priorities.handed == {"first-0": Handed(3, JobId("w-1"))}
    for name in left:
        priorities.stop(name)
    assert not priorities.handed


@pytest.mark.parametrize("at_once", [0, 1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_handed_on_later_is_the_same(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived_priorities, "_AT_ONCE", at_once)
    for step, cluster in enumerate(drawn(random.Random(seed))):
        if step % 5 == 4:
            state = cluster.state
            state.dependencies.settle_priorities()
            assert {name: handed.priority for name, handed in state.handed.items()} == expected(
                state
            )
    for name in list(cluster.state.active):
        cluster.cancel(name)
    cluster.state.dependencies.settle_priorities()
    assert len(cluster.state.dependencies._priorities) == 0


def test_a_chain_of_rising_priorities_touches_each_job_a_limited_number_of_times() -> None:
    """A submission touches a hundred jobs, and a plan each job once, however many came before."""
    jobs, touched = 1_000, list[JobId]()
    names = [JobId(f"c{number}-{number}") for number in range(jobs)]
    before = {name: (names[number],) for number, name in enumerate(names[1:])}
    priorities = Priorities(lambda name: before.get(name, ()), touched.append, {})
    cluster = Cluster()
    cluster.add("first", 0)
    record = cluster.state.jobs[JobId("first-1")]
    for number, name in enumerate(names):
        spec = replace(record.spec, priority=1 + number)
        priorities.follow(replace(record, id=name, spec=spec), waits=number > 0)
    assert len(touched) <= 101 * jobs
    touched.clear()
    priorities.settle()
    assert len(touched) == len(set(touched)) <= jobs
    assert priorities.handed == dict.fromkeys(names[:-1], Handed(jobs, names[-1]))


def test_policies_see_priorities_that_came_a_long_way() -> None:
    cluster = Cluster()
    chain = [cluster.add("c0", 0)]
    for number in range(1, 300):
        chain.append(cluster.add(f"c{number}", 0, chain[-1]))
    spec = job("urgent", 1, depends_on=(chain[-1],), priority=7)
    actions = cluster.handle(JobSubmitted("urgent", spec))
    request = next(act for act in actions if isinstance(act, test_dependencies.RequestPlan))
    assert {view.id: view.priority for view in request.snapshot.jobs} == {chain[0]: 7}


def test_users_are_told_the_priority_and_where_it_comes_from() -> None:
    cluster = Cluster()
    first = cluster.add("first", 1)
    urgent = cluster.add("urgent", 5, first)
    publisher = Publisher(cluster.state, Settings())
    model = publisher.publish(cluster.now)
    subject = find(model, cast("Archive", None), "me", first, cluster.now)
    assert isinstance(subject, Subject)
    assert subject.message.notes == [f"priority 5, handed on by {urgent}"]
    shape = shapes.job(subject.message.job)
    assert (shape["priority"], shape["handed_priority"], shape["handed_by"]) == (1, 5, urgent)
    assert tables.priority(subject.message.job) == f"5, handed on by {urgent}"
    cluster.cancel(urgent)
    model = publisher.publish(cluster.now)
    subject = find(model, cast("Archive", None), "me", first, cluster.now)
    assert isinstance(subject, Subject)
    assert not subject.message.notes
    assert tables.priority(subject.message.job) == "1"
