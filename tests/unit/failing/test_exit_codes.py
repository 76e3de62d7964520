"""Exit codes in job files: `retry_on` and `fail_on`."""

from __future__ import annotations

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.model.job import JobSpec
from eva_wire.values.errors import InvalidJob
from tests.fakes.hand_driven import CATALOG


def parsed(more: str) -> JobSpec:
    text = f"run: x\nresources: {{cpus: 1, memory: 1GiB}}\n{more}"
    return parse_job(text, file_name="j", owner="me", catalog=CATALOG, workdir=None, name="job")


def test_codes_and_ranges_are_kept_in_order_each_once() -> None:
    spec = parsed("retry_on: [127, 64-66, 65, 1]\nfail_on: [3]\n")
    assert spec.failing.retry_on == (1, 64, 65, 66, 127)
    assert spec.failing.fail_on == (3,)


def test_a_file_that_names_none_has_none() -> None:
    spec = parsed("")
    assert (spec.failing.retry_on, spec.failing.fail_on) == ((), ())


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("fail_on: [0]\n", "fail_on", "'0' is no exit code"),
        ("fail_on: [256]\n", "fail_on", "'256' is no exit code"),
        ("fail_on: [-9]\n", "fail_on", "'-9' is no exit code"),
        ("fail_on: [5-3]\n", "fail_on", "'5-3' is no exit code"),
        ("fail_on: [true]\n", "fail_on", "is no exit code"),
        ("fail_on: [1.5]\n", "fail_on", "'1.5' is no exit code"),
        ("fail_on: [[1]]\n", "fail_on", "is no exit code"),
        ("fail_on: 3\n", "fail_on", "list"),
        ("fail_on: [3, 4]\nretry_on: [1-3]\n", "fail_on", "3 is in `retry_on` as well"),
        ("fail_on: [70-80]\n", "fail_on", "exits with 75 asks to be retried"),
        ("retry_on: [1]\nretries: 0\n", "retry_on", "nothing is retried"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, key: str, words: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        parsed(text)
    (problem,) = refused.value.problems
    assert problem.key.startswith(key)
    assert words in problem.message
