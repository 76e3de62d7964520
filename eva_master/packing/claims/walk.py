"""Claims one after the other: which have their room now, and what they leave for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from eva_master.model.planning.claims import Claim
from eva_master.model.planning.sizes import resizable, with_sizes
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.claims.rooms import ClaimUnit, FreeRoom, without
from eva_master.packing.precedence import precedence
from eva_master.packing.preempting import Victim
from eva_wire.values.ids import InstanceId, JobId, OfferingId, RunId

_MOST_STEPS = 5_000
"""How far the search goes for task runs to suspend, in one round."""


class Way(Enum):
    """A way for a claim to get its room, or to wait for it."""

    READY = auto()
    """There is room now, by a first fit."""
    SMALLER = auto()
    """There is room if elastic gangs are as small as they may be."""
    YIELDED = auto()
    """There is room if others yield their places, or are suspended."""
    SHORT = auto()
    """The claim waits, and short task runs may use its room meanwhile."""
    OPEN = auto()
    """The claim waits, and its room is left alone."""
    BEHIND = auto()
    """The claim waits until the claims before it have their room."""


@dataclass(frozen=True, slots=True)
class Step:
    """A claim with its way.

    Attributes:
        number: Of the claim in the snapshot.
        way: How it gets its room.
        placed: Task runs for which there is room by that.
    """

    number: int
    claim: Claim
    way: Way
    placed: frozenset[RunId] = frozenset()


@dataclass
class Walk:
    """Claims one after the other.

    Args:
        whole: The snapshot.
        refused: Claims by their number with the ways by which a policy has found no place for them.
        plain: Whether no room is made, be it by resizing, yielding or suspending.

    Attributes:
        steps: The claims so far.
        hidden: Waiting task runs that policies are not to see, with the claim for which they wait;
            those of the claim itself among them.
        instances: Instances that are not to be seen.
        slots: How many launches of each offering are not to be had.
        victims: Task runs that yield, with the job for which they do.
        comers: Task runs that come after claims which have their room, and find room besides.
        over: Whether the claims after these come in the next plan.
    """

    whole: Snapshot
    refused: frozenset[tuple[int, Way]] = frozenset()
    plain: bool = False
    steps: list[Step] = field(default_factory=list)
    hidden: dict[RunId, Claim] = field(default_factory=dict)
    rivals: dict[RunId, Claim] = field(default_factory=dict)
    instances: set[InstanceId] = field(default_factory=set)
    slots: dict[OfferingId, int] = field(default_factory=dict)
    victims: list[tuple[Victim, JobId]] = field(default_factory=list)
    comers: frozenset[RunId] = frozenset()
    over: bool = False

    def __post_init__(self) -> None:
        self._seen: Snapshot | None = self.whole
        self._rooms: FreeRoom | None = None
        self._steps_left = _MOST_STEPS
        self._promised = False

    @property
    def seen(self) -> Snapshot:
        """The snapshot without what the claims so far keep."""
        if self._seen is None:
            self._seen = without(self.whole, self.hidden, self.instances, self.slots)
        return self._seen

    @property
    def rooms(self) -> FreeRoom:
        """Room that is left by the claims so far."""
        if self._rooms is None:
            self._rooms = FreeRoom(self.seen)
        return self._rooms

    def level(self, claim: Claim) -> list[ClaimUnit]:
        """Task runs of a claim that wait, may be seen, and have no room by a claim before it.

        The first of a job may have a claim of its own, and one that it shares with the others.
        """
        ready = frozenset[RunId]().union(*(step.placed for step in self.steps))
        units = self._seen_of(claim)
        return [unit for unit in units if not ready.issuperset(_names(unit))] if ready else units

    def visible(self, units: Sequence[ClaimUnit]) -> list[ClaimUnit]:
        """Units, of some, that are not hidden so far."""
        return [unit for unit in units if not any(run.id in self.hidden for run in unit.runs)]

    def add(self, number: int, claim: Claim, level: Sequence[ClaimUnit]) -> Step:
        """Take the next claim.

        Args:
            number: Its number in the snapshot.
            claim: With the room that is kept for it.
            level: Task runs of it that wait; at least one.
        """
        step = self._step(number, claim, level)
        self.steps.append(step)
        ours = {run.id for unit in level for run in unit.runs}
        below = self._behind(claim, level)
        match step.way:
            case Way.READY:
                self._promised = True
                if step.placed != ours:
                    self._hide(below, claim)
            case Way.SMALLER | Way.YIELDED:
                self._hide(below, claim)
                self.over = True
            case Way.BEHIND:
                self._hide(level, claim)
                self._hide(below, claim)
            case Way.SHORT:
                others = [unit for unit in below if not step.placed.issuperset(_names(unit))]
                self._hide([*level, *others], claim)
                self._take_slots(claim)
                self.over = True
            case Way.OPEN:
                if claim.instances or claim.slots:
                    self.rivals.update((run.id, claim) for unit in below for run in unit.runs)
                self._hide(level, claim)
                self.instances.update(claim.instances)
                self._take_slots(claim)
                self._seen = self._rooms = None
        return step

    def finish(self, *, alone: bool = False) -> None:
        """Hide the waiting task runs that would be in the way of claims which have their room.

        Args:
            alone: Whether nobody comes after these; else task runs for which there is room, too.
        """
        placed = frozenset[RunId]().union(*(step.placed for step in self.steps))
        behind: dict[frozenset[RunId], tuple[ClaimUnit, Claim]] = {}
        for step in self.steps:
            if step.way is Way.READY:
                for unit in self._behind(step.claim, self._seen_of(step.claim)):
                    if placed.isdisjoint(_names(unit)):
                        behind.setdefault(_names(unit), (unit, step.claim))
        units = sorted((unit for unit, _ in behind.values()), key=lambda unit: precedence(unit.job))
        fitting = [] if alone else self.rooms.take(units)
        names = frozenset(_names_of(fitting))
        self.comers = names
        for unit, claim in behind.values():
            if names.isdisjoint(_names(unit)):
                self._hide([unit], claim)

    def _behind(self, claim: Claim, level: Sequence[ClaimUnit]) -> list[ClaimUnit]:
        """Rivals of a claim that may be seen, without those of claims before it."""
        before = set[RunId]()
        for step in self.steps:
            if step.claim is claim:
                break
            before.update(step.claim.runs)
        rivals = self.visible(self.rooms.rivals(claim, level))
        return [unit for unit in rivals if before.isdisjoint(_names(unit))]

    # -- inside ----------------------------------------------------------------------------------

    def _seen_of(self, claim: Claim) -> list[ClaimUnit]:
        """Task runs of a claim that wait and may be seen."""
        return self.visible(self.rooms.claimants(claim))

    def _step(self, number: int, claim: Claim, level: Sequence[ClaimUnit]) -> Step:
        ready = self.rooms.take(level) if self._may(number, Way.READY) else []
        if ready:
            placed = frozenset(run.id for unit in ready for run in unit.runs)
            return Step(number, claim, Way.READY, placed)
        if self._promised:
            return Step(number, claim, Way.BEHIND)
        if self._may(number, Way.SMALLER) and (smaller := self._fitting_if_smaller(level)):
            placed = frozenset(run.id for unit in smaller for run in unit.runs)
            return Step(number, claim, Way.SMALLER, placed)
        if self._steps_left > 0 and self._may(number, Way.YIELDED):
            seated, self._steps_left = self.rooms.seated(level, self._steps_left, claim.preemption)
            if seated:
                self.victims = [
                    (victim, unit.job.id) for unit, chosen in seated for victim in chosen
                ]
                placed = frozenset(run.id for unit, _ in seated for run in unit.runs)
                return Step(number, claim, Way.YIELDED, placed)
        if claim.complete_ms is not None and self._may(number, Way.SHORT):
            units = self._behind(claim, level)
            short = [unit for unit in units if ends_before(claim, self.whole, unit.runs)]
            if fitting := self.rooms.fitting_on(short, claim.instances):
                placed = frozenset(run.id for unit in fitting for run in unit.runs)
                return Step(number, claim, Way.SHORT, placed)
        return Step(number, claim, Way.OPEN)

    def _may(self, number: int, way: Way) -> bool:
        if self.plain and way is not Way.READY:
            return False
        return (number, way) not in self.refused

    def _fitting_if_smaller(self, level: Sequence[ClaimUnit]) -> list[ClaimUnit]:
        """Units for which there is room if elastic gangs that run are as small as they may be."""
        ours = {unit.job.id for unit in level}
        placed = {run.job for run in self.seen.runs if run.instance is not None}
        sizes = {
            job.id: job.sharing.elastic.least
            for job in resizable(self.seen)
            if job.sharing.elastic is not None
            and job.id in placed
            and job.id not in ours
            and len(job.runs) > job.sharing.elastic.least
        }
        return FreeRoom(with_sizes(self.seen, sizes)).take(level) if sizes else []

    def _take_slots(self, claim: Claim) -> None:
        for name, number in claim.slots:
            self.slots[name] = self.slots.get(name, 0) + number

    def _hide(self, units: Sequence[ClaimUnit], claim: Claim) -> None:
        for run in _names_of(units):
            self.hidden.setdefault(run, claim)


def ends_before(claim: Claim, snapshot: Snapshot, runs: Sequence[RunView]) -> bool:
    """Whether waiting task runs are known to end before the room of a claim is complete."""
    if claim.complete_ms is None:
        return False
    launch_ms = {job.id: job.delays.launch_ms for job in snapshot.jobs}
    for run in runs:
        work = run.remaining
        if work is None or work.estimated:
            return False
        if snapshot.now_ms + launch_ms[run.job] + work.at_since_ms > claim.complete_ms:
            return False
    return True


def _names(unit: ClaimUnit) -> frozenset[RunId]:
    return frozenset(run.id for run in unit.runs)


def _names_of(units: Sequence[ClaimUnit]) -> Iterator[RunId]:
    return (run.id for unit in units for run in unit.runs)
