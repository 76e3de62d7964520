"""Stage that keeps a plan off claimed room, whatever its policy makes of claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from eva_master.control.planning.validate_plan import Decision
from eva_master.control.planning.validate_sizes import without_sizes
from eva_master.control.rounds.rules import caps
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.plan import Assign, ExtraRun, Hold, Plan
from eva_master.model.planning.snapshot import InstanceView, RunView
from eva_master.packing.claims.walk import ends_before
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_master.packing.room import by_offering, more_of
from eva_wire.values.ids import InstanceId, OfferingId, RunId, job_of


def kept_off(effect: PlanEffect, claims: Sequence[Claim]) -> PlanEffect:
    """The part of a plan that leaves claimed room to the claimants.

    Claims whose task runs all get a place by the plan, or stand in a line, keep no room. Task runs
    that are known to end before the room of a claim is complete may use it, and so may task runs
    of a higher priority.

    Args:
        effect: The plan, with everything that is to begin, on the cluster with its sizes.
        claims: The claims that the policy was shown.
    """
    pending = [claim for claim in claims if not _satisfied(claim, effect)]
    if not pending:
        return effect
    cap = _ClaimCap(effect, claims, pending)
    kept = caps.within(effect, cap)
    entries = tuple(
        entry
        for entry in kept.plan.entries
        if not (isinstance(entry, ExtraRun) and cap.claimed(entry.run, entry.on))
    )
    if len(entries) < len(kept.plan.entries):
        kept = kept.with_plan(replace(kept.plan, entries=entries))
    running = {view.job for view in effect.now.runs if view.instance is not None}
    resized = running.intersection(entry.job for entry in kept.plan.sizes)
    held = effect.assigned.keys() - kept.assigned.keys() if resized else ()
    torn = resized.intersection(map(job_of, held))
    return kept.with_plan(without_sizes(effect.now, kept.plan, torn)) if torn else kept


def claimants_first(plan: Plan, claims: Sequence[Claim]) -> Plan:
    """A plan whose entries of claimants come before all others, in the order of their claims.

    Limits and quotas cut a plan by priority, then in its order. Else they could leave room to
    others of the claimant's priority, which claims then keep off: it would stand empty.
    """
    rank: dict[RunId, int] = {}
    for number, claim in enumerate(claims):
        for run in claim.runs:
            rank.setdefault(run, number)
    entries = tuple(sorted(plan.entries, key=lambda entry: rank.get(entry.run, len(claims))))
    return plan if entries == plan.entries else replace(plan, entries=entries)


def others_wait(decision: Decision, claims: Collection[Claim]) -> bool:
    """Whether task runs come to claimed room while others wait for kept room.

    Args:
        decision: The part of a plan that is carried out.
        claims: Claims in the snapshot of the plan.
    """
    prefixes = tuple({claim.refusal for claim in claims})  # a limit may be named after it
    if not any(reason.startswith(prefixes) for _, reason in decision.holds):
        return False
    kept = {name for claim in claims for name in claim.instances}
    runs = {run for claim in claims for run in claim.runs}
    return any(run in runs or where in kept for run, where in decision.places)


class _ClaimCap:
    """Counts launches while the units of a plan are placed one after the other.

    Args:
        effect: The plan.
        claims: All claims, in their order of precedence.
        pending: The claims whose task runs the plan leaves waiting.
    """

    def __init__(
        self, effect: PlanEffect, claims: Iterable[Claim], pending: Sequence[Claim]
    ) -> None:
        present = self._present = effect.now
        self._runs = effect.runs
        self._priorities = {view.id: view.priority for view in present.jobs}
        self._claim_of: dict[InstanceId | int, Claim] = {}
        self._slots: Counter[OfferingId] = Counter()
        self._rank: dict[RunId, int] = {}
        """The number of each claimant's claim: a smaller one takes precedence."""
        self._number = {(claim.job, claim.runs): number for number, claim in enumerate(claims)}
        for number, claim in enumerate(claims):
            for run in claim.runs:
                self._rank.setdefault(run, number)
        self._pending = pending
        for claim in pending:
            for name in claim.instances:
                self._claim_of.setdefault(name, claim)
            self._slots.update(dict(claim.slots))
        self._told = {name: claim.refusal for claim in reversed(pending) for name, _ in claim.slots}
        self._offerings = {key: sold.id for key, sold in effect.launched.items()}
        used = by_offering(present.instances)
        self._room = {
            offering.id: more - self._slots[offering.id]
            for offering in present.catalog
            if (more := more_of(offering, used)) is not None and self._slots[offering.id]
        }
        self._free = {where for run, where in effect.assigned.items() if run in self._rank}
        """The new instances of claimants, and new instances that are counted already."""

    def refusal(self, unit: Unit) -> str:
        """The reason for which a unit may not take claimed room; empty if it takes none."""
        for entry in unit.entries:
            claim = self.claimed(entry.run, entry.on)
            if claim is not None:
                return claim.refusal
        new = Counter(self._offerings[key] for key in self._new(unit))
        for name, number in new.items():
            if name in self._room and number > self._room[name]:
                return self._told[name]
        return ""

    def claimed(self, run: RunId, where: InstanceId | int) -> Claim | None:
        """The claim on an instance to which a task run would come; `None` if there is none."""
        claim, view = self._claim_of.get(where), self._runs[run]
        if claim is None or view.instance == where:
            return None
        number = self._number[claim.job, claim.runs]
        if self._rank.get(run, number + 1) <= number or self._comes_first(run, claim):
            return None
        return None if ends_before(claim, self._present, [view]) else claim

    def _comes_first(self, run: RunId, claim: Claim) -> bool:
        """Whether a task run is more urgent than those for which room is kept."""
        return self._priorities[self._runs[run].job] > claim.priority

    def take(self, unit: Unit) -> None:
        """Place a unit."""
        for key in self._new(unit):
            self._count(key)

    def too_many(self, members: Sequence[int]) -> set[int]:
        """New members of pools in claimed slots."""
        gone = set()
        for key in members:
            if key in self._free:
                continue
            if self._room.get(self._offerings[key], 1) > 0:
                self._count(key)
            else:
                gone.add(key)
        return gone

    def _count(self, key: int) -> None:
        name = self._offerings[key]
        if name in self._room:
            self._room[name] -= 1
        self._free.add(key)

    def _new(self, unit: Unit) -> list[int]:
        """New instances that a unit is the first to use; none if it has a claim or comes first."""
        first = unit.entries[0].run
        if any(entry.run in self._rank for entry in unit.entries) or all(
            self._comes_first(first, claim) for claim in self._pending
        ):
            return []
        keys = dict.fromkeys(entry.on for entry in unit.entries if isinstance(entry.on, int))
        return [key for key in keys if key not in self._free and key in self._offerings]


