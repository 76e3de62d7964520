"""When a job is to be done, and how long it waits for spot instances, in job files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.model.catalog import Catalog, Purchase, spot_family
from eva_master.model.job import Deadline, JobSpec
from eva_wire.values.errors import InvalidJob
from tests.fakes.jobs import CATALOG

HEAD = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"
HOUR = 3_600_000


def on_spot(catalog: Catalog) -> Catalog:
    """The same types as spot instances."""
    return tuple(
        replace(
            it,
            purchase=Purchase.SPOT,
            type=replace(it.type, family=spot_family(it.type.family)),
        )
        for it in catalog
    )


def parse(lines: str) -> JobSpec:
    catalog = (*CATALOG, *on_spot(CATALOG))
    return parse_job(HEAD + lines, file_name="j.yaml", owner="me", catalog=catalog, workdir=None)


@pytest.mark.parametrize(
    ("line", "deadline"),
    [
        ("deadline: 1970-01-01T02:00:00+01:00", Deadline(at_ms=HOUR)),
        ("deadline: '1970-01-01 01:00Z'", Deadline(at_ms=HOUR)),
        ("deadline: {at: 1970-01-01T01:00:00Z}", Deadline(at_ms=HOUR)),
        ("deadline: {within: 36h}", Deadline(within_ms=36 * HOUR)),
        (
            "deadline: {within: 36h}\ndeadline_miss: fail",
            Deadline(within_ms=36 * HOUR, fails=True),
        ),
        ("spot: never", None),
    ],
)
def test_deadlines_are_times_with_zones_or_from_the_submission(
    line: str, deadline: Deadline | None
) -> None:
    assert parse(line).deadline == deadline


def test_what_is_due_within_a_time_is_due_so_long_after_its_submission() -> None:
    assert Deadline(within_ms=HOUR).due_ms(5) == HOUR + 5
    assert Deadline(at_ms=HOUR).due_ms(5) == HOUR


def test_jobs_on_spot_instances_may_wait_for_them_and_store_checkpoints() -> None:
    spec = parse("spot: allowed\nspot_wait: 2h\ncheckpoint_interval: 15m")
    assert (spec.spot_wait_ms, spec.restarts.checkpoint_interval_ms) == (2 * HOUR, HOUR // 4)
    assert parse("spot: allowed\nspot_wait: 0s") == parse("spot: allowed")


@pytest.mark.parametrize(
    ("lines", "where", "what"),
    [
        ("deadline: 2030-01-31T18:00:00", "j.yaml:4:1: deadline", "has no zone"),
        ("deadline: 2030-01-31", "j.yaml:4:1: deadline", "has no zone"),
        ("deadline: tomorrow", "j.yaml:4:1: deadline", "is no time"),
        ("deadline: 20300131", "j.yaml:4:1: deadline", "no time with a date"),
        ("deadline: {}", "j.yaml:4:1: deadline", "a deadline is a time"),
        ("deadline: {within: 0}", "j.yaml:4:12: deadline.within", "needs a unit"),
        ("deadline: {within: 0s}", "j.yaml:4:12: deadline.within", "more than zero"),
        ("deadline: {within: -1h}", "j.yaml:4:12: deadline.within", ""),
        ("deadline: {within: 1h, at: 2030-01-31T18:00:00Z}", "deadline.within", "not both"),
        ("deadline: {within: 1h, often: 2}", "deadline.often", "unknown key"),
        ("deadline: {within: 1h}\ndeadline_miss: cry", "j.yaml:5:1: deadline_miss", "'warn'"),
        ("deadline_miss: fail", "j.yaml:4:1: deadline_miss", "no deadline"),
        ("spot_wait: 1h", "j.yaml:4:1: spot_wait", "no spot instance"),
        ("spot: never\nspot_wait: 1h", "j.yaml:5:1: spot_wait", "no spot instance"),
        ("checkpoint_interval: 0s", "j.yaml:4:1: checkpoint_interval", "more than zero"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(lines: str, where: str, what: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        parse(lines)
    assert where in str(refusal.value)
    assert what in str(refusal.value)
