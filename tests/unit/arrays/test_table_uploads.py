"""The blobs that a job needs, and names of the tasks of tables."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.job import ArrayRules, Build, Retry, TaskTable
from eva_wire.values.ids import JobId
from tests.fakes.jobs import job, task


def test_a_job_names_its_lists_of_files_and_its_table() -> None:
    with_files = replace(
        task(1), program=replace(task(1).program, workdir="me/w", build=Build("me/b"))
    )
    plain = replace(job("a", array=True), tasks=(with_files,) * 3 + (task(1),))
    assert plain.uploads == {"me/w", "me/b"}
    assert replace(plain, array=ArrayRules(table=TaskTable("me/t"))).uploads == {
        "me/w",
        "me/b",
        "me/t",
    }
    assert job("b").uploads == frozenset()


def test_a_retry_knows_the_tasks_that_it_does_alone_by_name() -> None:
    table = ArrayRules(table=TaskTable("me/t", "a\nb\nc"))
    array = replace(job("a", array=True), tasks=(task(1),) * 3, array=table)
    assert [array.index_of(name) for name in ("a", "c", "d", "")] == [0, 2, None, None]
    retry = replace(array, retry=Retry(JobId("a-1"), (2,)))
    assert [retry.index_of(name) for name in ("a", "c")] == [None, 2]
    assert job("b").index_of("b") is None
