"""Jobs that run after others have ended, whatever became of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.resolving.predecessors import Several
from eva_master.control.state.store import State
from eva_master.model.events import CancelRequested, JobSubmitted
from eva_master.model.job import JobSpec, JobStage
from eva_master.model.records import Ended, Outcome
from eva_wire.jobfile import predecessors_of
from eva_wire.jobfile.reading import job_schema
from eva_wire.values.errors import InvalidJob
from eva_wire.values.ids import JobId
from tests.fakes.hand_driven import CATALOG, JOB, SLOW, Cluster, Phase

FIRST, NEXT = JobId("job-1"), JobId("next-2")
KNOWN = {"prepare": JobId("prepare-7"), "prepare-7": JobId("prepare-7"), "sweep": JobId("sweep-9")}


def find(references: Sequence[str]) -> Mapping[str, JobId | Several]:
    return {one: KNOWN[one] for one in references if one in KNOWN}


def parsed(after: str) -> JobSpec:
    return parse_job(
        f"{JOB}after: {after}\n",
        file_name="j",
        owner="me",
        catalog=CATALOG,
        workdir=None,
        name="next",
        find=find,
    )


def waiting(only_ended: bool) -> Cluster:
    """A job runs, and another one waits for it."""
    cluster = Cluster()
    cluster.start(JOB + "retries: 0\n", on=SLOW)
    spec = parsed("[]")
    ended = (FIRST,) if only_ended else ()
    follower = JobSpec(
        "next", "me", spec.tasks, stage=JobStage(depends_on=(FIRST,), only_ended=ended)
    )
    cluster.handle(JobSubmitted("next", follower), at=0)
    return cluster


def fail(cluster: Cluster) -> None:
    cluster.say(f"{FIRST}/0", Phase.EXITED, at=60_000, exit_code=3)  # type: ignore[arg-type]


def test_a_failed_job_releases_those_that_wait_for_its_end() -> None:
    cluster = waiting(only_ended=True)
    assert cluster.state.jobs[NEXT].waits
    fail(cluster)
    assert cluster.state.jobs[FIRST].state == "failed"
    follower = cluster.state.jobs[NEXT]
    assert (follower.state, follower.released_ms, follower.unmet) == ("pending", 60_000, None)


def test_a_failed_job_takes_along_those_that_wait_for_its_success() -> None:
    cluster = waiting(only_ended=False)
    fail(cluster)
    assert cluster.state.jobs[NEXT].state == "failed"


def test_a_cancelled_job_has_ended() -> None:
    cluster = waiting(only_ended=True)
    cluster.handle(CancelRequested("stop", FIRST, "me"), at=1_000)
    cluster.say(f"{FIRST}/0", Phase.EXITED, at=2_000, exit_code=143)  # type: ignore[arg-type]
    assert cluster.state.jobs[FIRST].state == "cancelled"
    assert cluster.state.jobs[NEXT].released_ms == 2_000


def test_a_job_that_failed_before_the_submission_or_the_restart_has_ended() -> None:
    cluster = Cluster()
    cluster.start(JOB + "retries: 0\n", on=SLOW)
    fail(cluster)
    tasks = parsed("[]").tasks
    spec = JobSpec("next", "me", tasks, stage=JobStage(depends_on=(FIRST,), only_ended=(FIRST,)))
    again = Cluster(State.restored(CATALOG, cluster.machine.take_changes()))
    again.handle(JobSubmitted("next", spec), at=70_000)
    assert again.state.jobs[NEXT].released_ms == 70_000
    # The control loop has forgotten this one, and the caller knows of its end.
    gone = JobId("gone-1")
    late = JobSpec("late", "me", tasks, stage=JobStage(depends_on=(gone,), only_ended=(gone,)))
    again.handle(JobSubmitted("late", late, (Ended(gone, Outcome.FAILED, gone),)), at=70_000)
    assert again.state.jobs[JobId("late-3")].released_ms == 70_000


@pytest.mark.parametrize(
    ("after", "depends_on", "only_ended"),
    [
        ("[prepare, {job: sweep, when: ended}]", ("prepare-7", "sweep-9"), ("sweep-9",)),
        ("[{job: prepare}, {job: sweep, when: succeeded}]", ("prepare-7", "sweep-9"), ()),
        ("[{job: sweep, when: ended}, {job: sweep, when: ended}]", ("sweep-9",), ("sweep-9",)),
    ],
)
def test_files_say_for_what_a_job_waits(
    after: str, depends_on: tuple[str, ...], only_ended: tuple[str, ...]
) -> None:
    spec = parsed(after)
    assert (spec.stage.depends_on, spec.stage.only_ended) == (depends_on, only_ended)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ("[prepare, {job: prepare-7, when: ended}]", "is only to have ended"),
        ("[{job: prepare, when: ended}, {job: prepare}]", "is only to have ended"),
        ("[{job: nothing, when: ended}]", "you have no job 'nothing'"),
        ("[{job: next, when: ended}]", "cannot run after itself"),
        ("[{job: prepare, when: later}]", "ended"),
        ("[{when: ended}]", "job"),
    ],
)
def test_what_cannot_be_meant_is_refused(after: str, words: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        parsed(after)
    assert words in str(refused.value.problems)


def test_files_of_one_submission_are_ordered_by_both_forms() -> None:
    text = f"name: report\n{JOB}after: [a, {{job: b, when: ended}}]\n"
    assert list(predecessors_of(text).problems) == ["a", "b"]


def test_the_schema_has_both_forms() -> None:
    items = job_schema()["properties"]["after"]["items"]
    assert {"string"} == {it["type"] for it in items["oneOf"] if "type" in it}
    assert any("$ref" in it for it in items["oneOf"])
