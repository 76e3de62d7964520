"""A simulation's record as tables: rounds, moves, attempts, jobs and bills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from eva_master.model.changes import Round
from eva_master.model.ids import RunId
from eva_master.simulation.cluster.attempt_log import Stay
from eva_master.simulation.results.metrics import JobFigures, Record

Cell = str | int | float | bool | None


def tables(record: Record) -> Mapping[str, list[dict[str, Cell]]]:
    """Rows by the name of their table; times in milliseconds of virtual time."""
    return {
        "rounds": [_round(one) for one in record.rounds],
        "moves": list(_moves(record.stays)),
        "attempts": [asdict(stay) for stay in record.stays],
        "jobs": [_job(job) for job in record.jobs],
        "bills": [asdict(instance) for instance in record.instances],
    }


def _round(one: Round) -> dict[str, Cell]:
    """A round without the seconds that it took, which no other run repeats."""
    fixed = {"round": one.number, "at_ms": one.at_ms, "launches": one.launches, "moves": one.moves}
    return {**fixed, **{f"plan_{name}": value for name, value in sorted(one.figures.items())}}


def _moves(stays: tuple[Stay, ...]) -> Iterator[dict[str, Cell]]:
    """From each attempt to the next one of the same task run elsewhere, in order of arrival."""
    before: dict[RunId, Stay] = {}
    for stay in sorted(stays, key=lambda one: (one.from_ms, one.run)):
        last = before.get(stay.run)
        if last is not None and last.instance != stay.instance:
            yield {
                "copy": stay.run,
                "attempt": stay.attempt,
                "from": last.instance,
                "to": stay.instance,
                "left_ms": last.to_ms,
                "ordered_ms": stay.from_ms,
            }
        before[stay.run] = stay


def _job(job: JobFigures) -> dict[str, Cell]:
    return {**asdict(job), "jct_ms": job.jct_ms}
