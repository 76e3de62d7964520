"""The queue: what contenders for the fleet ask for, and who comes first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from eva_master.learning.speeds.first_rates import expected_rates
from eva_master.model.catalog import Gpu
from eva_master.packing.fleet.contenders import Contender
from eva_policies.hadar_published.requests import GpuRequest, Utility, weight, worth
from eva_wire.values.ids import MILLION, Family, Millis

_LEAST = 1e-9
"""No rate and no work is less, so that there are no quotients by 0."""


def ask_of(
    one: Contender,
    families: Iterable[Family],
    now: Millis,
    known: float = 0.0,
    sheets: Mapping[Family, Gpu] | None = None,
) -> GpuRequest | None:
    """Ask of a contender.

    Without known rates it does one iteration per second everywhere, unless rates are guessed by
    data sheets.

    Args:
        one: The contender.
        families: The types of the fleet.
        now: The time.
        known: Iterations of all its tasks, if it was seen before; at first they equal the remaining
            ones.
        sheets: GPUs of the types, to guess unknown rates; `None` not to guess.

    Returns:
        The ask, or `None` if it needs no GPU on some type, or can run on none.
    """
    gpus: dict[Family, int] = {}
    for family in families:
        needs = [run.task.demand_on(family) for run in one.runs]
        if None not in needs:
            gpus[family] = max(need.gpus for need in needs if need is not None)
    if not gpus or not all(gpus.values()):
        return None
    home = one.paces.home or MILLION
    rates = {
        family: max(_LEAST, (one.paces.on.get(family) or home) / MILLION) for family in sorted(gpus)
    }
    tasks = len(one.runs)
    each = _left_s(one, rates, home / MILLION)
    if sheets and not one.paces.on and all(family in sheets for family in gpus):
        rates, each = _guessed(one, {family: sheets[family] for family in sorted(gpus)})
    remaining = max(_LEAST, each * tasks)
    waited_s = max(0, now - one.job.submitted_ms) / 1000
    return GpuRequest(one.id, tasks, max(remaining, known), remaining, rates, gpus, waited_s)


def _guessed(one: Contender, sheets: Mapping[Family, Gpu]) -> tuple[dict[Family, float], float]:
    """First rates by data sheets, and the remaining iterations of each task.

    A known duration is taken to be that on the job's best type. If only its steps are known, they
    and the formula give the duration.
    """
    first = expected_rates({}, dict(sheets), one.job.spec.training)
    if one.guessed and one.job.progress.steps_left is not None:
        return first, float(one.job.progress.steps_left)
    best = max(first.values())
    return {family: rate / best for family, rate in first.items()}, one.left_ms / 1000


def _left_s(one: Contender, rates: dict[Family, float], home: float) -> float:
    """Iterations that each task still has to do."""
    for family, ms in sorted(one.alone_ms.items()):
        if family in rates:
            return ms / 1000 * rates[family]
    return one.left_ms / 1000 * home


def in_order(
    queued: Sequence[tuple[Contender, GpuRequest]], order: str, utility: Utility
) -> list[tuple[Contender, GpuRequest]]:
    """The queue, the most urgent first.

    Jobs that came at the same time are in the order of their names, in which numbers count as
    numbers.

    Args:
        queued: Contenders by priority and submission.
        order: The order, as in `Config.order`.
        utility: Utility of jobs.
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
    """Sort key of a name, by which 10 comes after 9."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in parts]


def _per_gpu(ask: GpuRequest, utility: Utility) -> float:
    """Utility of running a job on its fastest type, per GPU."""
    best = max(sorted(ask.rates), key=lambda it: ask.rates[it])
    gain = worth(weight(ask, utility), ask.ends_s(ask.rates[best]))
    return gain / (ask.tasks * ask.gpus[best])
