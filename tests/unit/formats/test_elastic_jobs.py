"""`tasks: {least, most}` and `split_batch` in job files: what gangs alone have."""

from __future__ import annotations

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.model.job import JobSpec, ParameterServers
from eva_wire.values.errors import InvalidJob
from tests.fakes.examples import EXAMPLES
from tests.fakes.jobs import CATALOG

HEAD = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"


def parse(text: str) -> JobSpec:
    return parse_job(text, file_name="j.yaml", owner="me", catalog=CATALOG, workdir=None)


def test_the_job_has_as_many_tasks_as_may_run() -> None:
    spec = parse(HEAD + "tasks: {least: 2, most: 5, throughput: {5: 7.5, 2: 4}}\n")
    assert (spec.elastic.least, len(spec.tasks)) == (2, 5)
    assert spec.elastic.scaling == ((2, 4_000_000), (5, 7_500_000))
    assert len(set(map(id, spec.tasks))) == 1


def test_rates_apart_are_those_together_unless_stated() -> None:
    stated = (
        "tasks: {least: 1, most: 4, throughput: {1: 2, 4: 8}, throughput_apart: {1: 2, 4: 5}}\n"
    )
    spec = parse(HEAD + stated)
    assert spec.elastic.scaling_apart == ((1, 2_000_000), (4, 5_000_000))
    assert (
        parse(HEAD + "tasks: {least: 1, most: 4, throughput: {4: 8}}\n").elastic.scaling_apart == ()
    )


def test_parameter_servers() -> None:
    spec = parse(HEAD + "ps: {minibatch: 90s, update: 38ms, gradient: 300MiB}\n")
    assert spec.training.ps == ParameterServers(90_000_000, 38_000, 300 << 20)
    assert parse(HEAD).training.ps is None


@pytest.mark.parametrize(
    ("ps", "where"),
    [
        ("{gradient: 300MiB}", "ps.minibatch"),
        ("{minibatch: 90s}", "ps.gradient"),
        ("{minibatch: -1s, gradient: 1MiB}", "ps.minibatch"),
        ("{minibatch: 1s, gradient: 300}", "ps.gradient"),
        ("{minibatch: 1s, gradient: 1MiB, servers: 2}", "ps.servers"),
    ],
)
def test_parameter_servers_that_are_wrong(ps: str, where: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        parse(f"{HEAD}ps: {ps}\n")
    assert where in str(refusal.value)


def test_bounds_that_are_the_same_make_a_gang_like_any_other() -> None:
    spec = parse(HEAD + "tasks: {least: 3, most: 3}\n")
    assert (spec.elastic.least, len(spec.tasks)) == (None, 3)


def test_a_gang_divides_its_batches_if_it_says_so() -> None:
    assert not parse(HEAD + "tasks: 3\n").training.split_batch
    assert parse(HEAD + "tasks: 3\nsplit_batch: true\n").training.split_batch
    assert parse(HEAD + "tasks: {least: 1, most: 4}\nsplit_batch: true\n").training.split_batch
    assert parse((EXAMPLES / "split_batch" / "job.yaml").read_text()).training.split_batch
    plain = parse(HEAD + "tasks: 3\nsplit_batch: false\n")
    assert plain == parse(HEAD + "tasks: 3\n")


def test_one_task_has_nobody_to_divide_a_batch_with() -> None:
    assert parse(HEAD + "split_batch: true\n") == parse(HEAD)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("split_batch: true\nkind: array", "no batch in common"),
        ("split_batch: half", "split_batch"),
    ],
)
def test_what_cannot_be_divided_is_refused_with_its_place(line: str, what: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        parse(f"{HEAD}tasks: 2\n{line}\n")
    assert "j.yaml:5" in str(refusal.value)
    assert what in str(refusal.value)


def test_the_example_is_elastic() -> None:
    spec = parse((EXAMPLES / "ring_digits" / "elastic.yaml").read_text())
    assert (spec.elastic.least, len(spec.tasks)) == (1, 4)


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
        (
            "{least: 2, most: 4, throughput_apart: {5: 1}}",
            "tasks.throughput_apart.5",
            "never has 5 members",
        ),
        (
            "[{name: a, least: 1, most: 4}, {name: b}]",
            "tasks[0]",
            "an elastic gang has equal tasks",
        ),
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


def test_a_gang_may_say_that_it_spans_zones() -> None:
    assert parse(HEAD + "tasks: 2\nzones: any\n").spans_zones
    assert not parse(HEAD + "tasks: 2\nzones: same\n").spans_zones
    assert not parse(HEAD + "tasks: 2\n").spans_zones


@pytest.mark.parametrize("keys", ["kind: array\ntasks: 2", "forks: 2"])
def test_only_gangs_have_a_say_in_zones(keys: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        parse(HEAD + f"{keys}\nzones: same\n")
    problem = next(item for item in caught.value.problems if item.key == "zones")
    assert "only the tasks of a gang belong together" in problem.message
