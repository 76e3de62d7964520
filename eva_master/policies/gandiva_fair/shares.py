"""Divides GPUs among tenants by their tickets, and each tenant's among its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from eva_master.model.ids import Millis, RunId
from eva_master.packing.fleet.allotted import Claim

K = TypeVar("K", bound=str)


def divided(total: int, tickets: Mapping[K, int], most: Mapping[K, int]) -> dict[K, int]:
    """Divide a number in proportion to tickets; nobody gets more than it can use.

    What somebody cannot use is divided among the others in the same way. Parts are whole; what is
    left by rounding goes to whom it took most from.

    Args:
        total: What there is, not negative.
        tickets: Of each, above 0.
        most: What each can use; of the same.
    """
    part = dict.fromkeys(tickets, Fraction(0))
    open_to = sorted(tickets)
    left = Fraction(total)
    while open_to and left > 0:
        each = left / sum(tickets[it] for it in open_to)
        full = [it for it in open_to if most[it] - part[it] <= each * tickets[it]]
        for it in full or open_to:
            more = most[it] - part[it] if full else each * tickets[it]
            part[it] += more
            left -= more
        if not full:
            break
        open_to = [it for it in open_to if it not in set(full)]
    whole = {it: int(amount) for it, amount in part.items()}
    missing = min(total, sum(most.values())) - sum(whole.values())
    for it in sorted(part, key=lambda it: (whole[it] - part[it], it)):
        if missing > 0 and whole[it] < most[it]:
            whole[it] += 1
            missing -= 1
    return whole


def within(claims: Sequence[Claim], gpus: int, now: Millis) -> dict[RunId, int]:
    """Divide GPUs among contenders: each as many members as the others, as far as they go.

    Where not all can run at once those go first that have had least GPU time.

    Args:
        claims: Of one tenant; none keeps what it has.
        gpus: What they may have together.
        now: Until when GPU time counts.
    """
    short = sum(claim.least * claim.gpus for claim in claims) > gpus
    order = sorted(claims, key=lambda it: _rank(it, now) if short else (it.came, 0))
    found: dict[RunId, int] = {}
    for claim in order:
        if claim.least * claim.gpus <= gpus:
            found[claim.id] = claim.least
            gpus -= claim.least * claim.gpus
    growing = [it for it in order if it.id in found and it.most > it.least]
    while growing:
        again = []
        for claim in growing:
            if claim.gpus <= gpus and found[claim.id] < claim.most:
                found[claim.id] += 1 if claim.gpus else claim.most - claim.least
                gpus -= claim.gpus
                again.append(claim)
        growing = again
    return found


def _rank(claim: Claim, now: Millis) -> tuple[object, ...]:
    return -claim.one.job.priority, claim.one.job.attained.at_ms(now), claim.came
