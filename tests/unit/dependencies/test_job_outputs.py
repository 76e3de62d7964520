"""Inputs that are the outputs of other jobs, in job files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.resolving.predecessors import Several
from eva_master.adapters.store import task_specs
from eva_master.model.job import JobOutputs, JobSpec, Retry
from eva_wire.jobfile import check_job, in_order, predecessors_of
from eva_wire.values.errors import InvalidJob, Problem
from eva_wire.values.ids import JobId
from tests.unit.dependencies.test_job_after import CATALOG

BASE = "name: me\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"


def parsed(yaml: str) -> JobSpec:
    return parse_job(yaml, file_name="j.yaml", owner="ana", catalog=CATALOG, workdir=None)


def other(more: str = "") -> JobSpec:
    return parsed(f"{BASE}{more}\n")


JOBS = {
    "prep-1": other(),
    "sweep-2": other("kind: array\ntasks: 3"),
    "lone-3": other("kind: array\ntasks: 1"),
    "gang-4": other("tasks: 2"),
    "fork-5": other("forks: 2\ntotal_steps: 100"),
    "named-6": other("kind: array\ntasks: [{name: small}, {name: large}]"),
    "elastic-7": other("tasks: {least: 1, most: 4}"),
    "retry-8": replace(other("kind: array\ntasks: 3"), retry=Retry(JobId("sweep-2"), (1,), ())),
}
NAMES = {JobId(job).rpartition("-")[0]: JobId(job) for job in JOBS} | {
    job: JobId(job) for job in JOBS
}


def reading(*inputs: str, more: str = "") -> JobSpec:
    listed = ", ".join(f"i{at}: {text}" for at, text in enumerate(inputs))
    return parse_job(
        f"{BASE}storage: {{inputs: {{{listed}}}}}\n{more}",
        file_name="job.yaml",
        owner="ana",
        catalog=CATALOG,
        workdir=None,
        find=find,
        spec_of=JOBS.get,  # type: ignore[arg-type]
    )


def find(references: Sequence[str]) -> dict[str, JobId | Several]:
    known = NAMES | {"coming": JobId(""), "twice": Several([JobId("t-9"), JobId("t-8")])}
    return {one: known[one] for one in references if one in known}


def problems(*inputs: str, more: str = "") -> tuple[Problem, ...]:
    with pytest.raises(InvalidJob) as caught:
        reading(*inputs, more=more)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("job:prep/outputs", JobOutputs("i0", JobId("prep-1"))),
        ("job:prep-1/outputs/", JobOutputs("i0", JobId("prep-1"))),
        ("job:prep/outputs/a/b.txt", JobOutputs("i0", JobId("prep-1"), path="a/b.txt")),
        ("job:prep/outputs/outputs/", JobOutputs("i0", JobId("prep-1"), path="outputs")),
        ("job:prep/0/outputs", JobOutputs("i0", JobId("prep-1"))),
        ("job:sweep/outputs", JobOutputs("i0", JobId("sweep-2"), tasks=3)),
        ("job:sweep/outputs/x", JobOutputs("i0", JobId("sweep-2"), tasks=3, path="x")),
        ("job:sweep/2/outputs/x", JobOutputs("i0", JobId("sweep-2"), index=2, path="x")),
        ("job:lone/outputs", JobOutputs("i0", JobId("lone-3"), tasks=1)),
        ("job:gang/outputs", JobOutputs("i0", JobId("gang-4"), tasks=2)),
        ("job:fork/outputs", JobOutputs("i0", JobId("fork-5"))),
        ("job:named/large/outputs", JobOutputs("i0", JobId("named-6"), index=1)),
        ("job:elastic/outputs", JobOutputs("i0", JobId("elastic-7"), tasks=4)),
    ],
)
def test_outputs_are_those_of_the_job_each_task_of_several_in_its_directory(
    text: str, meant: JobOutputs
) -> None:
    spec = reading(text)
    (task,) = spec.tasks
    assert task.program.outputs == (meant,)
    assert task.program.inputs == ()
    assert spec.stage.depends_on == (meant.job,)


def test_other_inputs_stay_urls_and_all_tasks_have_both() -> None:
    spec = reading("job:prep/outputs", "s3://bkt/x", "job:gang/1/outputs", more="tasks: 2\n")
    for task in spec.tasks:
        assert task.program.inputs == (("i1", "s3://bkt/x"),)
        assert [it.name for it in task.program.outputs] == ["i0", "i2"]


def test_a_job_whose_outputs_are_read_is_waited_for_once() -> None:
    spec = reading("job:prep/outputs", "job:prep-1/outputs/x", more="after: [gang, prep-1]\n")
    assert spec.stage.depends_on == ("gang-4", "prep-1")


def test_outputs_come_back_from_the_journal_and_a_journal_without_any_is_read() -> None:
    spec = reading("job:sweep/outputs/x", "job:prep/outputs")
    assert task_specs.decode(task_specs.encode(spec.tasks)) == spec.tasks
    before = json.loads(task_specs.encode(JOBS["prep-1"].tasks))
    for program in before["programs"]:
        del program["outputs"]
    assert task_specs.decode(json.dumps(before)) == JOBS["prep-1"].tasks


@pytest.mark.parametrize(
    "text",
    [
        "job:prep",
        "job:prep/",
        "job:/outputs",
        "job:outputs",
        "job://prep/outputs",
        "job:prep/1/2/outputs",
        "job:prep//outputs",
        "job:prep/../outputs",
        "job:../outputs",
        "job:prep/output",
        "job:prep/checkpoints",
        "job:prep/outputs/../../../other-1/0/outputs",
        "job:prep/outputs//x",
        "job:prep/outputs/./x",
        '"job:prep/outputs/a\\0b"',
        '"job:prep/outputs/a\\nb"',
        f"job:prep/outputs/{'x' * 1000}",
        "job:a?b/outputs",
    ],
)
def test_what_names_no_outputs_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        check_job(f"{BASE}storage:\n  inputs:\n    data: {text}\n", file_name="job.yaml")
    (problem,) = caught.value.problems
    assert (problem.key, problem.line) == ("storage.inputs.data", 6)
    assert "outputs" in problem.message


def test_unknown_ambiguous_and_own_jobs_and_tasks_that_are_not_there() -> None:
    (unknown,) = problems("job:nope/outputs")
    assert unknown.key == "storage.inputs.i0"
    assert unknown.message == "you have no job 'nope'"
    (ambiguous,) = problems("job:twice/outputs")
    assert "t-9, t-8" in ambiguous.message
    own = problems("job:me/outputs")
    assert "a job cannot run after itself" in {it.message for it in own}
    (beyond,) = problems("job:sweep/3/outputs")
    assert beyond.message == "job sweep-2 has no task '3': it has 3 tasks, 0 to 2"
    (left_out,) = problems("job:retry/2/outputs")
    assert left_out.message == "job retry-8 has no task '2': it does 1 of the 3 tasks of sweep-2"
    assert left_out.hint == "read job:sweep-2/2/outputs, or those of a later job"
    assert reading("job:retry/1/outputs").tasks[0].program.outputs[0].index == 1
    (unnamed,) = problems("job:named/huge/outputs")
    assert "no task 'huge'" in unnamed.message


def test_a_job_that_is_still_to_be_submitted_is_not_asked_for_its_tasks() -> None:
    assert reading("job:coming/7/outputs").tasks[0].program.outputs == ()


def test_without_a_way_to_find_jobs_they_are_left_out() -> None:
    spec = parsed(f"{BASE}storage: {{inputs: {{a: job:x/outputs, b: 's3://bkt'}}}}\n")
    assert (spec.stage.depends_on, spec.tasks[0].program.outputs) == ((), ())
    assert spec.tasks[0].program.inputs == (("b", "s3://bkt"),)


def test_jobs_that_are_read_count_among_those_that_are_waited_for() -> None:
    many = (f"job:j{number}/outputs" for number in range(1_001))
    (problem,) = problems(*many)
    assert problem.key == "storage.inputs.i1000"
    assert "1,001" in problem.message


def test_files_are_ordered_by_what_they_read() -> None:
    texts = {
        "c": "storage: {inputs: {x: job:b/outputs}}\n",
        "b": "storage: {inputs: {x: job:a/0/outputs/y, z: 's3://bkt'}}\n",
        "a": "",
    }
    files = [
        predecessors_of(BASE.replace("name: me", f"name: {name}") + more, file_name=f"{name}.yaml")
        for name, more in texts.items()
    ]
    assert [list(texts)[number] for number in in_order(files)] == ["a", "b", "c"]
    circle = predecessors_of(
        BASE.replace("name: me", "name: a") + "storage: {inputs: {x: job:c/outputs}}\n",
        file_name="a.yaml",
    )
    with pytest.raises(InvalidJob, match="in a circle") as caught:
        in_order([*files[:2], circle])
    assert caught.value.problems[0].key == "storage.inputs.x"


@pytest.mark.parametrize(
    ("tasks", "task", "there"),
    [
        ("tasks: 3", "2", True),
        ("tasks: 3", "3", False),
        ("", "0", True),
        ("", "1", False),
        ("tasks: [{name: small}, {name: large}]", "large", True),
        ("tasks: [{name: small}, {name: large}]", "huge", False),
        ("tasks: {least: 1, most: 4}", "3", True),
        ("tasks: {least: 1, most: 4}", "4", False),
    ],
)
def test_a_task_that_another_file_does_not_have_is_told_before_any_is_submitted(
    tasks: str, task: str, there: bool
) -> None:
    reader = f"{BASE}storage: {{inputs: {{x: job:a/{task}/outputs}}}}\n"
    other = BASE.replace("name: me", "name: a") + tasks
    files = [predecessors_of(text, file_name="r.yaml") for text in (reader, other)]
    if there:
        assert in_order(files) == [1, 0]
        return
    with pytest.raises(InvalidJob, match=f"job a has no task '{task}'") as caught:
        in_order(files)
    assert caught.value.problems[0].key == "storage.inputs.x"
