"""Tenants as policies see them, and what a policy decides about money between them."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.accounting.ended_jobs import EndedJob
from eva_wire.values.ids import Exact, Family, JobId

ANY_FAMILY = Family("*")
"""In a quota: GPUs of whatever family."""

MOST_PAYMENT = 10**15
"""The largest payment from one tenant to another, in micro-dollars: a billion dollars."""

Quota = tuple[tuple[Family, int], ...]
"""GPUs by family, sorted by family."""


@dataclass(frozen=True, slots=True)
class TenantBenefit:
    """Benefit of a tenant from the cluster so far; cumulative.

    Attributes:
        value: Worth of its jobs at the moments when they succeeded, in micro-dollars.
        paid: Payments for room of other tenants.
        earned: Payments received for room that others used.
        received: Compensation received from other tenants, in micro-dollars.
        given: Compensation given to other tenants, in micro-dollars.
    """

    value: int = 0
    paid: Exact = Exact(0)
    earned: Exact = Exact(0)
    received: int = 0
    given: int = 0


NOTHING_YET = TenantBenefit()


@dataclass(frozen=True, slots=True)
class TenantView:
    """A tenant, as a policy sees it.

    Attributes:
        name: Its name, as in `JobView.tenant`.
        quota: The GPUs that it brought, scaled down in proportion while the fleet has fewer than
            all quotas together. A family that is not named is no quota of its own.
        standing: Its benefit so far.
        ended: Its jobs that ended since the last plan was carried out, oldest first.
    """

    name: str
    quota: Quota = ()
    standing: TenantBenefit = NOTHING_YET
    ended: tuple[EndedJob, ...] = ()


@dataclass(frozen=True, slots=True)
class LoanTerms:
    """Terms on which a job uses the room of other tenants, until the next plan.

    The job owes for the time in which its tasks hold room. The amount that it owes is the amount
    that lenders earn.

    Attributes:
        gpus: Number of its GPUs that belong to others.
        lenders: Earnings of each lending tenant in micro-dollars per hour; sorted by tenant. A
            tenant may pay itself. Lenders are named even at a price of 0.
        lent: GPUs that each lender lends, in thousandths; in the order of `lenders`.
    """

    job: JobId
    gpus: int
    lenders: tuple[tuple[str, int], ...]
    lent: tuple[int, ...] = ()

    @property
    def per_hour(self) -> int:
        """Amount that the job owes, in micro-dollars per hour."""
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
