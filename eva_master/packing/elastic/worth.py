"""What members of an elastic gang are worth: the least that a unit of its work costs."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from eva_master.model.ids import MILLION
from eva_master.model.planning.elastic import Elastic
from eva_master.model.planning.snapshot import JobView, Snapshot
from eva_master.packing.elastic.room import fitting, member_of

_TRIED_ALL = 64
"""Up to so many numbers of members are compared one by one; of more, some of each magnitude."""


def cheapest(snapshot: Snapshot, job: JobView, most: int) -> tuple[int, Fraction]:
    """The number of members with which a gang's work costs least, on instances of its own.

    Of equal ones the largest, which is done first. What is out of stock for a while counts.

    Args:
        snapshot: The cluster.
        job: An elastic gang with a task run.
        most: No larger number is looked at; at least the least one.

    Returns:
        It, and what its work costs: micro-dollars per hour over the speed of one member. The least
        number of members and 0 if nothing hosts them.
    """
    elastic = job.elastic
    assert elastic is not None
    best: tuple[Fraction, int] | None = None
    for members in _numbers(elastic.least, most):
        for price, apart in _prices(snapshot, job, members):
            unit = Fraction(price * MILLION, elastic.speed_ppm(members, apart=apart))
            if best is None or (unit, -members) < (best[0], -best[1]):
                best = unit, members
    return (elastic.least, Fraction(0)) if best is None else (best[1], best[0])


def _prices(snapshot: Snapshot, job: JobView, members: int) -> Iterator[tuple[int, bool]]:
    """What instances of one offering for so many members cost, and whether these are several."""
    task = member_of(snapshot, job).task
    for offering in snapshot.catalog:
        each = fitting(task, offering, offering.type.capacity)
        if each and (offering.limit is None or offering.limit * each >= members):
            number = -(-members // each)
            yield offering.price * number, number > 1


def _numbers(least: int, most: int) -> list[int]:
    if most - least < _TRIED_ALL:
        return list(range(least, most + 1))
    found = {least, most}
    number = 1
    while number < most:
        found |= {it for it in (number, number * 3 // 2) if least <= it <= most}
        number *= 2
    return sorted(found)


def speed_ppm(elastic: Elastic, hosts: int, members: int) -> int:
    """The speed of members on so many instances, against one member, in millionths."""
    return elastic.speed_ppm(members, apart=hosts > 1)
