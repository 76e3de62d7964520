"""Alone twins: what becomes of each tenant's jobs on its own quota alone, by the same rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from eva_master.model.accounting.worth import Decay, Worth
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.elastic import Scaling
from eva_master.model.resources import Resources
from eva_master.model.tenants.tenancy import ANY_FAMILY, Quota
from eva_master.packing.valuation.job_worth import worth_of
from eva_policies.astraea.allotting import AllotmentRules, Allotting, Share
from eva_policies.astraea.requests import RoomRequest
from eva_wire.values.ids import MILLION, Family

_STEPS = 256
"""So often at most a twin deals its quota out anew from one round to the next."""
_ERROR_PPM = 1_100_000
"""Jobs may take so much longer than was told and count as told all the same."""
_STARTS = 4
"""Number of starts of all members of a job that are allowed beside that."""
NO_RESTS: Mapping[str, int] = {}
NO_SHARES: Mapping[Family, Resources] = {}
_UNLIMITED = 10**15
_RUNNING_MS = 1
"""Least remaining time of a job of unknown length."""


@dataclass(slots=True)
class TwinJob:
    """A job in its tenant's twin.

    Attributes:
        tenant: Its tenant.
        submitted: When it was submitted.
        worth: The fields of its `Worth`; empty if it has none.
        loss: Cost of an hour of waiting if it has no worth, in micro-dollars.
        left: Remaining time of one member on its fastest type, in milliseconds.
        types: By type the GPUs of a member, and the slowdown there, in millionths.
        least: Fewest members.
        most: Most members.
        exponent: Power of the number of members with which its speed grows, in millionths.
        priority: Higher priorities go first.
        guessed: Whether its length is unknown, or proved wrong: it then is not done before the real
            one.
        most_ms: Time for which its members may run together, as the time of one, if its stated
            length is true.
        did: Work done, as the time of one member.
        really: No longer in use; older memories have it.
        ran: Whether the real job has had a place, after which its remaining work no longer tells
            its length.
        done: When the twin was done with it; 0 before.
        ended: When it really succeeded; 0 before.
        held: How long the twin has rested because the real job waited for a reason of its own, such
            as a failure.
        spoiled: Duration of the real job's failed attempts, as known to the twin.
        away: How long the twin has rested because no plan saw the real job, as while it is
            suspended.
        beside: By type the milli-CPUs and the memory of a member, in MiB.
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
    held: int = 0
    spoiled: int = 0
    away: int = 0
    beside: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, asks: Sequence[RoomRequest], unseen: int, worth: Worth | None, more: int | None = None
    ) -> TwinJob:
        """A job at its first appearance; tasks of an array are members of one job.

        Args:
            asks: Asks of its gang, or of its tasks.
            unseen: Number of further tasks of its array that may have a place beside them.
            worth: Its worth, if its user states it.
            more: Number of all further tasks, also those kept from a place by a limit of its own;
                `None` if there is none.
        """
        more = unseen if more is None else max(unseen, more)
        first = max(asks, key=lambda it: it.left_ms.get(it.types[0], 0) if it.types else 0)
        best = min(first.left_ms.values(), default=1)
        price = sum(ask.loss for ask in asks) + more * first.loss
        worth = worth_of(worth, price, None if first.guessed else best)
        rest_ms = sum(min(ask.left_ms.values(), default=1) + ask.start_ms for ask in asks)
        array = len(asks) + more > 1
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
            rest_ms + more * (best + first.start_ms),
            {
                family: [first.gpus(family), first.left_ms[family] * MILLION // best]
                for family in first.left_ms
            },
            1 if array else first.least,
            most,
            exponent,
            first.priority,
            first.guessed,
            most_ms=_longest(rest_ms + more * (best + first.start_ms), most, exponent, first),
            beside={
                family: [first.need[family].milli_cpus, first.need[family].memory_mib]
                for family in first.left_ms
            },
        )

    @property
    def value(self) -> int:
        """Its worth when the twin was done with it, in micro-dollars."""
        return self.worth_by(self.done) if self.done else 0

    def worth_by(self, now: int) -> int:
        """Its worth if it is done at some time, in micro-dollars."""
        worth = self._worth()
        return 0 if worth is None else worth.after(now - self.submitted)

    def ask(self, name: str, now: int) -> RoomRequest:
        """Its ask to the tenant's quota."""
        scaling = Scaling((), self.exponent)
        worth = self._worth()
        loss = self.loss
        if worth is not None:
            quickest = self.left * MILLION // scaling.speed_ppm(self.most)
            loss = worth.loss_per_hour(now - self.submitted + quickest)
        return RoomRequest(
            name,
            name,
            self.tenant,
            loss,
            {
                Family(family): Resources(gpus, *self.beside.get(family, (0, 0)))
                for family, (gpus, _) in self.types.items()
            },
            {
                Family(family): max(1, self.left * slow // MILLION)
                for family, (_, slow) in self.types.items()
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

    @property
    def works(self) -> bool:
        """Whether the twin has something left to do of it: it is not done, or done too early."""
        return not self.done or self.left > 0

    @property
    def own_delay(self) -> bool:
        """Whether the real one was ever late for a reason of its own."""
        return bool(self.held or self.spoiled or self.away)

    def rests(self, elapsed: int, held: int | None) -> int:
        """For how long it rests in the time that passes, as the real one does.

        Work that the twin had done before would have been done so much later.

        Args:
            elapsed: The time, in milliseconds.
            held: How long the real one had to wait so far for a reason of its own; `None` if no
                plan is about it now.
        """
        if held is None:
            rest = elapsed
            self.away += rest
        else:
            rest = max(0, min(elapsed, held - self.held))
            self.held += rest
        if self.done:
            self.done += rest
        return rest

    def spoil(self, spoiled: int, *, one_by_one: bool = False) -> None:
        """Take in how long failed attempts of the real one took: its twin takes as long.

        Args:
            spoiled: How long, in milliseconds, all so far.
            one_by_one: Whether these were attempts of single members.
        """
        more = spoiled - self.spoiled
        if more <= 0:
            return
        self.spoiled = spoiled
        members = 1 if one_by_one else self.most
        self.left += more * Scaling((), self.exponent).speed_ppm(members) // MILLION
        self.most_ms += more * members
        if self.done:
            self.done += more

    def over(self, now: int, worked: int, start_ms: int) -> int:
        """Take in that it has really succeeded.

        Now it is known how long it takes. A twin that was taken to need longer is done earlier.

        Args:
            now: When.
            worked: For how long one member would have run to do what was done, all types alike.
            start_ms: How long a start of it took.

        Returns:
            For how long one member worked in the twin at what there was not to do.
        """
        self.ended = now
        if self.guessed:
            self.guessed = False
            self.left = max(0, worked - self.did)
            if not self.left and not self.done:
                self.done = now
            return 0
        whole = self.did + self.left
        needed = min(whole, worked + start_ms * (self.most if self.least < self.most else 1))
        unneeded = max(0, self.did - needed)
        self.left = max(0, needed - self.did)
        if unneeded and self.done:
            self.done = max(self.submitted + 1, self.done - unneeded // self.most)
        elif not self.left and not self.done:
            self.done = max(self.submitted + 1, now - unneeded // self.most)
        self.did -= unneeded
        return unneeded

    def seen(self, attained: int) -> None:
        """Take in for how long its members have really run together, as the time of one.

        If that is more than what was told of its length allows, what was told counts no more. Else
        a tenant would be made whole for a twin that is done sooner than anybody could be.
        """
        if not self.guessed and attained > self.most_ms and not self.ended:
            self.guessed = True
            self.left, self.done = max(self.left, _RUNNING_MS), 0

    def _worth(self) -> Worth | None:
        if not self.worth:
            return None
        amount, decay, loses, span, exponent, since = self.worth
        return Worth(amount, Decay(decay), loses, span, exponent, since)


def _longest(left: int, most: int, exponent: int, ask: RoomRequest) -> int:
    """For how long members run together at most that are told to have so much left, with starts."""
    speed = Scaling((), exponent).speed_ppm(most)
    together = left * most * MILLION // speed
    return together * _ERROR_PPM // MILLION + _STARTS * most * (ask.start_ms + ask.move_ms)


def _written(worth: Worth) -> list[Any]:
    values = (getattr(worth, column.name) for column in fields(worth))
    return [str(value) if isinstance(value, Decay) else value for value in values]


def advance(
    jobs: Mapping[str, TwinJob],
    quotas: Mapping[str, Quota],
    since: int,
    until: int,
    *,
    rounds: bool,
    rests: Mapping[str, int] = NO_RESTS,
    each: Mapping[Family, Resources] = NO_SHARES,
) -> None:
    """Advance the twins in time.

    Args:
        jobs: Jobs by id, which are changed.
        quotas: Quota of each tenant.
        since: Beginning of the time.
        until: End of the time.
        rounds: Whether quotas are dealt out only when real ones are.
        rests: How long jobs rest first, by id, in milliseconds.
        each: Resources of each type in the fleet, which come in proportion to GPUs of a quota;
            types without an entry are unlimited.
    """
    by_tenant: dict[str, dict[str, TwinJob]] = {}
    for name, job in jobs.items():
        if job.works:
            by_tenant.setdefault(job.tenant, {})[name] = job
    for tenant, own in by_tenant.items():
        quota = quotas.get(tenant, ())
        if quota:
            rules = AllotmentRules(_capacity(quota, own.values(), each), {tenant: quota})
            wakes = {name: since + rests.get(name, 0) for name in own}
            _advance(rules, own, (since, until), 1 if rounds else _STEPS, wakes)


def _advance(
    rules: AllotmentRules,
    jobs: dict[str, TwinJob],
    span: tuple[int, int],
    steps: int,
    wakes: Mapping[str, int],
) -> None:
    now, until = span
    for step in range(steps):
        waiting = [(name, job) for name, job in jobs.items() if job.works]
        if now >= until or not waiting:
            return
        later = [at for name, _ in waiting if (at := wakes[name]) > now]
        # In rounds, a job has its share from the beginning, and works once it does not rest.
        latest = now if steps > 1 else until - 1
        asks = [job.ask(name, now) for name, job in waiting if wakes[name] <= latest]
        shares = Allotting(rules, asks).allot().shares
        if not shares:
            if not later or min(later) >= until:
                return
            now = min(later)
            continue
        paces = {name: jobs[name].pace_ppm(share) for name, share in shares.items()}
        ends = [
            now + -(-jobs[name].left * MILLION // pace)
            for name, pace in paces.items()
            if not jobs[name].guessed
        ]
        to = until if step == steps - 1 else min([until, *ends, *later])
        for name, pace in paces.items():
            _run(jobs[name], pace, max(now, wakes[name]), to)
        now = to


def _run(job: TwinJob, pace: int, since: int, until: int) -> None:
    done = min(job.left, (until - since) * pace // MILLION)
    ends = since + -(-job.left * MILLION // pace)
    job.did += done
    job.left -= done
    if job.guessed:
        job.left = max(_RUNNING_MS, job.left)
    elif ends <= until or job.left == 0:
        job.left, job.done = 0, job.done or min(ends, until)


def fits(job: TwinJob, quota: Quota, each: Mapping[Family, Resources]) -> bool:
    """Whether the CPUs and memory of a quota are enough for a job whose GPUs are.

    A job that needs more CPUs or memory than that, or as much of them as a larger quota has, waits
    for a reason of its own.
    """
    capacity = _capacity(quota, [job], each)
    enough = False
    for name, (gpus, _) in job.types.items():
        room, beside = capacity[Family(name)], job.beside.get(name, [0, 0])
        if gpus * job.least > room.gpus:
            continue
        if all(
            need * job.least <= amount for need, amount in zip(beside, _beside(room), strict=True)
        ):
            return True
        enough = True
    return not enough


def _beside(room: Resources) -> tuple[int, int]:
    return room.milli_cpus, room.memory_mib


def _capacity(
    quota: Quota, jobs: Iterable[TwinJob], each: Mapping[Family, Resources]
) -> dict[Family, Resources]:
    named = dict(quota)
    anywhere = named.pop(ANY_FAMILY, 0)
    families = {Family(family) for job in jobs for family in job.types} | named.keys()
    capacity = {}
    for family in sorted(families):
        gpus, fleet = named.get(family, 0) + anywhere, each.get(family)
        if fleet is None or not fleet.gpus:
            capacity[family] = Resources(gpus, _UNLIMITED, _UNLIMITED)
        else:
            cpus, memory = (-(-amount * gpus // fleet.gpus) for amount in _beside(fleet))
            capacity[family] = Resources(gpus, cpus, memory)
    return capacity
