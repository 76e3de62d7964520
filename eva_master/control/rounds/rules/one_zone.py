"""The stage that keeps each gang in one availability zone, whatever its policy chose.

Policies see offerings, and know nothing of zones. A gang that a plan would tear apart is moved as a
whole: its new instances become instances of the same types in one zone, and members for which that
is not possible get other room there. A gang that runs stays where it is instead. Where no zone
sells enough for all members, the plan stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eva_master.control.rounds.rules.own_room import Bounds, own_room
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, NewInstance, PlanEntry, pooled
from eva_master.model.planning.snapshot import InstanceView, RunView
from eva_master.model.values import once
from eva_master.packing.plan_effect import PlanEffect, without_unused
from eva_master.packing.room import Place, by_offering, may_buy_one, need_on
from eva_master.packing.zones import is_within, keeps_to_one_zone, zones_of, zones_that_hold
from eva_wire.values.ids import InstanceId, RunId


@dataclass(frozen=True, slots=True)
class _Seating:
    """A gang in one zone.

    Attributes:
        effect: The plan with the gang there.
        rank: Its order among those of other zones: the price of the instances that are the gang's
            alone, then how many members are not where the plan had them, then the zone.
    """

    effect: PlanEffect
    rank: tuple[int, int, str]


def in_one_zone(
    effect: PlanEffect, bounds: Callable[[], Bounds] | None, claims: Sequence[Claim]
) -> PlanEffect:
    """A plan in which no gang begins in several zones, unless no zone holds all of it.

    Args:
        effect: The plan, on the partition with its sizes.
        bounds: Returns the limits on room that a gang gets in place of what the plan chose; `None`
            to give it no other room.
        claims: Claims on room.
    """
    now = effect.now
    if not effect.plan.entries or not _has_zones(effect):
        return effect
    fixed = {*pooled(effect.plan)}
    for unit in effect.units:
        job = unit.job
        if not keeps_to_one_zone(job.spec):
            continue
        gang = _Gang(effect, job, fixed, claims)
        if effect.is_torn(job) and not gang.stays:
            zones = zones_that_hold([run.task for run in gang.runs], now)
            if zones:
                effect = gang.together(zones, bounds and bounds())
        fixed.update(place for place in gang.places_in(effect) if isinstance(place, int))
    return effect


def _has_zones(effect: PlanEffect) -> bool:
    now = effect.now
    zones = zones_of(now.catalog).union(once(_zones, now.instances), once(_zones, now.draining))
    return len(zones) > 1


def _zones(views: tuple[InstanceView, ...]) -> frozenset[str]:
    return zones_of([view.offering for view in views])


class _Gang:
    """The members of a gang, where a plan has them.

    Args:
        effect: The plan.
        job: The gang.
        fixed: Keys of new instances that stay in their zones.
        claims: Claims on room.
    """

    def __init__(
        self, effect: PlanEffect, job: JobView, fixed: set[int], claims: Sequence[Claim]
    ) -> None:
        self._effect = effect
        self._job = job
        self._fixed = fixed
        kept = (claim for claim in claims if not {*job.runs}.intersection(claim.runs))
        self._closed: frozenset[Place] = frozenset(
            name for claim in kept for name in claim.instances
        )
        self.runs: Sequence[RunView] = [effect.runs[name] for name in job.runs]
        self._live = frozenset(view.id for view in effect.now.instances)

    @property
    def stays(self) -> bool:
        """Whether all members are in the zones after the plan in which they are now."""
        now = self._zones(run.instance for run in self.runs)
        after = self._zones(self._effect.places[run.id] for run in self.runs)
        return all(run.instance is not None for run in self.runs) and after <= now

    def places_in(self, effect: PlanEffect) -> Iterator[Place]:
        """Where a plan has its members."""
        places = effect.places
        return (place for run in self.runs if (place := places[run.id]) is not None)

    def together(self, zones: Sequence[str], bounds: Bounds | None) -> PlanEffect:
        """The plan with the gang in one zone; else it waits, or stays where it is.

        Args:
            zones: The zones that hold all of it.
            bounds: See `in_one_zone`.
        """
        bound = self._zones(run.instance for run in self.runs if run.pinned or run.running)
        if bounds is not None and len(bound) <= 1:
            options = [self._in_zone(zone, bounds) for zone in sorted(bound) or zones]
            seatings = [option for option in options if option is not None]
            if seatings:
                return min(seatings, key=lambda it: it.rank).effect
        names = ", ".join(zones)
        why = (
            f"waits for room for all its tasks in one zone ({names}); with `zones: any` in its job"
            " file they may be in several"
        )
        return self._effect.drop(dict.fromkeys(self._job.runs, why))

    def _zones(self, places: Iterable[Place | None]) -> frozenset[str]:
        return zones_of(self._effect.sited(places))

    # -- in one zone -----------------------------------------------------------------------------

    def _in_zone(self, zone: str, bounds: Bounds) -> _Seating | None:
        """The gang in a zone, where the plan has it as far as that is there."""
        moved = self._transposed(zone)
        kept: dict[RunId, Place] = {}
        for run in self.runs:
            place = moved.places[run.id]
            within = any(is_within(offering, zone) for offering in moved.sited([place]))
            if place is not None and within:
                kept[run.id] = place
            elif (stays := self._stays(moved, run, zone)) is not None:
                kept[run.id] = stays
        return self._seated(moved, kept, zone, bounds)

    def _stays(self, effect: PlanEffect, run: RunView, zone: str) -> InstanceId | None:
        """The instance that a member is on or headed for, if it is in a zone and has room still."""
        place = run.instance
        offering = None if place is None else effect.offerings.get(place)
        if place is None or offering is None or not is_within(offering, zone):
            return None
        if run.pinned or run.running:
            return place
        return place if need_on(run.task, offering).fits(effect.free(place)) else None

    def _transposed(self, zone: str) -> PlanEffect:
        """The plan with the gang's new instances in a zone, where it sells the same types."""
        effect = self._effect
        used = Counter(by_offering(effect.now.instances))
        used.update(offering.id for offering in effect.launched.values())
        ours = {*self.places_in(effect)} - self._fixed
        launches = []
        for launch in effect.plan.launches:
            old = launch.offering
            new = None if launch.key not in ours or is_within(old, zone) else self._same(old, zone)
            if new is not None and may_buy_one(new, used):
                used[old.id] -= 1
                used[new.id] += 1
                launches.append(replace(launch, offering=new))
            else:
                launches.append(launch)
        return effect.with_plan(replace(effect.plan, launches=tuple(launches)))

    def _same(self, offering: Offering, zone: str) -> Offering | None:
        """An equal type in another zone, bought in the same way; `None` if none is on sale."""
        now = self._effect.now
        return next(
            (
                listed
                for listed in now.catalog
                if listed.zone == zone
                and listed.type.name == offering.type.name
                and listed.purchase is offering.purchase is not Purchase.OWNED
                and listed.available(now.now_ms)
            ),
            None,
        )

    def _seated(
        self, effect: PlanEffect, kept: Mapping[RunId, Place], zone: str, bounds: Bounds
    ) -> _Seating | None:
        """The plan with some members where they are kept, and others on instances of their own."""
        rest = [run for run in self.runs if run.id not in kept]
        if any(run.pinned or (run.running and run.instance in self._live) for run in rest):
            return None
        places: dict[RunId, Place] = dict(kept)
        launches: list[NewInstance] = list(effect.plan.launches)
        if rest:
            others = _without(effect, {run.id for run in rest})
            room = own_room(
                others,
                self._job,
                rest,
                bounds,
                admits=partial(is_within, zone=zone),
                closed=self._closed.union(kept.values()),
            )
            if room is None:
                return None
            places.update(room.places)
            launches = [*others.plan.launches, *room.launches]
        entries = tuple(self._entries(effect.plan.entries, places))
        plan = without_unused(replace(effect.plan, launches=tuple(launches), entries=entries))
        seated = effect.with_plan(plan)
        ours = {place for place in places.values() if self._is_alone(seated, place)}
        price = sum(seated.offerings[place].price for place in ours if place in seated.offerings)
        before = self._effect.places
        elsewhere = sum(before[run] != place for run, place in places.items())
        return _Seating(seated, (price, elsewhere, zone))

    def _entries(
        self, entries: Sequence[PlanEntry], places: Mapping[RunId, Place]
    ) -> Iterator[PlanEntry]:
        """The entries of a plan, with the gang's members at some places."""
        ours = [
            Assign(run.id, places[run.id]) for run in self.runs if places[run.id] != run.instance
        ]
        for entry in entries:
            if entry.run not in places:
                yield entry
            elif ours:
                yield from ours
                ours = []

    def _is_alone(self, effect: PlanEffect, place: Place) -> bool:
        return all(run.job == self._job.id for run in effect.occupants.get(place, ()))


def _without(effect: PlanEffect, runs: set[RunId]) -> PlanEffect:
    """A plan without the entries of some task runs, and without launches for these alone."""
    entries = tuple(entry for entry in effect.plan.entries if entry.run not in runs)
    return effect.with_plan(without_unused(replace(effect.plan, entries=entries)))
