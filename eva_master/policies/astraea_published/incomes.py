"""Who earns what a job pays: gain as you contribute (Astraea, equations 2 and 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.model.arithmetic.money import split
from eva_master.policies.astraea_published.calendar import Ints
from eva_master.policies.astraea_published.requests import Schedule
from eva_master.policies.astraea_published.schedules import Limit

_THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class Income:
    """What a job pays over its schedule, and to whom.

    Attributes:
        gpus: How many GPUs it has of those that tenants leave.
        earned: What each tenant gets, in micro-dollars, sorted by tenant. The sum is the cost.
        lent: How many of the GPUs each of them lends on average, in thousandths.
    """

    gpus: int
    earned: tuple[tuple[str, int], ...]
    lent: tuple[int, ...]


def divided(
    schedule: Schedule, gpus: int, gpu_prices: Ints, ps_prices: Ints, idle: Mapping[str, Limit]
) -> Income:
    """Divide what a job pays, slot by slot, in proportion to what tenants leave of their quotas.

    Args:
        schedule: The job's.
        gpus: How many GPUs it has.
        gpu_prices: What a GPU costs by slot.
        ps_prices: The same of a parameter server.
        idle: What each tenant leaves of the type of GPU, before anybody borrows. A tenant may pay
            itself.
    """
    names = sorted(idle)
    earned, lent = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    ps = 0 if schedule.ps is None else schedule.ps[1]
    for slot in range(schedule.start, schedule.end):
        of_gpus = [int(idle[name].gpus[slot]) for name in names]
        of_ps = [int(idle[name].ps[slot]) for name in names]
        for amount, weights in (
            (gpus * int(gpu_prices[slot]), of_gpus),
            (ps * int(ps_prices[slot]), of_ps),
        ):
            for name, part in zip(names, split(amount, weights), strict=True):
                earned[name] += part
        for name, part in zip(names, split(_THOUSAND * gpus, of_gpus), strict=True):
            lent[name] += part
    slots = max(1, schedule.end - schedule.start)
    there = [name for name in names if earned[name] or lent[name]]
    return Income(
        gpus,
        tuple((name, earned[name]) for name in there),
        tuple(lent[name] // slots for name in there),
    )
