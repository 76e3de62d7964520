"""`after` in job files: what may stand there, and the order of several files."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec
from eva_master.model.resources import Resources
from eva_wire.jobfile import check_job, in_order, predecessors_of
from eva_wire.values.errors import InvalidJob, Problem
from eva_wire.values.ids import Family, JobId, Price

CATALOG = (Offering(InstanceType("c.8", Family("c"), Resources(0, 8000, 16384)), Price(1)),)


def text(name: str, *after: str) -> str:
    listed = f"after: [{', '.join(after)}]\n" if after else ""
    return f"name: {name}\nrun: x\nresources: {{cpus: 1, memory: 1GiB}}\n{listed}"


def parsed(yaml: str, **known: str) -> JobSpec:
    def find(references: Sequence[str]) -> dict[str, JobId]:
        return {one: JobId(known[one]) for one in references if one in known}

    return parse_job(
        yaml, file_name="job.yaml", owner="ana", catalog=CATALOG, workdir=None, find=find
    )


def problem_of(yaml: str) -> Problem:
    with pytest.raises(InvalidJob) as caught:
        parsed(yaml)
    (problem,) = caught.value.problems
    return problem


def ordered(**files: tuple[str, ...]) -> list[str]:
    names = list(files)
    found = [
        predecessors_of(text(name, *after), file_name=f"{name}.yaml")
        for name, after in files.items()
    ]
    return [names[number] for number in in_order(found)]


def test_references_become_ids_each_once() -> None:
    spec = parsed(text("c", "a", "b-2", "a-1"), **{"a": "a-1", "b-2": "b-2", "a-1": "a-1"})
    assert spec.stage.depends_on == ("a-1", "b-2")


def test_without_anybody_who_finds_jobs_they_are_left_out() -> None:
    spec = parse_job(
        text("c", "a"), file_name="job.yaml", owner="ana", catalog=CATALOG, workdir=None
    )
    assert spec.stage.depends_on == ()


def test_a_job_that_there_is_not_is_told_with_its_place() -> None:
    with pytest.raises(InvalidJob) as caught:
        parsed(text("c", "a", "b", "d"), a="a-1")
    assert [(it.key, it.line, it.column) for it in caught.value.problems] == [
        ("after[1]", 4, 12),
        ("after[2]", 4, 15),
    ]
    assert caught.value.problems[0].message == "you have no job 'b'"


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        ("a", "after", "must be a list"),
        ("7", "after", "must be a list"),
        ("{a: b}", "after", "must be a list"),
        ("null", "after", "must be a list"),
        ("[7]", "after[0]", "must be text"),
        ("[[a]]", "after[0]", "must be text"),
        ("[null]", "after[0]", "must be text"),
        ("['']", "after[0]", "'' cannot be a job"),
        ("['a b']", "after[0]", "'a b' cannot be a job"),
        ("['a/0']", "after[0]", "'a/0' cannot be a job"),
        (f"[{'a' * 101}]", "after[0]", "cannot be a job"),
        ("[b, me]", "after[1]", "a job cannot run after itself"),
    ],
)
def test_what_is_no_list_of_jobs_is_refused_with_line_and_key(
    value: str, key: str, message: str
) -> None:
    yaml = text("me") + f"after: {value}\n"
    with pytest.raises(InvalidJob) as caught:
        check_job(yaml, file_name="job.yaml")
    (problem,) = caught.value.problems
    assert (problem.key, problem.line) == (key, 4)
    assert message in problem.message


def test_a_job_names_a_thousand_others_at_most() -> None:
    names = [f"j{number}" for number in range(1_001)]
    check_job(text("me", *names[:1_000]), file_name="job.yaml")
    assert problem_of(text("me", *names)).key == "after"


def test_itself_goes_by_the_name_that_it_is_given() -> None:
    with pytest.raises(InvalidJob, match="cannot run after itself"):
        check_job(text("me", "other"), file_name="job.yaml", name="other")
    check_job(text("me", "me"), file_name="job.yaml", name="other")


def test_files_come_after_those_that_they_name_and_else_as_given() -> None:
    assert ordered(c=("b", "x-7"), d=(), b=("a",), a=()) == ["a", "b", "c", "d"]
    assert ordered(c=(), b=(), a=("b",)) == ["c", "b", "a"]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_without_a_circle_is_found(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"j{number}" for number in range(30)]
    wanted = {
        name: tuple(rng.sample(names[:place], min(place, rng.randrange(4))))
        for place, name in enumerate(names)
    }
    shuffled = {name: wanted[name] for name in rng.sample(names, len(names))}
    found = ordered(**shuffled)
    assert sorted(found) == sorted(names)
    assert all(found.index(one) < found.index(name) for name in names for one in wanted[name])


def test_a_circle_is_spelt_out_where_it_closes() -> None:
    with pytest.raises(InvalidJob) as caught:
        ordered(z=("a",), a=("b",), b=("c",), c=("x-1", "a"))
    (problem,) = caught.value.problems
    assert (
        problem.message == "these jobs wait for each other in a circle: a after b after c after a"
    )
    assert (problem.key, problem.line) == ("after[1]", 4)
    assert caught.value.message.startswith("c.yaml:4:")


def test_a_circle_of_two_and_one_of_very_many() -> None:
    with pytest.raises(InvalidJob, match="a after b after a"):
        ordered(a=("b",), b=("a",))
    circle = {f"j{n}": (f"j{(n + 1) % 2000}",) for n in range(2_000)}
    with pytest.raises(InvalidJob, match=r"j4 after \(1991 more\) after j1996"):
        ordered(**circle)


def test_a_name_that_stands_for_two_files_is_refused_where_it_is_used() -> None:
    files = [
        predecessors_of(text(name, *after), file_name=file)
        for file, name, after in (("1", "a", ()), ("2", "a", ()), ("3", "b", ("a",)))
    ]
    assert in_order(files[:2]) == [0, 1]
    with pytest.raises(InvalidJob) as caught:
        in_order(files)
    assert caught.value.problems[0].message == "2 of the files are named 'a'"


# -- dag -------------------------------------------------------------------------------------------


def test_a_stage_has_the_label_of_its_dag() -> None:
    assert parsed(text("a") + "dag: nightly run\n").stage.dag == "nightly run"
    assert parsed(text("a")).stage.dag == ""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("''", "must not be empty"),
        ('"two\\nlines"', "must be one line of printable text"),
        ('"\\e[31m"', "must be one line of printable text"),
        ("[a]", "must be text"),
        ("7", "must be text"),
        ("x" * 201, "200"),
    ],
)
def test_what_cannot_be_a_label_is_refused_with_line_and_key(value: str, message: str) -> None:
    problem = problem_of(text("a") + f"dag: {value}\n")
    assert (problem.key, problem.line) == ("dag", 4)
    assert message in problem.message


def test_the_guide_to_dags_has_jobs_that_are_accepted_and_hang_together() -> None:
    page = (Path(__file__).parents[3] / "docs" / "howto" / "dags.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    specs = [parsed(block, load="load-1") for block in blocks]
    assert [(it.name, it.stage.dag, it.stage.depends_on) for it in specs] == [
        ("load", "nightly", ()),
        ("train", "nightly", ("load-1",)),
    ]
