"""`value` in job files."""

from __future__ import annotations

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.model.accounting.worth import Decay, Worth
from eva_master.model.job import JobSpec
from eva_wire.values.errors import InvalidJob
from tests.fakes.jobs import CATALOG

HEAD = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"


def parse(text: str) -> JobSpec:
    return parse_job(text, file_name="j.yaml", owner="me", catalog=CATALOG, workdir=None)


def test_a_job_says_what_it_is_worth_in_micro_dollars() -> None:
    assert parse(HEAD).worth is None
    linear = parse(HEAD + "value: {worth: $500, loses: $2.5/h}\n").worth
    assert linear == Worth(500_000_000, loses_per_hour=2_500_000)
    halving = parse(HEAD + "value: {worth: $0.25, halves: 6h}\n").worth
    assert halving == Worth(250_000, Decay.HALVING, span_ms=21_600_000)
    assert parse(HEAD + "value: {worth: $3}\n").worth == Worth(3_000_000)


@pytest.mark.parametrize(
    ("value", "key", "what"),
    [
        ("{worth: $-5}", "worth", "not an amount of dollars"),
        ("{worth: .inf}", "worth", "not an amount of dollars"),
        ("{worth: 500}", "worth", "not an amount"),
        ("{worth: $1000000.01}", "worth", "at most $1,000,000"),
        ("{worth: $5, loses: $1000001/h}", "loses", "at most $1,000,000 per hour"),
        ("{worth: $5, halves: 999ms}", "halves", "one second at the least"),
        ("{worth: $5, loses: $-2/h}", "loses", "not an amount of dollars per hour"),
        ("{worth: $5, loses: $2}", "loses", "not an amount of dollars per hour"),
        ("{worth: $5, halves: 0s}", "halves", ""),
        ("{worth: $5, loses: $2/h, halves: 1h}", "halves", "not both"),
        ("{loses: $2/h}", "worth", ""),
        ("$500", "value", ""),
    ],
)
def test_a_value_that_is_none_is_refused_at_its_line(value: str, key: str, what: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        parse(f"{HEAD}value: {value}\n")
    told = str(refused.value)
    assert "j.yaml:4" in told
    assert key in told
    assert what in told
