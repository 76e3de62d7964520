"""Tenants as policies see them, and what a policy decides about money between them."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.accounting.ended_jobs import EndedJob
from eva_master.model.ids import Exact, Family, JobId

ANY_FAMILY = Family("*")
"""In a quota: GPUs of whatever family."""

MOST_PAYMENT = 10**15
"""The largest payment from one tenant to another, in micro-dollars: a billion dollars."""

Quota = tuple[tuple[Family, int], ...]
"""GPUs by family, sorted by family."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a tenant has got out of the cluster so far; cumulative.

    Attributes:
        value: What its jobs were worth in the moments in which they succeeded, in micro-dollars.
        paid: For room of other tenants.
        earned: For room that others used.
        received: What it was made whole with, in micro-dollars.
        given: What it gave so that others were made whole, in micro-dollars.
    """

    value: int = 0
    paid: Exact = Exact(0)
    earned: Exact = Exact(0)
    received: int = 0
    given: int = 0


NOTHING_YET = Standing()


@dataclass(frozen=True, slots=True)
class TenantView:
    """A tenant.

    Attributes:
        name: As jobs have it.
        quota: The GPUs that it brought, as they are now: scaled down in proportion while the fleet
            has fewer than all quotas together. A family that is not named is no quota of its own.
        standing: What it has got so far.
        ended: Its jobs that ended since the last plan was carried out, oldest first.
    """

    name: str
    quota: Quota = ()
    standing: Standing = NOTHING_YET
    ended: tuple[EndedJob, ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a job has the room of others, from this plan on to the next.

    It owes that for the time in which its tasks hold room. What it owes is what the lenders earn.

    Attributes:
        gpus: How many of its GPUs are others'.
        lenders: What each tenant gets of it, in micro-dollars per hour; sorted by tenant. A tenant
            may pay itself. With a price of 0 lenders are named all the same.
        lent: The GPUs that each of them lends, in thousandths; in the order of `lenders`.
    """

    job: JobId
    gpus: int
    lenders: tuple[tuple[str, int], ...]
    lent: tuple[int, ...] = ()

    @property
    def per_hour(self) -> int:
        """What the job owes, in micro-dollars per hour."""
        return sum(amount for _, amount in self.lenders)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A payment from tenant to tenant, once, so that somebody is made whole.

    Attributes:
        amount: Micro-dollars, above 0 and at most `MOST_PAYMENT`.
    """

    payer: str
    payee: str
    amount: int
