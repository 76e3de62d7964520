"""Spot instances: what they are worth, and what is done when the cloud wants one back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eva_master.control.context import Context
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.control.state.records import Records
from eva_master.control.supply import availability
from eva_master.control.turn.rounds import RoundMemory
from eva_master.learning.market.spot_market import pool_of
from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.events import InstanceInterrupted
from eva_master.model.records import Instance
from eva_master.packing.valuation import delays
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Millis, OfferingId, Price
from eva_wire.values.states import LIVE, InstanceState

_UPLOAD_MS = 15_000
"""Time between the end of an instance's tasks and its own, in which their last files are stored."""


def valued(
    offerings: Iterable[Offering], state: Records, settings: Settings, now: Millis
) -> Catalog:
    """Offerings as policies see them: priced per hour of work instead of per hour.

    After an interruption the tasks start elsewhere, and a new instance boots, presumably of the
    same price. A pool that has just come back is soon gone again.
    """
    held = _held(state)
    return tuple(
        offering
        if offering.purchase is not Purchase.SPOT
        else _valued(
            offering, state.market.rate_ppm(offering, now, held=offering.id in held), settings
        )
        for offering in offerings
    )


def expected_price(state: Records, offering: Offering, settings: Settings, now: Millis) -> int:
    """The price of an instance as policies see it, in micro-dollars per hour.

    Args:
        state: Records with learned delays and the spot market.
        offering: The offering of the instance.
        settings: Assumed delays.
        now: The time.
    """
    machine = delays.booting(state.learned.delays, offering.type)
    (shown,) = valued((replace(offering, type=machine),), state, settings, now)
    return shown.price


def _valued(offering: Offering, rate: int, settings: Settings) -> Offering:
    if rate == 0:
        return offering
    lost_ms = offering.type.boot_ms + settings.assumed_delays.change_ms
    extra = offering.price * rate * lost_ms // (MILLION * MILLIS_PER_HOUR)
    return replace(offering, price=Price(offering.price + extra))


def _held(state: Records) -> set[OfferingId]:
    """Spot offerings with a live instance, which have not run dry."""
    live = [state.instances[name] for name in state.live]
    spot = [instance for instance in live if instance.offering.purchase is Purchase.SPOT]
    return {
        instance.offering.id
        for instance in spot
        if instance.up_ms is not None and instance.leaving_ms is None
    }


def sold(context: Context, offering: Offering) -> None:
    """Note that a launch made an instance, which the records do not have as up yet."""
    if offering.purchase is Purchase.SPOT:
        state = context.state
        held = offering.id in _held(state)
        state.remember(state.market.sold(offering, context.now, held=held))


def refused(context: Context, instance: Instance, retry_at: Millis, why: str) -> Millis:
    """Note that the cloud refused a launch; for a spot instance there is a plan at once.

    A spot pool that has run dry is dry for minutes or hours, and nobody says when it is back: the
    pauses between two tries grow while it refuses: see `SpotPools.refused`.

    Returns:
        When the offering may be tried again.
    """
    offering, state = instance.offering, context.state
    if offering.purchase is not Purchase.SPOT:
        return retry_at
    context.memory(RoundMemory).refused.add(
        context.settings.partitions.home(instance.partition).name
    )
    held = offering.id in _held(state)
    state.remember(state.market.refused(offering, context.now, held=held))
    until = max(retry_at, state.market.pools.retry_ms(pool_of(offering)))
    _doubt_others(context, offering, until, why)
    return until


def _doubt_others(context: Context, offering: Offering, until: Millis, reason: str) -> None:
    """Avoid the spot offerings similar to a refused one for the same time.

    A zone is often dry for a whole family. Otherwise a waiting task would be sent from one such
    offering to the next, all of which are cheaper than on-demand ones. Offerings with a live
    instance are not dry.
    """
    held = _held(context.state)
    alike = [
        listed.id
        for listed in context.state.catalog
        if listed.purchase is Purchase.SPOT
        and (listed.zone, listed.type.family) == (offering.zone, offering.type.family)
        and listed.id not in held
        and listed.available(context.now)
    ]
    if alike:
        why = f"{offering.id} was refused just now: {reason}"
        availability.refuse(context, alike, until, why)


def interrupted(context: Context, event: InstanceInterrupted) -> None:
    """The cloud will take an instance away: its tasks are stopped now, and planned anew."""
    instance = context.state.instances.get(event.instance)
    if instance is None or instance.state not in LIVE or instance.leaving_ms is not None:
        return
    if instance.owned:  # No cloud takes it away.
        return
    if event.session != context.state.sessions.get(event.instance):
        return
    if event.at_ms is None:
        _recommended(context, instance, event.reason)
        return
    ledger.count_interruption(context.state, instance.id)
    context.put_instance(replace(instance, leaving_ms=event.at_ms, reason=event.reason))
    context.abandon(instance.id)
    context.plan_wanted = True


def _recommended(context: Context, instance: Instance, reason: str) -> None:
    """Move tasks off an instance that the cloud may take away; they run on until they can move.

    No task gets a place there any more, and policies see its tasks as without a place. A new
    instance in the same pool would soon be at the same risk, so none is launched for a while.
    """
    occupancies = context.settings.rebalance_ms == 0
    if instance.at_risk or occupancies:
        context.put_instance(replace(instance, reason=reason))
        return
    context.put_instance(replace(instance, at_risk=True, reason=reason))
    for run in context.state.places.targeting(instance.id):
        if run.instance == instance.id:
            context.state.view_cache.job_changed(run.job)
        else:
            context.turn_back(run, instance.id)
    until = Millis(context.now + context.settings.rebalance_ms)
    availability.refuse(
        context, [instance.offering.id], until, f"{instance.id} was at risk there: {reason}"
    )
    context.plan_wanted = True


def in_time(instance: Instance, grace_ms: int, now: Millis) -> int:
    """The part of a grace period that is over before the instance is taken away."""
    if instance.leaving_ms is None:
        return grace_ms
    return max(0, min(grace_ms, instance.leaving_ms - _UPLOAD_MS - now))


def note_end(context: Context, instance: Instance) -> None:
    """Learn from the end of an instance, which was not the master's doing if it was in use."""
    if instance.offering.purchase is not Purchase.SPOT:
        return
    if instance.up_ms is None or instance.gone_ms is None:
        return
    unasked = instance.state is not InstanceState.TERMINATING
    lived_ms = max(0, instance.gone_ms - instance.up_ms)
    taken = unasked or instance.leaving_ms is not None or instance.at_risk
    state, offering = context.state, instance.offering
    if unasked and instance.leaving_ms is None:
        ledger.count_interruption(state, instance.id)
    state.remember(state.market.ended(offering, instance.gone_ms, lived_ms, interrupted=taken))
