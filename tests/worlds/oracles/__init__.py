"""Oracles: what must hold of every world, worked out from the cloud's records and the attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tests.worlds.oracles import costs, ends, instances, telling
from tests.worlds.oracles.waiting import Waits
from tests.worlds.records import Finding, Story

Oracle = Callable[[Story, Waits], Iterator[Finding]]

ORACLES: Mapping[str, Oracle] = {
    "cost": costs.costs,
    "bought-again": instances.bought_again,
    "beside-boot": instances.beside_boot,
    "idle": instances.idle,
    "unused": instances.unused,
    "launches": instances.launches,
    "ends": ends.ends,
    "preview": telling.previews,
    "eta": telling.etas,
}
"""Each by its name."""


def findings(story: Story) -> list[Finding]:
    """What the oracles object to in a story."""
    waits = Waits(story)
    return [found for oracle in ORACLES.values() for found in oracle(story, waits)]
