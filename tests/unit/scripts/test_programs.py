"""Scripts and environments are bounded in bytes, as the kernel bounds them, and told in words."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess

import pytest

from eva_wire.jobfile import check_job
from eva_wire.values.errors import InvalidJob, Problem
from tests.unit.formats.test_jobfile import only_problem_of, parse, with_line

_OTHERS = 'name: a\nresources: {cpus: 1, memory: 1GiB}\nworkload: "w"\n'


def script_of(script: str) -> str:
    """A script as a job has it, from a file that quotes it."""
    return parse(f"{_OTHERS}run: {json.dumps(script)}\n").tasks[0].program.run


def problem_of(script: str) -> Problem:
    return only_problem_of(f"{_OTHERS}run: {json.dumps(script)}\n")


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u6ce8", "\U0001f600"])
def test_a_script_has_half_a_mebibyte_whatever_its_alphabet(letter: str) -> None:
    width = len(letter.encode())
    longest = letter * (524_288 // width)
    assert parse(f"{_OTHERS}run: {longest}").tasks[0].program.run == longest
    problem = only_problem_of(f"{_OTHERS}run: {longest}{letter}")
    assert problem.key == "run"
    size = len(longest.encode()) + width
    assert problem.message == f"must be at most 524,288 bytes long, and has {size:,}"
    assert "bash FILE" in problem.hint


def test_windows_line_endings_of_a_script_are_mended() -> None:
    assert script_of("set -e\r\necho a\r\n") == "set -e\necho a\n"
    assert script_of("printf 'a\rb'") == "printf 'a\rb'"
    block = f"{_OTHERS}run: |\n  set -e\n  echo a\n".replace("\n", "\r\n")
    assert parse(block).tasks[0].program.run == "set -e\necho a\n"


@pytest.mark.parametrize(
    "line",
    [
        "#!/bin/bash",
        "#! /bin/sh -e ",
        "#!/usr/bin/env -S python3 -u",
        "#!\t/usr/bin/zsh\t-f",
        "#!/bin/bash\r",
        "# a comment",
        "#",
    ],
)
def test_first_lines_that_name_an_interpreter_or_are_comments(line: str) -> None:
    assert script_of(f"{line}\necho a").splitlines()[0] == line.removesuffix("\r")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#!", "names no program"),
        ("#!  \t", "names no program"),
        ("#!bash", "'bash', which is no absolute path"),
        ("#! env bash", "'env', which is no absolute path"),
        ("#!/bin/b\x1bash", "printable"),
        (f"#!/{'x' * 254}", "longer than 255 bytes"),
    ],
)
def test_first_lines_that_can_only_fail_are_refused(line: str, words: str) -> None:
    problem = problem_of(f"{line}\necho a")
    assert words in problem.message
    assert "#!/usr/bin/env bash" in problem.hint


LARGE = "x" * 110_000


def aliases(count: int) -> str:
    names = "".join(f", V{number}: *v" for number in range(1, count))
    return with_line(f"envs: {{V0: &v {LARGE}{names}}}")


def test_large_environments_of_few_words_are_refused() -> None:
    problem = only_problem_of(aliases(25))
    assert problem.key == "envs"
    assert "bytes" in problem.message
    assert "1,572,864" in problem.message
    assert "files of the working directory" in problem.hint


def test_what_comes_beside_the_file_counts() -> None:
    beside = {f"W{number}": LARGE for number in range(8)}
    assert len(parse(aliases(7), envs=beside | {"V0": "small"}).tasks[0].program.env) == 15
    for check in (parse, check_job):
        with pytest.raises(InvalidJob, match="the variables of a task take 1,65"):
            check(aliases(7), file_name="job.yaml", envs=beside)


def test_each_task_of_a_list_is_measured() -> None:
    tasks = "tasks: [{name: a}, {name: b, envs: {W0: *v, W1: *v, W2: *v, W3: *v, W4: *v}}]"
    problem = only_problem_of(f"{aliases(10)}{tasks}\n")
    assert problem.key == "tasks[1].envs"


def test_the_largest_environment_of_small_variables_can_be_started() -> None:
    """Where small ones are many, most of what they take is what is beside names and values."""
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if 0 <= soft < 8 << 20:
        pytest.skip("the stack is smaller than usual")
    program = shutil.which("true")
    assert program
    cluster = {f"EVA_{number}": "y" * 1_000 for number in range(100)}
    env = {f"V{number:05}": "x" for number in range(92_000)}
    assert len(parse(with_line("envs: {}"), envs=env).tasks[0].program.env) == 92_000
    subprocess.run([program], env=env | cluster, check=True)
    with pytest.raises(InvalidJob, match="the variables of a task take 1,581,000 bytes"):
        parse(with_line("envs: {}"), envs=env | {f"W{number:05}": "x" for number in range(1_000)})
