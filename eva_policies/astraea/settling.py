"""Settlement: who is worse off than alone is made whole out of what the others gained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.model.arithmetic.money import split
from eva_master.model.tenants.tenancy import MOST_PAYMENT, Transfer


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a tenant against its twin, in micro-dollars; cumulative.

    Jobs end at other times in the twin than in reality. So a shortfall counts only for jobs that
    have succeeded, and a gain does not count while it may still vanish.

    Attributes:
        real: Worth of its jobs that succeeded, less its payments and gifts, plus its earnings and
            receipts.
        twin: Worth to the twin of the jobs that both have done.
        pending: Worth to the twin of jobs that only the twin has done, without jobs that are late
            by delays of their own.
        feared: Present worth of jobs that only the tenant has done: the twin may still get it.
        earned: Its earnings from lending, less its earlier compensation: the limit of further
            compensation.
    """

    real: int
    twin: int
    pending: int = 0
    feared: int = 0
    earned: int = 0

    @property
    def short(self) -> int:
        """Compensation for its certain shortfall against its twin."""
        return max(0, min(self.earned, MOST_PAYMENT, self.twin - self.real))

    @property
    def gain(self) -> int:
        """Its certain gain over its twin."""
        return max(0, self.real - self.twin - self.pending - self.feared)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Payments and debts of one settlement.

    Attributes:
        transfers: Payments between tenants.
        uncovered: Remaining debts, by tenant; only of tenants that are owed something.
    """

    transfers: tuple[Transfer, ...]
    uncovered: Mapping[str, int]


def settle(positions: Mapping[str, Position]) -> Settlement:
    """Compensate tenants with a shortfall, as far as the gains of others go.

    All tenants that gained give in proportion to their gain, and at most that. If it is not enough,
    all tenants with a shortfall get the same part of it.
    """
    gains = {name: position.gain for name, position in sorted(positions.items()) if position.gain}
    short = {name: position.short for name, position in sorted(positions.items()) if position.short}
    total = min(sum(gains.values()), sum(short.values()))
    gives = dict(zip(gains, split(total, list(gains.values())), strict=True))
    gets = dict(zip(short, split(total, list(short.values())), strict=True))
    uncovered = {name: short[name] - gets[name] for name in short if short[name] > gets[name]}
    return Settlement(tuple(_matched(gives, gets)), uncovered)


def _matched(gives: dict[str, int], gets: dict[str, int]) -> list[Transfer]:
    transfers = []
    payers = [name for name in gives if gives[name]]
    for payee, amount in gets.items():
        rest = amount
        while rest:
            part = min(rest, gives[payers[0]])
            transfers.append(Transfer(payers[0], payee, part))
            gives[payers[0]] -= part
            rest -= part
            if not gives[payers[0]]:
                payers.pop(0)
    return transfers
