"""Worth of an elastic gang's members: the least cost of a unit of its work."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from eva_master.model.job import TaskSpec
from eva_master.model.planning.elastic import Elastic
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.elastic.room import fitting, member_of
from eva_wire.values.ids import MILLION

_TRIED_ALL = 64
"""Up to so many numbers of members are compared one by one; of more, some of each magnitude."""


def cheapest(snapshot: Snapshot, job: JobView, most: int) -> tuple[int, Fraction]:
    """The number of members with which a gang's work costs least, on instances of its own.

    Of equal ones it is the largest, which finishes first. Offerings out of stock for a while count
    too.

    Args:
        snapshot: The cluster.
        job: An elastic gang with a task run.
        most: No larger number is looked at; at least the least one.

    Returns:
        The number, and the cost of its work: micro-dollars per hour over the speed of one member.
        The least number of members and 0 if no offering hosts them.
    """
    elastic = job.sharing.elastic
    assert elastic is not None
    best: tuple[Fraction, int] | None = None
    task = member_of(snapshot, job).task
    for members in _numbers(elastic.least, most):
        for price, apart in _prices(snapshot, task, members):
            unit = Fraction(price * MILLION, elastic.speed_ppm(members, apart=apart))
            if best is None or (unit, -members) < (best[0], -best[1]):
                best = unit, members
    return (elastic.least, Fraction(0)) if best is None else (best[1], best[0])


def _prices(snapshot: Snapshot, task: TaskSpec, members: int) -> Iterator[tuple[int, bool]]:
    """Price of instances of one offering for so many members, and whether these are several."""
    for offering in snapshot.catalog:
        each = fitting(task, offering, offering.type.capacity)
        if each and (offering.limit is None or offering.limit * each >= members):
            number = -(-members // each)
            yield offering.price * number, number > 1


def _numbers(least: int, most: int) -> list[int]:
    if most - least < _TRIED_ALL:
        return list(range(least, most + 1))
    sizes = {least, most}
    number = 1
    while number < most:
        sizes |= {size for size in (number, number * 3 // 2) if least <= size <= most}
        number *= 2
    return sorted(sizes)


def speed_ppm(elastic: Elastic, hosts: int, members: int) -> int:
    """The speed of members on so many instances, against one member, in millionths."""
    return elastic.speed_ppm(members, apart=hosts > 1)
