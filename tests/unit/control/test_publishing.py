"""Publishing copies what changed, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.control.loop import Loop
from eva_master.control.machine import Machine
from eva_master.control.readside.persistent_map import PersistentMap
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.parts import over
from eva_master.control.state.store import State
from eva_master.model.actions import Reply, TerminateInstance
from eva_master.model.changes import Changes
from eva_master.model.events import CancelRequested, CloudListed, JobSubmitted
from eva_master.model.job import JobSpec
from eva_master.model.progress import Progress
from eva_wire.values.ids import JobId, Millis, run_id
from tests.fakes.rpc.server import CATALOG, add_instance, add_job, spec


def nodes(tree: PersistentMap[Any, Any]) -> set[int]:
    """The identities of all nodes of a map."""
    found, waiting = set(), [tree._root]
    while waiting:
        node = waiting.pop()
        found.add(id(node))
        waiting.extend(getattr(node, "children", ()))
    return found


@pytest.mark.parametrize("jobs", [100, 10_000])
def test_a_change_of_one_job_copies_one_path_of_each_map(jobs: int) -> None:
    state = State(CATALOG)
    names = [add_job(state, spec(f"j{number}")) for number in range(jobs)]
    publisher = Publisher(state, Settings())
    before = publisher.publish(Millis(1))
    run = state.runs[run_id(names[jobs // 2], 0)]
    state.put_progress(run, Progress(steps=7))
    state.put_job(replace(state.jobs[names[jobs // 2]], attempt=1))
    after = publisher.publish(Millis(2))
    assert after.runs[run.id].progress.steps == 7
    assert before.runs[run.id].progress.steps == 0
    for part in ("jobs", "touched", "active", "names", "job_accounts", "instances"):
        new = nodes(getattr(after, part)) - nodes(getattr(before, part))
        # A leaf, and a branch for each level above it: two levels hold 4,096 jobs.
        assert len(new) <= 3, part
    assert after.instances is before.instances


def test_a_turn_in_which_nothing_changed_copies_nothing() -> None:
    state = State(CATALOG)
    add_job(state, spec("j"))
    publisher = Publisher(state, Settings())
    first, second = publisher.publish(Millis(1)), publisher.publish(Millis(2))
    assert second.at_ms == 2
    assert replace(second, at_ms=first.at_ms) == first
    assert second.jobs is first.jobs
    assert second.prices is first.prices


def test_a_session_that_ends_is_published() -> None:
    state = State(CATALOG)
    place = add_instance(state)
    publisher = Publisher(state, Settings())
    assert publisher.publish(Millis(1)).is_connected(place)
    state.sessions.end(place)
    assert not publisher.publish(Millis(2)).is_connected(place)
    state.sessions.begin(place, 7)
    assert dict(publisher.publish(Millis(3)).sessions) == {place: 7}


def test_a_state_that_nobody_reads_keeps_no_account_of_its_changes() -> None:
    state = State(CATALOG)
    add_job(state, spec("j"))
    assert state._unpublished is None


class Diary:
    """Every port of a loop; notes what is called, in order."""

    def __init__(self, *events: object) -> None:
        self.calls: list[str] = []
        self._events = [list(events)]
        self.journal = MemoryJournal()
        self.published: list[JobId] = []

    def wait(self, until: Millis | None) -> list[object]:
        return self._events.pop()

    def now(self) -> Millis:
        return Millis(1000)

    def commit(self, changes: Changes) -> None:
        self.calls.append("commit")
        self.journal.commit(changes)

    def publish(self, changes: Changes, model: Any) -> None:
        self.calls.append("publish")
        self.published = list(model().active)

    def reply(self, reply: Reply) -> None:
        self.calls.append("reply")

    def execute(self, action: object) -> None:
        self.calls.append("execute")

    request = execute


def test_an_answer_comes_after_the_model_that_shows_what_it_is_about() -> None:
    ports = Diary(JobSubmitted("c", spec("resnet")), CancelRequested("d", JobId("none-9")))
    machine = Machine(State(CATALOG), Settings())
    loop = Loop(
        machine,
        **dict.fromkeys(
            ("clock", "inbox", "journal", "cloud", "workers", "planner", "checkpoints", "replies"),
            ports,
        ),
    )
    loop.step()
    assert ports.calls[:4] == ["commit", "publish", "reply", "reply"]
    assert ports.published == [JobId("resnet-1")]


def ended(state: State, name: str, at: int) -> JobId:
    job = add_job(state, JobSpec(name, "ada", spec(name).tasks), at=at)
    history = (("pending", at), ("ending", at), ("cancelled", at))
    run = next(state.members(job))
    state.put_run(replace(run, history=(("cancelled", at),)))
    state.put_job(replace(state.jobs[job], history=history))
    return job


def test_what_is_over_is_forgotten_in_its_time_and_stays_in_the_counts() -> None:
    machine = Machine(State(CATALOG), Settings(history_kept_ms=500))
    state = machine.state
    old, young = ended(state, "old", 1000), ended(state, "young", 1200)
    for _ in range(2):  # spending is looked at in the second turn
        machine.handle([], Millis(1200))
    machine.take_changes()
    assert machine.next_alarm() == 1500
    machine.handle([], Millis(1500))
    assert list(state.jobs) == [young]
    assert old not in state.job_accounts
    assert machine.next_alarm() == 1700
    machine.handle([], Millis(1700))
    assert not state.jobs
    assert not state.runs
    assert {state.value: count for state, count in state.totals.jobs.items()} == {"cancelled": 2}
    assert not machine.take_changes(), "nothing is written of what is forgotten"


def test_what_ends_in_a_turn_is_written_before_it_is_forgotten() -> None:
    machine = Machine(State(CATALOG), Settings(history_kept_ms=0))
    state = machine.state
    job = add_job(state, spec("j"), at=1000)
    machine.handle([CancelRequested("c", job)], Millis(1000))
    written = {record.id: record for record in machine.take_changes().jobs}
    assert written[job].state.value == "cancelled"
    assert machine.next_alarm() == 1000
    machine.handle([], Millis(1000))
    assert not state.jobs
    assert state.commands.get((written[job].spec.owner, written[job].command)) is None


def test_a_thousand_are_forgotten_at_once_and_the_rest_in_the_next_turns() -> None:
    machine = Machine(State(CATALOG), Settings(history_kept_ms=10))
    for number in range(1500):
        ended(machine.state, f"j{number}", 1000)
    machine.handle([], Millis(2000))
    assert len(machine.state.jobs) == 500
    assert machine.next_alarm() is not None
    assert machine.next_alarm() <= 2000
    machine.handle([], Millis(2000))
    assert not machine.state.jobs


@pytest.mark.parametrize(("limit", "most"), [("MOST_KEPT", 2), ("MOST_TEXT", 2 * len("true"))])
def test_of_very_much_that_is_over_the_oldest_is_forgotten_early(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(over, limit, most)
    machine = Machine(State(CATALOG), Settings(history_kept_ms=500))
    names = [ended(machine.state, f"j{number}", 1000 + number) for number in range(5)]
    machine.handle([], Millis(1100))
    assert list(machine.state.jobs) == names[-2:]
    machine.handle([], Millis(1503))
    assert list(machine.state.jobs) == names[-1:]
    ended(machine.state, "last", 1600)
    machine.handle([], Millis(1600))
    assert [job.spec.name for job in machine.state.jobs.values()] == ["last"]


def test_an_instance_that_is_forgotten_is_told_to_go_when_it_is_seen_again() -> None:
    """It counts as one that nobody asked for, like any that a lost journal knew."""
    machine = Machine(State(CATALOG), Settings(history_kept_ms=0))
    place = add_instance(machine.state)
    machine.state.put_instance(
        replace(machine.state.instances[place], history=(("gone", 1000),), gone_ms=Millis(1000))
    )
    machine.handle([], Millis(1000))
    assert not machine.state.instances
    actions = machine.handle([CloudListed(((place, Millis(950)),))], Millis(1001))
    assert TerminateInstance(place) in actions
