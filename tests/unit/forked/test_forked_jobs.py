"""`forks` and `merge` in job files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.store import codec, task_specs
from eva_master.model.forks.merging import AssignedSteps, GivenWeights, MergeRule, Merging
from eva_master.model.job import JobSpec
from eva_master.model.records import Job
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidJob
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from tests.fakes.jobs import CATALOG

HEAD = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"


def parse(text: str) -> JobSpec:
    return parse_job(text, file_name="j.yaml", owner="me", catalog=CATALOG, workdir=None)


def test_a_forked_job_is_an_array_of_one_task_inside() -> None:
    spec = parse(HEAD + "forks: 5\ntotal_steps: 100\n")
    assert (spec.forking.forks, spec.kind, len(spec.tasks)) == (5, JobKind.ARRAY, 1)
    assert spec.forking.merge == MergeRule(60_000, "", 20_000, larger=False)


def test_a_job_with_one_fork_is_like_any_other() -> None:
    assert parse(HEAD + "forks: 1\n") == parse(HEAD)


@pytest.mark.parametrize(
    ("merge", "rule"),
    [
        ("{every: 90s, check: loss, tolerance: 0.1}", MergeRule(90_000, "loss", 100_000)),
        ("{check: accuracy/top1}", MergeRule(check="accuracy/top1", larger=True)),
        ("{check: val_acc}", MergeRule(check="val_acc", larger=True)),
        ("{check: bleu, better: larger}", MergeRule(check="bleu", larger=True)),
        ("{check: accuracy, better: smaller}", MergeRule(check="accuracy")),
    ],
)
def test_merges_are_judged_as_the_file_says(merge: str, rule: MergeRule) -> None:
    assert parse(f"{HEAD}forks: 2\ntotal_steps: 9\nmerge: {merge}\n").forking.merge == rule


@pytest.mark.parametrize(
    ("lines", "where", "what", "hint"),
    [
        ("forks: 0", "j.yaml:4:1: forks", "must be 1 or more", ""),
        ("forks: 65", "j.yaml:4:1: forks", "must be 64 or less", ""),
        ("forks: 2", "j.yaml:4:1: forks", "none are stated", "write `total_steps`"),
        ("merge: {every: 1m}", "j.yaml:4:1: merge", "the job has none", "write `forks: 2`"),
        (
            "forks: 2\ntotal_steps: 9\nkind: array",
            "j.yaml:4:1: forks",
            "tasks of an array train nothing together",
            "write `kind: gang`",
        ),
        ("forks: 2\ntotal_steps: 9\ntasks: 2", "j.yaml:4:1: forks", "gang of several", "tasks: 1"),
        (
            "forks: 2\ntotal_steps: 9\nreports_steps: false",
            "j.yaml:4:1: forks",
            "the program reports none",
            "remove it",
        ),
        ("forks: 2\ntotal_steps: 9\nmerge: {every: 5}", "merge.every", "needs a unit", "write 5s"),
        ("forks: 2\ntotal_steps: 9\nmerge: {every: 10ms}", "merge.every", "1000", ""),
        ("forks: 2\ntotal_steps: 9\nmerge: {tolerance: -1}", "merge.tolerance", "0 or more", ""),
        ("forks: 2\ntotal_steps: 9\nmerge: {often: 1}", "merge.often", "unknown key", ""),
    ],
)
def test_a_mistake_is_told_with_its_line(lines: str, where: str, what: str, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        parse(f"{HEAD}{lines}\n")
    (problem,) = caught.value.problems
    place = f"{caught.value}"
    assert where in place or where == problem.where, place
    assert what in problem.message
    assert hint in (problem.hint or "")


def _read_back(job: Job, *, older: bool = False) -> Job:
    record = json.loads(codec.JOBS.encode(job))
    if older:
        del record["merging"]
    stored = codec.StoredSpec(codec.SPECS.encode(job.spec), task_specs.encode(job.spec.tasks))
    (found,) = codec.jobs([(json.dumps(record), stored)])
    return found


def test_the_journal_has_the_epoch_that_is_under_way() -> None:
    spec = parse(HEAD + "forks: 3\ntotal_steps: 100\nmerge: {check: loss}\n")
    merging = Merging(
        merged=4,
        steps=40,
        since_ms=Millis(7),
        shares=(AssignedSteps(0, 2, 30),),
        parts=(GivenWeights(2, 1, 30, "d"),),
        told_to_give=True,
        missed=((1, 1),),
        left_out=((1, "NaN"),),
    )
    history = ((JobState.PENDING.value, 0),)
    job = Job(JobId("a-1"), spec, Millis(0), history, merging=merging)
    assert _read_back(job) == job


def test_older_journals_have_no_forks() -> None:
    history = ((JobState.PENDING.value, 0),)
    job = Job(JobId("a-1"), parse(HEAD), Millis(0), history)
    assert _read_back(job, older=True) == job


def test_a_job_that_was_written_down_before_there_was_a_last_round_is_read() -> None:
    job = Job(JobId("a-1"), parse(HEAD + "forks: 3\ntotal_steps: 100\n"), Millis(1), ())
    job = replace(job, merging=Merging(merged=4, steps=50))
    record = json.loads(codec.JOBS.encode(job))
    record["merging"].pop("last", None)
    stored = codec.StoredSpec(codec.SPECS.encode(job.spec), task_specs.encode(job.spec.tasks))
    (found,) = codec.jobs([(json.dumps(record), stored)])
    assert (found.merging, found.spec.forking.merge) == (job.merging, job.spec.forking.merge)
