"""`tasks: {least, most}` in job files."""

from __future__ import annotations

import pytest

from eva_master.adapters.jobfile import parse_job
from eva_master.model.errors import InvalidJob
from eva_master.model.job import JobSpec
from tests.fakes.examples import EXAMPLES
from tests.fakes.jobs import CATALOG

HEAD = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"


def parse(text: str) -> JobSpec:
    return parse_job(text, file_name="j.yaml", owner="me", catalog=CATALOG, workdir=None)


def test_the_job_has_as_many_tasks_as_may_run() -> None:
    spec = parse(HEAD + "tasks: {least: 2, most: 5, throughput: {5: 7.5, 2: 4}}\n")
    assert (spec.least, len(spec.tasks)) == (2, 5)
    assert spec.scaling == ((2, 4_000_000), (5, 7_500_000))
    assert len(set(map(id, spec.tasks))) == 1


def test_bounds_that_are_the_same_make_a_gang_like_any_other() -> None:
    spec = parse(HEAD + "tasks: {least: 3, most: 3}\n")
    assert (spec.least, len(spec.tasks)) == (None, 3)


def test_the_example_is_elastic() -> None:
    spec = parse((EXAMPLES / "ring_digits" / "elastic.yaml").read_text())
    assert (spec.least, len(spec.tasks)) == (1, 4)


@pytest.mark.parametrize(
    ("tasks", "where", "what"),
    [
        ("{least: 5, most: 4}", "j.yaml:4:9: tasks.least", "cannot be at most 4"),
        ("{least: 0, most: 4}", "j.yaml:4:9: tasks.least", "must be 1 or more"),
        ("{least: -1, most: 4}", "j.yaml:4:9: tasks.least", "must be 1 or more"),
        ("{most: 4}", "j.yaml:4:1: tasks.least", "missing"),
        ("{least: 2}", "j.yaml:4:1: tasks.most", "missing"),
        ("{least: 1.5, most: 4}", "j.yaml:4:9: tasks.least", "whole number"),
        ("{least: 1, most: '4'}", "j.yaml:4:19: tasks.most", "whole number"),
        ("{least: 1, most: 1001}", "j.yaml:4:19: tasks.most", "1000"),
        ("{least: 1, most: 4, often: 2}", "j.yaml:4:28: tasks.often", "unknown key"),
        ("{least: 2, most: 4, throughput: {1: 1}}", "tasks.throughput.1", "never has 1 members"),
        ("{least: 2, most: 4, throughput: {2: 0}}", "tasks.throughput", "greater than 0"),
        ("{least: 2, most: 4}\nkind: array", "j.yaml:4:1: tasks", "do not wait for each other"),
        ("{least: 2, most: 4}\nconcurrency: 2", "j.yaml:5:1: concurrency", "cannot be limited"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_place(
    tasks: str, where: str, what: str
) -> None:
    with pytest.raises(InvalidJob) as refusal:
        parse(f"{HEAD}tasks: {tasks}\n")
    assert where in str(refusal.value)
    assert what in str(refusal.value)
