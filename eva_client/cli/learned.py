"""The command that shows what the cluster has learned: interference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from eva_client.cli.session import (
    CommandSession,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
)
from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import ago, plain
from eva_wire.values.durations import span
from eva_wire.values.ids import MILLION

if TYPE_CHECKING:
    from eva_wire.rpc.messages import (
        Interference,
        Learned,
        LearnedDelay,
        LearnedPool,
        StandaloneRate,
    )


_OF_WORKLOADS = ("checkpoint", "start")
"""Kinds of delays that jobs teach; the others are those of instance types."""


@click.command()
@json_option
@address_option
@pass_session
def interference(session: CommandSession, as_json: bool) -> None:
    """Show what was learned: interference between tasks, delays of moves, and spot pools."""
    with session.client() as client:
        learned = client.interference()
    if as_json:
        print_json(shape(learned))
    elif learned.standalone or learned.interference or learned.delays or learned.pools:
        console().print(tables(learned))
    else:
        click.echo("nothing was measured yet")


def tables(message: Learned) -> RenderableType:
    """Make a table for each kind of learned values."""
    parts: list[RenderableType] = []
    for entries, title, draw in (
        (message.standalone, "alone on an instance", _standalone),
        (message.interference, "beside others", _interference),
        (message.delays, "delays", _delays),
        (message.pools, "spot pools", _pools),
    ):
        if entries:
            parts += [Text()] if parts else []
            parts += [Text(title, style="bold"), draw(message)]
    return Group(*parts)


def _standalone(message: Learned) -> RenderableType:
    table = Grid(
        *("WORKLOAD", "FAMILY", "IT/S", "STATED", "WINDOWS", "MEASURED", "TAUGHT BY"),
        right=("IT/S", "STATED", "WINDOWS"),
        drop=("STATED", "WINDOWS", "MEASURED", "TAUGHT BY"),
    )
    for entry in message.standalone:
        table.add_row(
            plain(entry.workload),
            entry.family,
            _rate(entry.rate),
            _rate(entry.stated),
            str(entry.windows),
            ago(entry.measured_ms, message.now_ms),
            _taught_by(entry.owner),
        )
    return table


def _interference(message: Learned) -> RenderableType:
    table = Grid(
        *("WORKLOAD", "BESIDE", "NORMALISED", "WINDOWS", "MEASURED", "TAUGHT BY"),
        right=("NORMALISED", "WINDOWS"),
        drop=("WINDOWS", "MEASURED", "TAUGHT BY"),
    )
    for entry in message.interference:
        table.add_row(
            plain(entry.workload),
            plain(" + ".join(entry.others)),
            f"{entry.throughput_ppm / MILLION:.3f}",
            str(entry.windows),
            ago(entry.measured_ms, message.now_ms),
            _taught_by(entry.owner),
        )
    return table


def _delays(message: Learned) -> RenderableType:
    table = Grid(
        *("DELAY", "OF", "SECONDS", "MEASUREMENTS", "MEASURED", "TAUGHT BY"),
        right=("SECONDS", "MEASUREMENTS"),
        drop=("MEASURED", "TAUGHT BY"),
    )
    for delay in message.delays:
        table.add_row(
            delay.kind,
            plain(delay.name),
            f"{delay.delay_ms / 1000:.1f}",
            str(delay.measurements),
            ago(delay.measured_ms, message.now_ms),
            _taught_by(delay.owner) if delay.kind in _OF_WORKLOADS else "-",
        )
    return table


def _pools(message: Learned) -> RenderableType:
    table = Grid(
        *("POOL", "SEEN", "WAS", "SINCE", "STILL SO IN 1 H", "REFUSED", "NEXT TRY"),
        right=("STILL SO IN 1 H", "REFUSED"),
        drop=("REFUSED", "SEEN", "NEXT TRY"),
    )
    for pool in message.pools:
        later = pool.retry_ms - message.now_ms
        table.add_row(
            plain(pool.name),
            ago(pool.seen_ms, message.now_ms),
            "there" if pool.there else "dry",
            ("" if pool.began else "before ") + ago(pool.since_ms, message.now_ms),
            f"{100 * pool.stays_ppm / MILLION:.0f} %",
            str(pool.tries or "-"),
            f"in {span(later)}" if later > 0 else "-",
        )
    return table


def _taught_by(owner: str) -> str:
    """Name of the owner or tenant that taught a figure, or "others" for several."""
    return plain(owner) if owner else "others"


def _rate(rate: float) -> str:
    return f"{rate:.3g}" if rate else "-"


def shape(message: Learned) -> dict[str, Any]:
    """The output of ``--json``; see `eva_client.cli.views.shapes`."""
    return {
        "now_ms": message.now_ms,
        "standalone": [_standalone_shape(entry) for entry in message.standalone],
        "interference": [_interference_shape(entry) for entry in message.interference],
        "delays": [_delay_shape(delay) for delay in message.delays],
        "pools": [_pool_shape(pool) for pool in message.pools],
    }


def _standalone_shape(one: StandaloneRate) -> dict[str, Any]:
    return {
        "workload": one.workload,
        "family": one.family,
        "steps_per_second": one.rate or None,
        "stated_steps_per_second": one.stated or None,
        "owner": one.owner or None,
        "windows": one.windows,
        "measured_ms": one.measured_ms or None,
    }


def _interference_shape(one: Interference) -> dict[str, Any]:
    return {
        "workload": one.workload,
        "beside": list(one.others),
        "normalised_throughput": one.throughput_ppm / MILLION,
        "owner": one.owner or None,
        "windows": one.windows,
        "measured_ms": one.measured_ms or None,
    }


def _delay_shape(one: LearnedDelay) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "of": one.name,
        "delay_ms": one.delay_ms,
        "owner": one.owner or None,
        "measurements": one.measurements,
        "measured_ms": one.measured_ms or None,
    }


def _pool_shape(one: LearnedPool) -> dict[str, Any]:
    return {
        "pool": one.name,
        "there": one.there,
        "since_ms": one.since_ms,
        "since_known": one.began,
        "seen_ms": one.seen_ms,
        "refused": one.tries,
        "retry_ms": one.retry_ms or None,
        "still_so_in_an_hour": one.stays_ppm / MILLION,
    }
