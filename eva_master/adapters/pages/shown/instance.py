"""The page of an instance: its tasks, its bill and the reasons for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eva_client.cli.views import explanation, instance_words
from eva_client.cli.views.words import money, price
from eva_master.adapters.pages.shown.colours import Colour, colour_of
from eva_master.adapters.pages.shown.feed import EventRow, row
from eva_master.adapters.pages.shown.fleet import amounts, full_name, job_of
from eva_master.adapters.pages.shown.tables import PagePart, parts
from eva_wire.rpc.messages import Explanation, FeedEvent, Instance, PlacedTask
from eva_wire.values.durations import span


@dataclass(frozen=True, slots=True)
class OccupantRow:
    """A task on the instance."""

    job: str
    name: str
    colour: Colour
    amounts: str
    note: str


@dataclass(frozen=True, slots=True)
class InstancePage:
    """Contents of the page.

    Attributes:
        bill: Its cost so far, in a sentence.
        why: Output of `eva explain`.
    """

    id: str
    type: str
    zone: str
    state: str
    price: str
    note: str
    bill: str
    tasks: tuple[OccupantRow, ...]
    why: tuple[PagePart, ...]
    events: tuple[EventRow, ...]


def instance(
    message: Instance, explained: Explanation | None, events: Sequence[FeedEvent], now: int
) -> InstancePage:
    """The page.

    Args:
        message: The instance, with the tasks on it.
        explained: The reasons for it; `None` where none are kept.
        events: Its events.
        now: The time.
    """
    newest = sorted(events, key=lambda event: -event.number)
    return InstancePage(
        id=message.id,
        type=message.type + (" on the spot market" if message.purchase == "spot" else ""),
        zone=message.zone,
        state=message.state,
        price=price(message.price_micro_usd_per_hour),
        note=instance_words.note(message, now),
        bill=_bill(message),
        tasks=tuple(_occupant(task) for task in message.placed),
        why=() if explained is None else parts(explanation.explain(explained)),
        events=tuple(row(event, now) for event in newest),
    )


def _bill(message: Instance) -> str:
    if not message.HasField("cost"):
        return "Nothing is billed yet."
    cost = message.cost
    idle = f", {money(cost.idle_micro_usd)} of it idle" if cost.idle_micro_usd else ""
    return f"{money(cost.cost_micro_usd)} for {span(cost.billed_ms)}{idle}."


def _occupant(task: PlacedTask) -> OccupantRow:
    job = job_of(task.task)
    pace = f", at {round(100 * task.normalised)} % of its pace alone" if task.normalised else ""
    note = f"moves to {task.target}" if task.target else task.state
    return OccupantRow(job, full_name(task), colour_of(job), amounts(task.share), note + pace)