def _satisfied(claim: Claim, effect: PlanEffect) -> bool:
    """Whether all task runs of a claim that are still there get a place, or stand in a line."""
    lined = {job for line in effect.plan.lines for job in line.jobs}
    waiting = [run for run in claim.runs if run in effect.runs and run not in effect.assigned]
    return all(job_of(run) in lined for run in waiting)


def seated(effect: PlanEffect, wanted: PlanEffect, claims: Collection[Claim]) -> PlanEffect:
    """A plan that gives claimed room to claimants whose purchase a limit forbids.

    A policy that knows no limit on instances may buy an instance for a claimant and give the
    claimed room to others. The limit cuts the purchase, the others are kept off, and the room would
    stand empty. Each such claimant gets an empty instance of its claim, a gang as a whole.

    Args:
        effect: The policy's plan, as limits leave it.
        wanted: The policy's plan.
        claims: All claims, in their order of precedence.
    """
    if not claims:
        return effect
    bought = {run for run, where in wanted.assigned.items() if isinstance(where, int)}
    held = effect.held.keys() & bought
    if not held:
        return effect
    taken = {*effect.assigned.values()}
    empty = {
        view.id: view
        for view in effect.now.instances
        if not view.residents and not view.pool and view.id not in taken
    }
    runs = effect.runs
    seats = dict[RunId, InstanceId]()
    for claim in claims:
        waiting = [
            runs[name] for name in claim.runs if name in runs and runs[name].instance is None
        ]
        if waiting and all(run.id in held for run in waiting):
            rooms = [empty[name] for name in claim.instances if name in empty]
            seating = dict(_seats(waiting, rooms))
            if len(seating) == len(waiting):
                seats.update(seating)
                empty = {name: view for name, view in empty.items() if name not in seating.values()}
    if not seats:
        return effect
    entries = (
        Assign(entry.run, seats[entry.run])
        if isinstance(entry, Hold) and entry.run in seats
        else entry
        for entry in effect.plan.entries
    )
    return effect.with_plan(replace(effect.plan, entries=tuple(entries)))


def _seats(
    waiting: Collection[RunView], rooms: list[InstanceView]
) -> Iterator[tuple[RunId, InstanceId]]:
    """The first instance that fits each task run and has no other one."""
    free = list(rooms)
    for run in waiting:
        for view in free:
            kind = view.offering.type
            need = run.task.demand_on(kind.family)
            if need is not None and need.fits(kind.capacity):
                free.remove(view)
                yield run.id, view.id
                break
