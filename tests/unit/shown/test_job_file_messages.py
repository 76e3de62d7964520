"""Messages about job files: own words, a hint that holds, and keys of other tools."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from eva_wire.jobfile import check_job, job_schema
from eva_wire.text.quantities import (
    parse_discount,
    parse_dollars,
    parse_dollars_per_hour,
    parse_duration,
    parse_mib,
    parse_milli_cpus,
)
from eva_wire.text.yamlfile import scalar, suggestion
from eva_wire.values.errors import InvalidJob

JOB = "name: a\nrun: 'true'\nresources: {cpus: 1, memory: 1GiB}\n"
LIBRARY = re.compile(
    r"Input should|should be|should have|Unable to|Field required|valid (?:integer|string|number|"
    r"boolean|dictionary|list|datetime)|unexpected extra|Extra inputs|Value error|pydantic|"
    r"input is too short|timezone"
)


def refused(text: str) -> InvalidJob:
    with pytest.raises(InvalidJob) as caught:
        check_job(text, file_name="j.yaml")
    return caught.value


def only(text: str) -> tuple[str, str]:
    (problem,) = refused(text).problems
    return problem.message, problem.hint


WRONG: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 1e30, float("nan"), float("inf"), 10**25),
    *("", " ", "x", "-1", "yes", "1", "é" * 300, "2026-12-01 10:00", "\x00", "1h"),
    *([], [None], [1], ["x"], [[]], [{}], {}, {"x": 1}, {"x": None}, {1: 2}, {"x": {"y": []}}),
)


def _keys(schema: dict[str, Any], place: dict[str, Any], path: tuple[str, ...] = ()) -> Any:
    """The path of every key of the schema, through references and choices."""
    if "$ref" in place:
        yield from _keys(schema, schema["$defs"][place["$ref"].rpartition("/")[2]], path)
    for choice in (*place.get("anyOf", ()), *place.get("oneOf", ())):
        yield from _keys(schema, choice, path)
    if isinstance(place.get("items"), dict):
        yield from _keys(schema, place["items"], (*path, "0"))
    if isinstance(place.get("additionalProperties"), dict):
        yield (*path, "k")
        yield from _keys(schema, place["additionalProperties"], (*path, "k"))
    for name, inner in place.get("properties", {}).items():
        yield (*path, name)
        yield from _keys(schema, inner, (*path, name))


def _with(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    inner: Any = value
    for part in reversed(path):
        inner = [inner] if part == "0" else {part: inner}
    return {"name": "a", "run": "true", **inner}


PATHS = sorted(set(_keys(job_schema(), job_schema())))


def test_the_walk_meets_nested_keys() -> None:
    assert len(PATHS) > 80
    assert {("resources", "memory"), ("deadline", "at"), ("tasks", "0", "name")} <= set(PATHS)


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_no_wrong_value_of_any_key_is_answered_in_the_words_of_a_library(
    path: tuple[str, ...],
) -> None:
    refusals = 0
    for value in WRONG:
        try:
            text = yaml.safe_dump(_with(path, value), allow_unicode=True)
            check_job(text, file_name="j.yaml")
        except InvalidJob as error:
            refusals += 1
            told = [error.message, error.hint or ""]
            told += [f"{one.message} {one.hint}" for one in error.problems]
            assert not LIBRARY.search(" ".join(told)), (path, value, told)
    assert refusals


PARSERS = {
    parse_mib: ("500KB", "100Ki", "2048K", "16GB", "3 bytes", "0.3MiB", "1.5MiB", "7", 0, 1e9, 8),
    parse_duration: (
        *(
            "0.5ms",
            "5min",
            "24:00:00",
            "1-02:00:00",
            "PT5M",
            "P1D",
            "2 hours",
            "1w",
            "1 day 2 hours",
        ),
        *("5M", "1us", "soon", "PT", 0, -3, 60, "00:00:00"),
    ),
    parse_milli_cpus: ("500m", "0.0005m", "x"),
    parse_dollars: ("5", 5, "5 USD", "$5/h", -1, "x", "0.5 dollars"),
    parse_dollars_per_hour: ("5", "$5/hour", "$5", "x"),
    parse_discount: (28, 0.28, "28", 0, 100, "x", 10),
}


@pytest.mark.parametrize(
    ("parse", "value"), [(parse, value) for parse, values in PARSERS.items() for value in values]
)
def test_what_a_hint_says_to_write_is_accepted(parse: Any, value: Any) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - any
        parse(value)
    hint = refused.value.context["hint"]  # type: ignore[attr-defined]
    for example in re.split(r", | or ", hint.removeprefix("write ")):
        assert parse(scalar(example)) > 0, hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("memory: 500KB", "write 1MiB"),
        ("memory: 500000KB", "write 489MiB"),
        ("memory: 100Ki", "write 1MiB"),
        ("memory: 0", "write 16GiB or 512MiB"),
        ("memory: 1e9", "write 16GiB or 512MiB"),
        ('cpus: "2"', "write 2, without quotes"),
        ("cpus: 250m", "write 0.25"),
    ],
)
def test_sizes_are_converted(line: str, hint: str) -> None:
    key = line.partition(":")[0]
    others = {"cpus": "memory: 1GiB", "memory": "cpus: 1"}[key]
    assert only(f"name: a\nrun: x\nresources: {{{line}, {others}}}\n")[1] == hint


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("max_duration: 0.5ms", "no whole number of milliseconds", "write 1ms"),
        ("max_duration: 5min", "not a duration", "write 5m"),
        ("max_duration: 24:00:00", "not a duration", "write 24h"),
        ("max_duration: 1-12:00:00", "not a duration", "write 36h"),
        ("deadline: 2026-12-01 10:00", "has no zone", "write 2026-12-01T10:00:00Z"),
        (
            "deadline: 2026-12-01 10:00 Europe/Berlin",
            "'Europe/Berlin' is no zone",
            "write the offset: 2026-12-01T10:00:00+01:00",
        ),
        ("deadline: 1h", "is a duration, not a time", "`deadline: {within: 1h}`"),
        ("deadline: 1767225600", "no time with a date", "write 2026-01-01T00:00:00Z"),
        ("deadline: {at: tomorrow}", "is no time", "write 2030-01-31T18:00:00Z"),
        ("deadline: 2026-13-45 10:00", "is no time", "write 2030-01-31T18:00:00Z"),
        ("after: prep", "must be a list", "write [prep]"),
        ("envs: {<<: x}", "merge keys are no part of YAML 1.2", "write its entries out"),
        ("tasks: [{name: 0.01}]", "must be text", 'quote it: "0.01"'),
        ('retries: "3"', "must be a whole number", "write 3, without quotes"),
    ],
)
def test_values_are_answered_with_what_to_write(line: str, message: str, hint: str) -> None:
    told = only(JOB + line)
    assert message in told[0]
    assert hint in told[1]


def test_names_and_commands_that_are_no_text_are_to_be_quoted() -> None:
    text = JOB.replace("name: a", "name: 123")
    assert only(text) == ("must be text", 'quote it: "123"')
    text = JOB.replace("'true'", "true")
    assert only(text) == ("must be text", 'quote it: "true"')


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("setup: pip install torch", "Eva has no `setup`: put it into `run`"),
        ("commands: [a]", "Eva has no `commands`: put it into `run`"),
        ("num_nodes: 2", "Eva has no `num_nodes`: it is `tasks`"),
        ("nodes: 2", "Eva has no `nodes`: it is `tasks`"),
        ("time: 1h", "Eva has no `time`: it is `max_duration`"),
        ("timeout: 5m", "Eva has no `timeout`: it is `max_duration`"),
        ("gpus: 1", "Eva has no `gpus`: write `resources: {gpus: 1}`"),
        ("cpus: 1", "Eva has no `cpus`: write `resources: {cpus: 4}`"),
        ("depends_on: [x]", "Eva has no `depends_on`: it is `after`"),
        ("job-name: x", "Eva has no `job-name`: it is `name`"),
        ("cpus-per-task: 4", "Eva has no `cpus-per-task`: write `resources: {cpus: 4}`"),
        ("stdout: x", "Eva has no `stdout`: the output of every task is stored"),
        ("ports: 80", "Eva has no `ports`: nothing is like it"),
        ("env: [A=1]", "Eva has no `env`: it is `envs`"),
        ("python: 3.11", "Eva has no `python`: nothing is like it"),
    ],
)
def test_keys_of_other_tools_are_translated(line: str, hint: str) -> None:
    assert only(JOB + line)[1].startswith(hint)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("accelerators: H100:8", "Eva has no `accelerators`: it is `gpus`, a number"),
        ("use_spot: true", "Eva has no `use_spot`: write `spot: allowed` at the top"),
        ("cpu: 4", "Eva has no `cpu`: it is `cpus`"),
        ("memry: 1GiB", "did you mean 'memory'?"),
    ],
)
def test_keys_of_resources_are_translated(key: str, hint: str) -> None:
    text = f"name: a\nrun: x\nresources: {{cpus: 1, memory: 1GiB, {key}}}\n"
    assert only(text)[1].startswith(hint)


def test_the_known_keys_are_listed_once() -> None:
    problems = refused(JOB + "wibble: 1\nwobble: 2\nsetup: x\n").problems
    assert [one.hint.startswith("known keys") for one in problems] == [True, False, False]
    assert problems[1].hint == ""


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("rnu", "run"),
        ("task", "tasks"),
        ("resorces", "resources"),
        ("imge", "image"),
        ("gpus", ""),
        ("time", ""),
        ("ports", ""),
        ("stdout", ""),
    ],
)
def test_only_slips_are_taken_for_keys(word: str, meant: str) -> None:
    keys = ["run", "tasks", "resources", "image", "ps", "pilots", "spot", "name"]
    assert suggestion(word, keys) == (f"did you mean {meant!r}?" if meant else "")


def test_a_command_with_a_colon_is_to_be_quoted() -> None:
    message, hint = only('name: a\nrun: python -c "while True: pass"\n')
    assert "not YAML" in message
    assert "`run: |`" in hint
    assert "begins with *" in only("name: *x\nrun: x\n")[1]
    assert "begins with @" in only("name: @x\nrun: x\n")[1]
    assert "blanks, not with tabs" in only("name: a\n\trun: x\n")[1]
