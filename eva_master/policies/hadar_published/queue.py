"""The queue: what contenders for the fleet ask for, and who comes first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from eva_master.learning.speeds.first_rates import expected_rates
from eva_master.model.catalog import Gpu
from eva_master.model.ids import MILLION, Family, Millis
from eva_master.packing.fleet.contenders import Contender
from eva_master.policies.hadar_published.asks import Ask, Utility, weight, worth

_LEAST = 1e-9
"""No rate and no work is less, so that there are no quotients by 0."""


def ask_of(
    one: Contender,
    families: Iterable[Family],
    now: Millis,
    known: float = 0.0,
    sheets: Mapping[Family, Gpu] | None = None,
) -> Ask | None:
    """What a contender asks for.

    Where nothing is known of its rates it does one iteration per second everywhere, unless they are
    guessed by data sheets.

    Args:
        one: Who.
        families: The types of the fleet.
        now: The time.
        known: The iterations of its tasks altogether, if it was seen before; it is as large as what
            it has left at first.
        sheets: The GPUs of the types, if rates of which nothing is known are guessed by them.

    Returns:
        It, or `None` if it needs no GPU on some type, or has none to run on.
    """
    gpus: dict[Family, int] = {}
    for family in families:
        needs = [run.task.demand_on(family) for run in one.runs]
        if None not in needs:
            gpus[family] = max(need.gpus for need in needs if need is not None)
    if not gpus or not all(gpus.values()):
        return None
    home = one.paces.home or MILLION
    rates = {it: max(_LEAST, (one.paces.on.get(it) or home) / MILLION) for it in sorted(gpus)}
    tasks = len(one.runs)
    each = _left_s(one, rates, home / MILLION)
    if sheets and not one.paces.on and all(it in sheets for it in gpus):
        rates, each = _guessed(one, {it: sheets[it] for it in sorted(gpus)})
    left = max(_LEAST, each * tasks)
    waited_s = max(0, now - one.job.submitted_ms) / 1000
    return Ask(one.id, tasks, max(left, known), left, rates, gpus, waited_s)


def _guessed(one: Contender, sheets: Mapping[Family, Gpu]) -> tuple[dict[Family, float], float]:
    """First rates by data sheets, and the iterations that each task still has to do.

    Where it is known how long a job takes that is taken to be on the type that suits it best. Where
    only its steps are known, these and the formula say how long.
    """
    first = expected_rates({}, dict(sheets), one.job.training)
    if one.guessed and one.job.steps_left is not None:
        return first, float(one.job.steps_left)
    best = max(first.values())
    return {it: rate / best for it, rate in first.items()}, one.left_ms / 1000


def _left_s(one: Contender, rates: dict[Family, float], home: float) -> float:
    """Iterations that each task still has to do."""
    for family, ms in sorted(one.alone_ms.items()):
        if family in rates:
            return ms / 1000 * rates[family]
    return one.left_ms / 1000 * home


def in_order(
    queued: Sequence[tuple[Contender, Ask]], order: str, utility: Utility
) -> list[tuple[Contender, Ask]]:
    """The queue, the most urgent first.

    Those that came at the same time are in the order of their names, in which numbers count as
    numbers.

    Args:
        queued: Contenders by priority and submission.
        order: As of `Config.order`.
        utility: What jobs are worth.
    """
    if order == "utility":
        return sorted(queued, key=lambda it: (-it[0].job.priority, -_per_gpu(it[1], utility)))
    if order == "shortest":
        return sorted(queued, key=lambda it: (-it[0].job.priority, it[0].left_ms))
    return sorted(
        queued,
        key=lambda it: (-it[0].job.priority, it[0].job.submitted_ms, _natural(it[0].id)),
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """A key of a name in whose order 10 comes after 9."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(it), "") if it.isdecimal() else (-1, it) for it in parts]


def _per_gpu(ask: Ask, utility: Utility) -> float:
    """What it is worth to run a job where it is fastest, per GPU."""
    best = max(sorted(ask.rates), key=lambda it: ask.rates[it])
    gain = worth(weight(ask, utility), ask.ends_s(ask.rates[best]))
    return gain / (ask.tasks * ask.gpus[best])
