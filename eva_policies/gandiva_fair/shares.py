"""Divides GPUs among tenants by their tickets, and each tenant's among its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from eva_master.packing.fleet.allotted import SizeRange
from eva_wire.values.ids import Millis, RunId

K = TypeVar("K", bound=str)


def divided(total: int, tickets: Mapping[K, int], most: Mapping[K, int]) -> dict[K, int]:
    """Divide a number in proportion to tickets, within the use of each key.

    The excess of a key's part over its use is divided among the others in the same way. Parts are
    whole; remainders of rounding go to the keys that lost most.

    Args:
        total: The number to divide, not negative.
        tickets: Tickets of each key, above 0.
        most: Most that each key can use.
    """
    part = dict.fromkeys(tickets, Fraction(0))
    open_to = sorted(tickets)
    rest = Fraction(total)
    while open_to and rest > 0:
        each = rest / sum(tickets[key] for key in open_to)
        full = [key for key in open_to if most[key] - part[key] <= each * tickets[key]]
        for key in full or open_to:
            more = most[key] - part[key] if full else each * tickets[key]
            part[key] += more
            rest -= more
        if not full:
            break
        open_to = [key for key in open_to if key not in set(full)]
    whole = {key: int(amount) for key, amount in part.items()}
    missing = min(total, sum(most.values())) - sum(whole.values())
    for key in sorted(part, key=lambda name: (whole[name] - part[name], name)):
        if missing > 0 and whole[key] < most[key]:
            whole[key] += 1
            missing -= 1
    return whole


def within(claims: Sequence[SizeRange], gpus: int, now: Millis) -> dict[RunId, int]:
    """Divide GPUs among contenders: each as many members as the others, as far as they go.

    If not all can run at once, those with the least GPU time go first.

    Args:
        claims: Claims of one tenant, none of which keeps its places.
        gpus: Number of GPUs to divide.
        now: Time until which GPU time counts.
    """
    short = sum(claim.least * claim.gpus for claim in claims) > gpus
    order = sorted(claims, key=lambda it: _rank(it, now) if short else (it.came, 0))
    members: dict[RunId, int] = {}
    for claim in order:
        if claim.least * claim.gpus <= gpus:
            members[claim.id] = claim.least
            gpus -= claim.least * claim.gpus
    growing = [claim for claim in order if claim.id in members and claim.most > claim.least]
    while growing:
        again = []
        for claim in growing:
            if claim.gpus <= gpus and members[claim.id] < claim.most:
                members[claim.id] += 1 if claim.gpus else claim.most - claim.least
                gpus -= claim.gpus
                again.append(claim)
        growing = again
    return members


def _rank(claim: SizeRange, now: Millis) -> tuple[object, ...]:
    return -claim.one.job.priority, claim.one.job.progress.attained.at_ms(now), claim.came
