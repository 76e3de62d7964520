"""When a job comes to its cap, at present prices and places. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.control.state.records import Records
from eva_master.control.stopping.grace import stopping_ms
from eva_master.model.records import Job
from eva_wire.values.ids import MILLION, Millis, micro_usd
from eva_wire.values.ids import MILLIS_PER_HOUR as HOUR_MS

_TOLD_PPM = 800_000
"""Part of the cap at which its owner is told, in millionths."""

_AT_ONCE, _BLIND_MS = 100, 100
"""For so many tasks with a place, each of which is charged, nothing is worked out for so long."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Charges of a job, and what they come to.

    Attributes:
        spent: Charged so far, in micro-dollars.
        stop_ms: When the rest just pays for a stop; `None` if it never comes to that.
        told_ms: When most of the cap is spent; `None` if that never happens.
        blind_ms: The time for which it is not worked out again, nothing for all but large jobs. A
            stop comes that much earlier.
    """

    spent: int
    stop_ms: Millis | None
    told_ms: Millis | None
    blind_ms: int


def spending(state: Records, settings: Settings, job: Job, now: Millis) -> Spending | None:
    """The spending of a job with a cap as things are; `None` if it has none.

    Stopping is charged for: the grace period, and the time that a checkpoint takes to be stored,
    as assumed or stated.

    Args:
        state: The records.
        settings: Assumed delays, and limits of grace periods.
        job: The job.
        now: The time.
    """
    if job.max_cost is None:
        return None
    exact = ledger.job_account(state, job.id, now).charged
    hourly = ledger.job_account(state, job.id, Millis(now + HOUR_MS)).charged - exact
    cap, spent = job.max_cost * HOUR_MS, micro_usd(exact)
    blind_ms = len(state.in_hand(job.id)) // _AT_ONCE * _BLIND_MS
    if hourly <= 0:
        return Spending(spent, now if exact >= cap else None, None, blind_ms)
    stop_ms = stopping_ms(job.spec, settings) + blind_ms
    until_cap_ms = (cap - exact) * HOUR_MS // hourly
    until_told_ms = (cap * _TOLD_PPM // MILLION - exact) * HOUR_MS // hourly
    return Spending(
        spent,
        Millis(now + max(0, until_cap_ms - stop_ms)),
        Millis(now + max(0, until_told_ms)),
        blind_ms,
    )
