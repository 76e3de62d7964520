"""A simulation's record as tables: rounds, moves, attempts, jobs and bills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from eva_lab.simulator.cluster.attempt_log import Occupancy
from eva_lab.simulator.results.metrics import JobFigures, RunRecord
from eva_master.model.changes import Round
from eva_wire.values.ids import RunId

Cell = str | int | float | bool | None


def tables(record: RunRecord) -> Mapping[str, list[dict[str, Cell]]]:
    """The rows of each table by its name; times are in milliseconds of virtual time."""
    return {
        "rounds": [_round(entry) for entry in record.rounds],
        "moves": list(_moves(record.occupancies)),
        "attempts": [asdict(occupancy) for occupancy in record.occupancies],
        "jobs": [_job(job) for job in record.jobs],
        "bills": [asdict(instance) for instance in record.instances],
    }


def _round(one: Round) -> dict[str, Cell]:
    """A round without its real time, which differs from run to run."""
    fixed = {"round": one.number, "at_ms": one.at_ms, "launches": one.launches, "moves": one.moves}
    return {**fixed, **{f"plan_{name}": value for name, value in sorted(one.figures.items())}}


def _moves(occupancies: tuple[Occupancy, ...]) -> Iterator[dict[str, Cell]]:
    """Moves: each attempt and the next one of the same task run elsewhere, in order of arrival."""
    before: dict[RunId, Occupancy] = {}
    for occupancy in sorted(occupancies, key=lambda one: (one.from_ms, one.run)):
        last = before.get(occupancy.run)
        if last is not None and last.instance != occupancy.instance:
            yield {
                "copy": occupancy.run,
                "attempt": occupancy.attempt,
                "from": last.instance,
                "to": occupancy.instance,
                "left_ms": last.to_ms,
                "ordered_ms": occupancy.from_ms,
            }
        before[occupancy.run] = occupancy


def _job(job: JobFigures) -> dict[str, Cell]:
    row = {**asdict(job), "jct_ms": job.jct_ms}
    if not job.partition:
        row.pop("partition")
    return row
