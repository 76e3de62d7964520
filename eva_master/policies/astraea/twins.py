"""Alone twins: what becomes of each tenant's jobs on its own quota alone, by the same rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from eva_master.model.accounting.worth import Decay, Worth
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.ids import MILLION, Family
from eva_master.model.planning.elastic import Scaling
from eva_master.model.planning.tenancy import ANY_FAMILY, Quota
from eva_master.model.resources import Resources
from eva_master.packing.valuation.job_worth import worth_of
from eva_master.policies.astraea.allotting import Allotting, Rules, Share
from eva_master.policies.astraea.asks import Ask

_STEPS = 256
"""So often at most a twin deals its quota out anew from one round to the next."""
_ERROR_PPM = 1_100_000
"""Jobs may take so much longer than was told and count as told all the same."""
_STARTS = 4
"""So often all members of a job may start, beside that."""
_RUNNING_MS = 1
"""What is left at least of a job of which nobody knows when it is done."""


@dataclass(slots=True)
class TwinJob:
    """A job in its tenant's twin.

    Attributes:
        tenant: Whose.
        submitted: When it was submitted.
        worth: The fields of its `Worth`; none if it is worth nothing.
        loss: What an hour of waiting costs if it has no worth, in micro-dollars.
        left: How long one member would still take on its fastest type, in milliseconds.
        types: By type the GPUs of a member, and how much longer it takes there, in millionths.
        least: Fewest members.
        most: Most members.
        exponent: With which power of its members its speed grows, in millionths.
        priority: The higher go first.
        guessed: Whether nothing is known of its length, or what was told of it is not true: it is
            not done before it really is.
        most_ms: For so long its members may run together, as the time of one, if what was told of
            its length is true.
        did: What it has done, as the time of one member.
        really: The same of the real one, as it was seen last.
        ran: Whether the real one has had a place: what is left of it says no more how long it is.
        done: When the twin was done with it; 0 before.
        ended: When it really succeeded; 0 before.
    """

    tenant: str
    submitted: int
    worth: list[Any] = field(default_factory=list)
    loss: int = 0
    left: int = 0
    types: dict[str, list[int]] = field(default_factory=dict)
    least: int = 1
    most: int = 1
    exponent: int = MILLION
    priority: int = 0
    guessed: bool = False
    did: int = 0
    really: int = 0
    ran: bool = False
    done: int = 0
    ended: int = 0
    most_ms: int = 0

    @classmethod
    def of(cls, asks: Sequence[Ask], unseen: int, worth: Worth | None) -> TwinJob:
        """A job as it is first seen; tasks of an array are members of one.

        Args:
            asks: Of its gang, or of its tasks.
            unseen: How many more tasks of its array there are.
            worth: What it is worth, if its user says so.
        """
        first = max(asks, key=lambda it: it.left_ms.get(it.types[0], 0) if it.types else 0)
        best = min(first.left_ms.values(), default=1)
        price = sum(it.loss for it in asks) + unseen * first.loss
        worth = worth_of(worth, price, None if first.guessed else best)
        left = sum(min(it.left_ms.values(), default=1) + it.start_ms for it in asks)
        array = len(asks) + unseen > 1
        most = len(asks) + unseen if array else first.most
        exponent = MILLION
        if not array and most > 1:
            exponent = (log_ppm(first.speed_ppm(most)) - log_ppm(MILLION)) * MILLION
            exponent //= log_ppm(most)
        return cls(
            first.tenant,
            first.came[0],
            [] if worth is None else _written(worth),
            price,
            left + unseen * (best + first.start_ms),
            {it: [first.gpus(it), first.left_ms[it] * MILLION // best] for it in first.left_ms},
            1 if array else first.least,
            most,
            exponent,
            first.priority,
            first.guessed,
            most_ms=_longest(left + unseen * (best + first.start_ms), most, exponent, first),
        )

    @property
    def value(self) -> int:
        """What it was worth when the twin was done with it, in micro-dollars."""
        return self.worth_by(self.done) if self.done else 0

    def worth_by(self, now: int) -> int:
        """What it is worth if it is done at some time, in micro-dollars."""
        worth = self._worth()
        return 0 if worth is None else worth.after(now - self.submitted)

    def ask(self, name: str, now: int) -> Ask:
        """What it asks its quota for."""
        scaling = Scaling((), self.exponent)
        worth = self._worth()
        loss = self.loss
        if worth is not None:
            quickest = self.left * MILLION // scaling.speed_ppm(self.most)
            loss = worth.loss_per_hour(now - self.submitted + quickest)
        return Ask(
            name,
            name,
            self.tenant,
            loss,
            {Family(it): Resources(gpus, 0, 0) for it, (gpus, _) in self.types.items()},
            {
                Family(it): max(1, self.left * slow // MILLION)
                for it, (_, slow) in self.types.items()
            },
            (self.submitted, name),
            self.least,
            self.most,
            scaling,
            self.priority,
            guessed=self.guessed,
        )

    def pace_ppm(self, share: Share) -> int:
        """How fast it is with a share, against one member on its fastest type, in millionths."""
        speed = Scaling((), self.exponent).speed_ppm(share.members)
        return max(1, speed * MILLION // max(1, self.types[share.family][1]))

    def over(self, now: int) -> None:
        """Take in that it has really succeeded."""
        self.ended = now
        if self.guessed:
            self.guessed = False
            self.left = max(0, self.really - self.did)
            if not self.left and not self.done:
                self.done = now

    def seen(self, attained: int) -> None:
        """Take in for how long its members have really run together, as the time of one.

        If that is more than what was told of its length allows, what was told counts no more. Else
        a tenant would be made whole for a twin that is done sooner than anybody could be.
        """
        if not self.guessed and attained > self.most_ms and not self.ended:
            self.guessed = True
            self.left, self.done = max(self.left, _RUNNING_MS), 0
        if self.guessed:
            self.really = attained

    def _worth(self) -> Worth | None:
        if not self.worth:
            return None
        amount, decay, loses, span, exponent, since = self.worth
        return Worth(amount, Decay(decay), loses, span, exponent, since)


def _longest(left: int, most: int, exponent: int, ask: Ask) -> int:
    """For how long members run together at most that are told to have so much left, with starts."""
    speed = Scaling((), exponent).speed_ppm(most)
    together = left * most * MILLION // speed
    return together * _ERROR_PPM // MILLION + _STARTS * most * (ask.start_ms + ask.move_ms)


def _written(worth: Worth) -> list[Any]:
    told = (getattr(worth, it.name) for it in fields(worth))
    return [str(it) if isinstance(it, Decay) else it for it in told]


def advance(
    jobs: Mapping[str, TwinJob],
    quotas: Mapping[str, Quota],
    since: int,
    until: int,
    *,
    rounds: bool,
) -> None:
    """Let twins go on for a while.

    Args:
        jobs: By id; they are changed.
        quotas: Of each tenant.
        since: From when on.
        until: Until when.
        rounds: Whether a quota is dealt out anew only when the real one is.
    """
    by_tenant: dict[str, dict[str, TwinJob]] = {}
    for name, job in jobs.items():
        if not job.done:
            by_tenant.setdefault(job.tenant, {})[name] = job
    for tenant, own in by_tenant.items():
        quota = quotas.get(tenant, ())
        if quota:
            _advance(tenant, quota, own, (since, until), 1 if rounds else _STEPS)


def _advance(
    tenant: str, quota: Quota, jobs: dict[str, TwinJob], span: tuple[int, int], steps: int
) -> None:
    now, until = span
    rules = Rules(_capacity(quota, jobs.values()), {tenant: quota})
    for step in range(steps):
        waiting = [(name, job) for name, job in jobs.items() if not job.done]
        if now >= until or not waiting:
            return
        asks = [job.ask(name, now) for name, job in waiting]
        shares = Allotting(rules, asks).allot().shares
        if not shares:
            return
        paces = {name: jobs[name].pace_ppm(share) for name, share in shares.items()}
        ends = [
            now + -(-jobs[name].left * MILLION // pace)
            for name, pace in paces.items()
            if not jobs[name].guessed
        ]
        to = until if step == steps - 1 else min([until, *ends])
        for name, pace in paces.items():
            _run(jobs[name], pace, now, to)
        now = to


def _run(job: TwinJob, pace: int, since: int, until: int) -> None:
    done = min(job.left, (until - since) * pace // MILLION)
    ends = since + -(-job.left * MILLION // pace)
    job.did += done
    job.left -= done
    if job.guessed:
        job.left = max(_RUNNING_MS, job.left)
    elif ends <= until or job.left == 0:
        job.left, job.done = 0, min(ends, until)


def _capacity(quota: Quota, jobs: Iterable[TwinJob]) -> dict[Family, Resources]:
    named = dict(quota)
    anywhere = named.pop(ANY_FAMILY, 0)
    families = {Family(it) for job in jobs for it in job.types} | named.keys()
    return {it: Resources(named.get(it, 0) + anywhere, 0, 0) for it in sorted(families)}
