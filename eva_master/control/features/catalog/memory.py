"""The feature's place among the others: its start and its alarm."""

from __future__ import annotations

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.features.catalog import listing
from eva_master.control.turn.turn import Feature, Turn


class CatalogMemory(Feature):
    """Has the cloud asked what it sells; the answers are in the journal."""

    wakes = frozenset({Wake.CATALOG})

    def __init__(self) -> None:
        self._begun = False

    def started(self, turn: Turn) -> None:
        """Go on as the journal has it, in a turn that users can be told of."""
        if turn.settings.catalog_period_ms is not None:
            turn.alarms.at(turn.now, Alarm(Wake.CATALOG))

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        """Ask, if it is time."""
        if self._begun:
            listing.ask(turn)
        else:
            self._begun = True
            listing.begin(turn)
