"""Income of tenants from a job's payments: gain as you contribute (Astraea, equations 2 and 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.model.arithmetic.money import split
from eva_policies.astraea_published.calendar import Ints
from eva_policies.astraea_published.requests import Schedule
from eva_policies.astraea_published.schedules import TypeLimit

_THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class Income:
    """Payments of a job over its schedule.

    Attributes:
        gpus: Number of its GPUs that tenants lend.
        earned: Income of each tenant, in micro-dollars, sorted by tenant. The sum is the cost.
        lent: Average number of GPUs that each of them lends, in thousandths.
    """

    gpus: int
    earned: tuple[tuple[str, int], ...]
    lent: tuple[int, ...]


def divided(
    schedule: Schedule, gpus: int, gpu_prices: Ints, ps_prices: Ints, idle: Mapping[str, TypeLimit]
) -> Income:
    """Divide a job's payments, slot by slot, in proportion to the idle parts of tenants' quotas.

    Args:
        schedule: The job's schedule.
        gpus: Number of its GPUs.
        gpu_prices: Price of a GPU by slot.
        ps_prices: Price of a parameter server by slot.
        idle: Idle room of each tenant on the type, before any borrowing. A tenant may pay itself.
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
    paid = [name for name in names if earned[name] or lent[name]]
    return Income(
        gpus,
        tuple((name, earned[name]) for name in paid),
        tuple(lent[name] // slots for name in paid),
    )
