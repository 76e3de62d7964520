"""The page Overview: money now and so far, jobs by state, and what needs attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eva_client.cli.views.words import ago, count, money, price, share
from eva_master.adapters.pages.shown import plots
from eva_master.adapters.pages.shown.feed import EventRow, row
from eva_master.adapters.pages.shown.fleet import by_state, dollars, saving
from eva_wire.rpc.messages import Note, OverviewResponse, PricePoint
from eva_wire.text.escapes import visible
from eva_wire.values.ids import MILLION

_STATES = ("running", "pending", "suspended", "ending", "succeeded", "failed", "cancelled")
_PAGES = {"job": "/jobs/", "instance": "/cluster/", "money": "/money"}
_ROWS = 4
"""Parts of the axis of prices."""


@dataclass(frozen=True, slots=True)
class ShownNote:
    """Something that needs attention.

    Attributes:
        level: ``bad`` or ``warn``.
        subject: Name of the job, instance or budget; empty for the cluster.
        href: Path of its page; empty for none.
        advice: Remedy; empty where there is none.
        command: A command that helps; empty for none.
        when: How long ago it happened; empty for a state that lasts.
    """

    level: str
    subject: str
    href: str
    sentence: str
    advice: str
    command: str
    when: str


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many jobs are in a state."""

    state: str
    number: str
    href: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Contents of the page.

    Attributes:
        price: Per hour, of the instances that are billed.
        no_packing: Per hour, of one instance per task.
        saving: The one against the other, in words; empty where nothing runs.
        less: Whether it is a saving.
        bound: Per hour, the least that any plan with as few slowdowns costs; empty if unknown.
        saved: So far. saved_share: As a part of the costs without packing.
        plot: Prices over time; `None` before there are two points.
    """

    cluster: str
    policy: str
    release: str
    rounds: str
    price: str
    no_packing: str
    saving: str
    less: bool
    bound: str
    saved: str
    saved_share: str
    lost: bool
    cost: str
    cost_alone: str
    idle: str
    migrations: str
    instances: str
    agents: str
    states: tuple[StateCount, ...]
    tasks: str
    notes: tuple[ShownNote, ...]
    events: tuple[EventRow, ...]
    plot: plots.Plot | None
    empty: bool


def overview(message: OverviewResponse) -> Overview:
    """The page of the cluster at a glance."""
    state, bill, now = message.state, message.bill, message.state.now_ms
    paid, alone = state.price_micro_usd_per_hour, state.no_packing_micro_usd_per_hour
    saved = bill.no_packing_micro_usd - bill.cost_micro_usd
    newest = message.prices[-1] if message.prices else None
    bound = newest.bound if newest is not None and newest.HasField("bound") else None
    return Overview(
        cluster=visible(state.cluster),
        policy=visible(state.policy),
        release=state.version,
        rounds=count(state.rounds, "round"),
        price=price(paid),
        no_packing=price(alone),
        saving=saving(paid, alone),
        less=paid <= alone,
        bound="" if bound is None else price(bound),
        saved=money(abs(saved)),
        saved_share=share(abs(saved), bill.no_packing_micro_usd),
        lost=saved < 0,
        cost=money(bill.cost_micro_usd),
        cost_alone=money(bill.no_packing_micro_usd),
        idle=money(bill.idle_micro_usd),
        migrations=count(bill.migrations, "migration"),
        instances=count(message.instances, "instance"),
        agents=f"{count(state.workers_connected, 'agent')} connected",
        states=tuple(
            StateCount(name, f"{state.jobs_by_state[name]:,}", f"/jobs?state={name}")
            for name in _STATES
            if state.jobs_by_state.get(name)
        ),
        tasks=by_state(state.tasks_by_state),
        notes=tuple(_note(note, now) for note in message.notes),
        events=tuple(row(event, now) for event in reversed(message.events)),
        plot=price_plot(message.prices, now),
        empty=not state.jobs_by_state,
    )


def _note(note: Note, now: int) -> ShownNote:
    page = _PAGES.get(note.kind, "")
    return ShownNote(
        level="bad" if note.level == "bad" else "warn",
        subject=visible(note.subject),
        href=page + note.subject if page.endswith("/") else page,
        sentence=visible(note.sentence),
        advice=visible(note.advice),
        command=visible(note.command),
        when=ago(note.at_ms, now) if note.at_ms else "",
    )


def price_plot(prices: Sequence[PricePoint], now: int) -> plots.Plot | None:
    """Prices over time; `None` before there are two points."""
    if len(prices) < 2:
        return None
    first, last = prices[0].at_ms, max(prices[-1].at_ms, now)
    top = plots.nice_top(max(dollars(max(point.paid, point.no_packing)) for point in prices))
    edges = (first, 0.0), (last, top)
    bounds = [
        (point.at_ms, dollars(point.bound) if point.HasField("bound") else None) for point in prices
    ]
    lines: Mapping[str, Sequence[tuple[int, float | None]]] = {
        "no packing": [(point.at_ms, dollars(point.no_packing)) for point in prices],
        "paid": [(point.at_ms, dollars(point.paid)) for point in prices],
        "least": bounds,
    }
    curves = []
    for name, points in lines.items():
        if path := plots.steps(points, *edges):
            last_value = points[-1][1]
            said = "" if last_value is None else price(round(last_value * MILLION))
            area = "" if name == "least" else plots.closed(path)
            curves.append(plots.Curve(name, path, area, said))
    rows = tuple(
        plots.AxisTick(100 - 100 * number / _ROWS, f"${top * number / _ROWS:,.4g}")
        for number in reversed(range(_ROWS + 1))
    )
    now_said = ", ".join(f"{curve.name} {curve.last}" for curve in curves if curve.last)
    return plots.Plot(
        tuple(curves),
        rows,
        plots.times(first, last),
        f"Price per hour over the last {plots.ago(first, last)}. Now: {now_said}.",
        plots.ago(first, last),
    )
