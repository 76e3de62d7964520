"""The claims of a plan, and those of them that are limited to members where something has changed.

Claims on all members of their pools are few, and are looked at whenever there is news. There may be
thousands that are limited to members, such as the queue of each: of these only those are looked at
whose members, or whose jobs, have changed since nobody in them found room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace, merge
from operator import attrgetter

from eva_master.control.standing.claim import ClaimKey, LineClaim, Order
from eva_wire.values.ids import InstanceId, JobId

_by_order = attrgetter("order")


class Claims:
    """The claims of one plan, with indexes by job and by member.

    Args:
        claims: The claims in the order of the plan.

    Attributes:
        open: The claims that extend to all members of their pools.
    """

    def __init__(self, claims: Sequence[LineClaim] = ()) -> None:
        self._all = tuple(claims)
        self.open = tuple(claim for claim in claims if not claim.only)
        self._of: dict[JobId, list[LineClaim]] = {}
        self._limited_to: dict[InstanceId, list[LineClaim]] = {}
        for claim in claims:
            for job in claim.jobs:
                self._of.setdefault(job, []).append(claim)
            for member in claim.only:
                self._limited_to.setdefault(member, []).append(claim)
        self._awake = {claim.number: dict.fromkeys(claim.only) for claim in claims if claim.only}
        """The members to look at for each limited claim that may find room, by the claim's number.
        """
        self._turns: list[tuple[Order, int]] = [
            (self._all[number].order, number) for number in self._awake
        ]
        heapify(self._turns)

    def __iter__(self) -> Iterator[LineClaim]:
        return iter(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def awake(self) -> bool:
        """Whether any limited claim may find room."""
        return bool(self._awake)

    def of(self, job: JobId) -> Sequence[LineClaim]:
        """The claims in which a job stands."""
        return self._of.get(job, ())

    def join(self, job: JobId, claim: LineClaim) -> None:
        """Add a job to a claim."""
        claim.join(job)
        those = self._of.setdefault(job, [])
        if claim not in those:
            those.append(claim)

    def on(self, instance: InstanceId) -> Iterable[LineClaim]:
        """The claims that could get room on a member, if the member is in one of their pools."""
        return (*self.open, *self._limited_to.get(instance, ()))

    def hold(self, job: JobId, instance: InstanceId, pool: str, more: int) -> None:
        """Count one task more or less of a job that is on a member."""
        for claim in self.on(instance):
            if pool in claim.line.pools and claim.has(job):
                claim.hold(job, more)
                if claim.number in self._awake:
                    heappush(self._turns, (claim.order, claim.number))

    def hold_all(
        self, held: Mapping[tuple[JobId, InstanceId], int], pool_of: Mapping[InstanceId, str]
    ) -> None:
        """Count all tasks that are on members; nothing was counted before.

        Args:
            held: Number of tasks of each job on each member.
            pool_of: The pool of each member.
        """
        together: Counter[tuple[JobId, str]] = Counter()
        for (job, instance), count in held.items():
            together[job, pool_of[instance]] += count
        for (job, pool), count in together.items():
            for claim in self.open:
                if pool in claim.line.pools and claim.has(job):
                    claim.hold(job, count)
        if not self._limited_to:
            return
        for (job, instance), count in held.items():
            for claim in self._limited_to.get(instance, ()):
                if pool_of[instance] in claim.line.pools and claim.has(job):
                    claim.hold(job, count)
        self._turns = [(self._all[number].order, number) for number in self._awake]
        heapify(self._turns)

    # -- limited claims --------------------------------------------------------------------------

    def wake_on(self, instance: InstanceId) -> None:
        """Something has changed on a member."""
        for claim in self._limited_to.get(instance, ()):
            self._wake(claim, (instance,))

    def wake(self, claim: LineClaim) -> None:
        """Jobs of a limited claim have changed."""
        self._wake(claim, claim.only)

    def members(self, claim: LineClaim) -> Iterable[InstanceId]:
        """The members that a limited claim is to look at."""
        return self._awake.get(claim.number, ())

    def sleep(self, claim: LineClaim) -> None:
        """Note that no job of a limited claim finds room on the claim's members."""
        self._awake.pop(claim.number, None)

    def in_turn(self, first: Collection[ClaimKey] = ()) -> Iterator[LineClaim]:
        """The claims that may find room, in the order in which they are offered it.

        A limited claim is offered room again unless `sleep` is called for it.

        Args:
            first: Keys of the claims that precede all others.
        """
        early = sorted(self._those(first), key=_by_order) if first else []
        yield from early
        passed = {claim.number for claim in early}
        later: Iterable[LineClaim] = sorted(self.open, key=_by_order)
        if self._awake:
            later = merge(later, self._limited(), key=_by_order)
        for claim in later:
            if claim.number not in passed:
                yield claim

    def _those(self, keys: Collection[ClaimKey]) -> Iterator[LineClaim]:
        awake = (self._all[number] for number in tuple(self._awake))
        return (claim for claim in (*self.open, *awake) if claim.key in keys)

    def _limited(self) -> Iterator[LineClaim]:
        """The limited claims that are awake, in order."""
        turns = self._turns
        while turns:
            order, number = turns[0]
            claim = self._all[number]
            if number not in self._awake:
                heappop(turns)
            elif claim.order != order:
                heapreplace(turns, (claim.order, number))
            else:
                yield claim

    def _wake(self, claim: LineClaim, members: Iterable[InstanceId]) -> None:
        to_see = self._awake.get(claim.number)
        if to_see is None:
            to_see = self._awake[claim.number] = {}
            heappush(self._turns, (claim.order, claim.number))
        to_see.update(dict.fromkeys(members))
