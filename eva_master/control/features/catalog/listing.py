"""A catalog that changes while the master runs.

The cloud is asked from time to time what it sells. The answer is an event like any other, and the
control loop takes it in between two plans: the catalog of the state is replaced as a whole, so that
everything made of it is made anew, and a plan that was requested before is checked against the new
one, as it is after a refused launch. A gone offering is launched no more. Instances keep the
offering that they were launched of, and those of an offering whose price has changed are billed
at the new one from then on, as the cloud does it.

The adapter writes the catalog down for the next start before it answers. Should the master end
between the two, it starts with the new catalog, and tells the difference to the catalog that the
journal has. So nobody has to know in which order the two were written.
"""

from __future__ import annotations

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.context import Context
from eva_master.control.features.catalog.differences import in_words
from eva_master.control.measure import ledger, memory
from eva_master.control.turn.turn import Turn
from eva_master.learning.memory_sizes import MemorySizes
from eva_master.model.actions import ListCatalog
from eva_master.model.catalog import Catalog, Purchase
from eva_master.model.events import CatalogListed
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.fleet.listing import CatalogListing
from eva_master.model.values import replace
from eva_wire.values.durations import span
from eva_wire.values.ids import Millis

PAUSE_MS = 3_600_000
"""The pause after the first request without an answer; it doubles with each failure."""
LONGEST_PAUSE_MS = 86_400_000


def begin(turn: Turn) -> None:
    """Go on as the journal has it, and tell what has changed since it was written."""
    state, old, age_ms = turn.state, turn.state.listing, turn.settings.catalog_age_ms
    asked_ms = old.asked_ms
    if age_ms is not None:
        taken_ms = Millis(turn.now - age_ms)
        asked_ms = taken_ms if asked_ms is None else Millis(max(taken_ms, asked_ms))
    if asked_ms != old.asked_ms:
        old = CatalogListing(asked_ms, catalog=old.catalog)
    if old.catalog:
        _tell(turn, in_words(old.catalog, _of_cloud(state.catalog)))
    due_ms = turn.now if asked_ms is None else asked_ms + _period_ms(turn)
    if due_ms <= turn.now:  # Requests without an answer may have been made.
        due_ms = max(turn.now, old.next_ms)
    _await(turn, replace(old, catalog=_of_cloud(state.catalog)), due_ms)


def ask(turn: Turn) -> None:
    """Ask the cloud if it is time; without an answer it is asked again after a while."""
    old = turn.state.listing
    if turn.now >= old.next_ms:
        turn.outbox.add(ListCatalog())
        _await(turn, old, turn.now + _pause_ms(old.failures))


def listed(context: Context, event: CatalogListed) -> None:
    """Have an answer apply; without one the present catalog stays, which is told once."""
    old = context.state.listing
    if context.settings.catalog_period_ms is None:
        return
    if event.catalog is not None:
        _sell(context, event.catalog)
        _tell(context, in_words(old.catalog, event.catalog))
        new = CatalogListing(context.now, catalog=event.catalog)
        _await(context, new, context.now + _period_ms(context))
        return
    pause_ms = _pause_ms(old.failures)
    if not old.failures:
        text = f"the cloud does not say what it sells, so the present catalog stays: {event.error}"
        _tell(context, f"{text}; it is asked again in {span(pause_ms)}")
    new = replace(old, failures=old.failures + 1, error=event.error)
    _await(context, new, context.now + pause_ms)


def _sell(context: Context, catalog: Catalog) -> None:
    """Replace the offerings of the cloud."""
    state = context.state
    present = {offering.id: offering for offering in state.catalog}
    prices = {offering.id: offering.machine_price for offering in catalog}
    for name in tuple(state.live):
        ledger.book(state, name, context.now)
        instance = state.instances[name]
        if not instance.owned and (price := prices.get(instance.offering.id)) is not None:
            context.put_instance(instance.at_price(price, context.now))
    fresh = [
        offering
        if (before := present.get(offering.id)) is None
        else replace(
            offering,
            unavailable_until=before.unavailable_until,
            why_unavailable=before.why_unavailable,
        )
        for offering in catalog
    ]
    owned = (offering for offering in state.catalog if offering.purchase is Purchase.OWNED)
    state.set_catalog((*fresh, *owned))
    sizes = MemorySizes.of(state.catalog)
    state.remember(replace(state.sizes, listed=sizes.listed))
    memory.fit(state)
    context.plan_wanted = True


def _await(turn: Turn, listing: CatalogListing, next_ms: int) -> None:
    """Write down how things stand, and have the cloud asked at a time."""
    listing = replace(listing, next_ms=Millis(next_ms))
    if listing != turn.state.listing:
        turn.state.remember(listing)
    turn.alarms.at(listing.next_ms, Alarm(Wake.CATALOG))


def _tell(turn: Turn, text: str) -> None:
    if text:
        turn.news.append(FeedEvent(0, turn.now, FeedKind.CATALOG, text=text))


def _of_cloud(catalog: Catalog) -> Catalog:
    """The offerings of a catalog that the cloud sells, without what it said of their capacity."""
    return tuple(
        replace(offering, unavailable_until=None, why_unavailable="")
        for offering in catalog
        if offering.purchase is not Purchase.OWNED
    )


def _period_ms(turn: Turn) -> int:
    assert turn.settings.catalog_period_ms is not None
    return turn.settings.catalog_period_ms


def _pause_ms(failures: int) -> int:
    return min(PAUSE_MS << min(failures, 10), LONGEST_PAUSE_MS)
