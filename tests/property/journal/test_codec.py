"""Records survive being written as JSON, exactly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eva_master.adapters.store import codec, task_specs
from eva_master.model.catalog import Gpu
from eva_master.model.progress import Progress
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.errors import StorageError
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from tests.fakes.jobs import MEDIUM, job


# By repr, since a diverged loss is NaN and NaN equals nothing.
@settings(deadline=None, max_examples=12)
@given(st.lists(st.from_type(Job), max_size=2))
def test_jobs_come_back_exactly(jobs: list[Job]) -> None:
    documents = [
        (
            codec.JOBS.encode(job),
            codec.StoredSpec(codec.SPECS.encode(job.spec), task_specs.encode(job.spec.tasks)),
        )
        for job in jobs
    ]
    assert repr(codec.jobs(documents)) == repr(jobs)


def test_values_that_a_job_does_not_state_are_left_out() -> None:
    spec = job("a", 1, dag="nightly", forks=3)
    assert json.loads(codec.SPECS.encode(spec)) == {
        "name": "a",
        "owner": "me",
        "duration_ms": 600_000,
        "stage": {"dag": "nightly"},
        "forking": {"forks": 3},
    }


def test_task_runs_that_divide_no_batches_are_written_as_before() -> None:
    run = TaskRun(RunId("a-1/0"), JobId("a-1"), 0, (("waiting", 1),))
    assert "batch_ppm" not in codec.RUNS.encode(run)
    # This one is written with all of its fields.
    heard = replace(run, progress=Progress(at_ms=Millis(5)))
    assert '"why":""' in codec.RUNS.encode(heard)
    assert "batch_ppm" not in codec.RUNS.encode(heard)
    assert codec.RUNS.decode([codec.RUNS.encode(replace(heard, batch_ppm=7))])[0].batch_ppm == 7


@settings(deadline=None)
@given(st.lists(st.from_type(TaskRun), max_size=3))
def test_copies_come_back_exactly(runs: list[TaskRun]) -> None:
    documents = [codec.RUNS.encode(run) for run in runs]
    assert repr(codec.RUNS.decode(documents)) == repr(runs)


@settings(deadline=None)
@given(st.lists(st.from_type(Instance), max_size=3))
def test_instances_come_back_exactly(instances: list[Instance]) -> None:
    documents = [codec.INSTANCES.encode(instance) for instance in instances]
    assert repr(codec.INSTANCES.decode(documents)) == repr(instances)


def test_instances_of_which_no_bus_is_stated_are_written_as_before() -> None:
    instance = Instance(InstanceId("i-1"), MEDIUM, (("launching", 1),), Millis(1))
    document = codec.INSTANCES.encode(instance)
    assert '"gpu":' not in document
    machine = replace(MEDIUM.type, gpu=Gpu(125_000, 16, 4))
    stated = replace(instance, offering=replace(MEDIUM, type=machine))
    assert codec.INSTANCES.decode([codec.INSTANCES.encode(stated), document]) == [stated, instance]
    capacity = replace(machine.capacity, disk_mib=5 * 1_024)
    sized = replace(machine, capacity=capacity, sized_disk=True)
    with_disk = replace(instance, offering=replace(MEDIUM, type=sized))
    assert codec.INSTANCES.decode([codec.INSTANCES.encode(with_disk)]) == [with_disk]


@settings(deadline=None)
@given(st.from_type(TaskRun))
def test_documents_are_json_that_any_database_reads(run: TaskRun) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads(codec.RUNS.encode(run), parse_constant=refuse)
    assert document["id"] == run.id


@settings(deadline=None, max_examples=10)
@given(st.from_type(Job))
def test_the_spec_is_no_part_of_a_job_s_own_document(job: Job) -> None:
    assert "spec" not in json.loads(codec.JOBS.encode(job))


@pytest.mark.parametrize("document", ["{}", "not JSON", '{"id":"a","job":"b","index":"x"}'])
def test_damage_is_told(document: str) -> None:
    with pytest.raises(StorageError, match="damaged record") as caught:
        codec.RUNS.decode([document])
    assert "backup" in caught.value.hint
