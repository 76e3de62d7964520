"""`eva explain` tells why instances stay, and where a job stands in line."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from eva_client.cli.views import explanation
from eva_master.adapters.rpc.server import explain
from eva_master.control.state.store import State
from eva_master.model.planning.standing import Line, Pool
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.states import JobState, RunState
from tests.fakes.models import model_of
from tests.fakes.rpc.server import CATALOG, add_instance, add_job, spec

NOW = Millis(5_000)
BOUND = (
    "more_only",
    "tasks_before",
    "work_ms",
    "slots",
    "latest_start_ms",
    "no_bound",
    "others_first",
    "reason",
    "note",
)
"""What `test_line_outlooks` is about."""


def cluster() -> tuple[State, list[JobId]]:
    """Three jobs in a line for a pool of two instances; the last stands in a narrower one too."""
    state = State(CATALOG)
    members = [add_instance(state, name) for name in ("i-1", "i-2")]
    for name in members:
        state.put_instance(replace(state.instances[name], pool="small"))
    jobs = [add_job(state, spec(name, tasks=2, kind=JobKind.ARRAY)) for name in "abc"]
    lines = (
        Line(("small",), tuple(jobs), rank=1),
        Line(("small", "large"), (jobs[2],), at_most=((jobs[2], 2),), only=(members[1],)),
    )
    state.membership.state("", (Pool("small", tuple(members), "two are kept"),), lines)
    return state, jobs


def explained(state: State, job: JobId) -> pb.Explanation:
    archive: Any = None
    history: Any = SimpleNamespace(explained=lambda number=None: None)
    subject = explain.find(model_of(state), archive, "ada", job, NOW)
    return explain.explain(history, subject, NOW)


def told(message: pb.Explanation) -> list[str]:
    screen = Console(file=io.StringIO(), width=300)
    screen.print(explanation.explain(message))
    assert isinstance(screen.file, io.StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def test_a_job_that_waits_is_told_its_place_in_each_line() -> None:
    state, jobs = cluster()
    message = explained(state, jobs[2])
    # In which it is offered room first is told first.
    assert [line for line in told(message) if line.startswith("  in line")] == [
        "  in line for room that becomes free in pools small, large: rank 0; "
        "no job stands before; at most 2 tasks of it; on i-2 alone",
        "  in line for room that becomes free in pool small: rank 1; a-1 and 1 more stand before",
    ]
    first, second = explanation.shape(message)["lines"]
    assert first == {
        **second,
        "pools": ["small", "large"],
        "rank": 0,
        "jobs_before": 0,
        "first_before": None,
        "at_most": 2,
        "only": ["i-2"],
        **{name: first[name] for name in BOUND},
    }
    assert second == {
        "pools": ["small"],
        "rank": 1,
        "jobs_before": 2,
        "first_before": "a-1",
        "at_most": None,
        "only": [],
        **{name: second[name] for name in BOUND},
    }


def test_a_job_is_told_what_the_policy_says_of_a_line() -> None:
    state, jobs = cluster()
    pool = Pool("small", (InstanceId("i-1"), InstanceId("i-2")), "two are kept")
    notes = ((jobs[1], "5 h of work are left"),)
    line = Line(("small",), tuple(jobs), reason="queue 3 of 10", notes=notes)
    state.membership.state("", (pool,), (line,))
    message = explained(state, jobs[1])
    assert "    queue 3 of 10: 5 h of work are left" in told(message)
    (shown,) = explanation.shape(message)["lines"]
    assert (shown["reason"], shown["note"]) == ("queue 3 of 10", "5 h of work are left")
    other = explained(state, jobs[0])
    assert "    queue 3 of 10" in told(other), "that is all there is to say"
    assert explanation.shape(other)["lines"][0]["note"] is None


def test_who_has_ended_is_before_nobody_and_who_runs_waits_for_nothing() -> None:
    state, jobs = cluster()
    state.put_job(state.jobs[jobs[0]].to(JobState.ENDING, NOW).to(JobState.CANCELLED, NOW))
    assert [it.before for it in explained(state, jobs[1]).lines] == [0]
    assert [it.before for it in explained(state, jobs[2]).lines] == [0, 1]
    for run in list(state.members(jobs[1])):
        starting = run.to(RunState.STARTING, NOW)
        state.put_run(replace(starting, instance=InstanceId("i-1"), target=InstanceId("i-1")))
    assert not explained(state, jobs[1]).lines


def test_the_newest_round_tells_why_instances_stay() -> None:
    state, _ = cluster()
    gone = replace(state.instances[InstanceId("i-1")], pool="")
    pools = explain.standing(model_of(state))
    assert [(it.name, it.reason, list(it.instances)) for it in pools] == [
        ("small", "two are kept", ["i-1", "i-2"])
    ]
    message = pb.Explanation(kind="round", round=4, now_ms=NOW, pools=pools)
    assert "pool small (i-1, i-2): two are kept" in told(message)
    state.put_instance(gone)
    assert [list(it.instances) for it in explain.standing(model_of(state))] == [["i-2"]]


def test_pools_are_told_unless_a_job_is_named_so() -> None:
    state, _ = cluster()
    archive: Any = SimpleNamespace(
        records_of_instances=lambda names: {}, job=lambda job: None, newest_named=lambda *_: None
    )
    found = explain.find(model_of(state), archive, "ada", "pools", NOW)
    assert isinstance(found, explain.Subject)
    assert found.kind == "pools"
    pools = explain.standing(model_of(state))
    message = pb.Explanation(kind="pools", subject="pools", now_ms=NOW, pools=pools)
    assert told(message) == ["pool small (i-1, i-2): two are kept"]
    assert told(pb.Explanation(kind="pools", now_ms=NOW)) == ["no instance stands in a pool"]
    job = add_job(state, spec("pools"))
    found = explain.find(model_of(state), archive, "ada", "pools", NOW)
    assert isinstance(found, explain.Subject)
    assert (found.kind, found.name) == ("job", job)
