"""Oracles: what must hold of every world, worked out from the cloud's records and the attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tests.worlds.oracles import beside, costs, ends, instances, needs, telling, turns
from tests.worlds.oracles.waiting import Waits
from tests.worlds.records import Finding, Story
from tests.worlds.world import World

Run = Callable[[World, str], Story]
Oracle = Callable[[Story, Waits], Iterator[Finding]]

ORACLES: Mapping[str, Oracle] = {
    "cost": costs.costs,
    "bought-again": instances.bought_again,
    "beside-boot": instances.beside_boot,
    "idle": instances.idle,
    "unused": instances.unused,
    "launches": instances.launches,
    "ends": ends.ends,
    "room": needs.room,
    "secret": needs.secrets,
    "turn": turns.turns,
    "urgent": turns.overtaken,
    "preview": telling.previews,
    "eta": telling.etas,
}
"""Each by its name."""


def findings(story: Story) -> list[Finding]:
    """Objections of the oracles to a story."""
    waits = Waits(story)
    return [found for oracle in ORACLES.values() for found in oracle(story, waits)]


def findings_beside(story: Story, run: Run) -> list[Finding]:
    """Objections of the oracles that look at the same world in another way.

    Args:
        run: Runs a world under a policy.
    """
    found = list(beside.dearer(story, run(story.world, "no_packing")))
    if len({job.priority for job in story.world.jobs}) > 1:
        found += beside.urgent(story, run(beside.equal(story.world), story.policy))
    return found
