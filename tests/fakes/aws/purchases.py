"""A purchase meter: how often something was bought in a row with nothing to show for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eva_master.adapters.store.journal import SqlJournal
from tests.fakes.aws.service import Aws

MOST_IN_A_ROW = 4
"""So often an offering may be bought before one of its instances has registered."""


@dataclass(frozen=True)
class Purchase:
    """A launch in the endpoint's own record.

    Attributes:
        at_ms: When it was asked for.
        instance: The cluster's name of it.
        offering: ``TYPE@ZONE``, with ``/spot`` if it was bought on the spot market.
    """

    at_ms: int
    instance: str
    offering: str


def purchases(aws: Aws, cluster: str = "") -> list[Purchase]:
    """Purchases, oldest first; of all clusters if none is given."""
    return [
        Purchase(round(it["at"] * 1000), it["instance"], it["offering"])
        for it in aws.purchases()
        if cluster in ("", it["cluster"])
    ]


def in_a_row(bought: Iterable[Purchase], ready_ms: Mapping[str, int | None]) -> dict[str, int]:
    """How often each offering was bought at most before one of its instances registered.

    Args:
        bought: Everything that was.
        ready_ms: When the worker of an instance registered, by the cluster's name of it.
    """
    events: list[tuple[int, int, str]] = []
    for it in bought:
        events.append((it.at_ms, 1, it.offering))
        if (ready := ready_ms.get(it.instance)) is not None:
            events.append((ready, 0, it.offering))
    row: Counter[str] = Counter()
    most: dict[str, int] = {}
    for _, buys, offering in sorted(events):
        row[offering] = row[offering] + 1 if buys else 0
        most[offering] = max(most.get(offering, 0), row[offering])
    return most


def check(
    bought: Iterable[Purchase], ready_ms: Mapping[str, int | None], most: int = MOST_IN_A_ROW
) -> None:
    """Nothing was bought again and again although it never became of use."""
    found = {name: row for name, row in in_a_row(bought, ready_ms).items() if row > most}
    assert not found, f"bought in a row with no worker that registered: {found}"


def check_ended(aws: Aws, journal: Path, cluster: str = "") -> None:
    """Check a cluster whose master has ended, by its journal's file."""
    if journal.exists():
        with SqlJournal.open(f"sqlite:///{journal}") as written:
            ready_ms = {str(it.id): it.ready_ms for it in written.load().instances}
        check(purchases(aws, cluster), ready_ms)
