"""Settlement: who is worse off than alone is made whole out of what the others gained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.model.arithmetic.money import split
from eva_master.model.planning.tenancy import MOST_PAYMENT, Transfer


@dataclass(frozen=True, slots=True)
class Position:
    """How a tenant stands against its twin, in micro-dollars; cumulative.

    Jobs are done at other times in the twin than they really are. So a shortfall is counted for
    jobs alone that have succeeded, and a gain is not as long as it may still vanish.

    Attributes:
        real: What its jobs were worth that succeeded, less what it paid and gave, with what it
            earned and received.
        twin: What the jobs were worth to the twin that both have done.
        pending: What those were worth to the twin that the twin alone has done, but for jobs that
            are late by delays of their own.
        feared: What those are worth now that the tenant alone has done: the twin may still get it.
        earned: What its lending earned, less what it received before: it gets no more.
    """

    real: int
    twin: int
    pending: int = 0
    feared: int = 0
    earned: int = 0

    @property
    def short(self) -> int:
        """Payment for what it is short of its twin, whatever comes."""
        return max(0, min(self.earned, MOST_PAYMENT, self.twin - self.real))

    @property
    def gain(self) -> int:
        """What it has gained over its twin, whatever comes."""
        return max(0, self.real - self.twin - self.pending - self.feared)


@dataclass(frozen=True, slots=True)
class Settlement:
    """A settlement.

    Attributes:
        transfers: Who pays whom what.
        uncovered: What is still missing, by tenant; only of those that miss something.
    """

    transfers: tuple[Transfer, ...]
    uncovered: Mapping[str, int]


def settle(positions: Mapping[str, Position]) -> Settlement:
    """Make whole who is short, as far as the gains of others go.

    Everybody who gained gives in proportion to that, and nobody more than that. If it is not
    enough, everybody who is short gets the same part of it.
    """
    gains = {it: one.gain for it, one in sorted(positions.items()) if one.gain}
    short = {it: one.short for it, one in sorted(positions.items()) if one.short}
    total = min(sum(gains.values()), sum(short.values()))
    gives = dict(zip(gains, split(total, list(gains.values())), strict=True))
    gets = dict(zip(short, split(total, list(short.values())), strict=True))
    uncovered = {it: short[it] - gets[it] for it in short if short[it] > gets[it]}
    return Settlement(tuple(_matched(gives, gets)), uncovered)


def _matched(gives: dict[str, int], gets: dict[str, int]) -> list[Transfer]:
    found = []
    payers = [it for it in gives if gives[it]]
    for payee, amount in gets.items():
        left = amount
        while left:
            part = min(left, gives[payers[0]])
            found.append(Transfer(payers[0], payee, part))
            gives[payers[0]] -= part
            left -= part
            if not gives[payers[0]]:
                payers.pop(0)
    return found
