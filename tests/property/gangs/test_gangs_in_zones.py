"""Whatever policies choose and whatever goes wrong, a gang runs in one zone if one holds it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.app.policy_registry import find_policies
from eva_master.model.catalog import Catalog
from eva_master.ports import Policy
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId
from tests.drawing import drawn
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld
from tests.fakes.policies.sizes import Fickle
from tests.property.test_control_loop import (
    CATALOG,
    CHAOS_MS,
    Story,
    _check_end,
    _check_gangs,
    _check_now,
    _live,
    _stuck,
    _world,
    stories,
)

ANY = 10**6


def in_zone(zone: str, *limits: int | None) -> Catalog:
    """The three types in a zone; a limit of 0 is a type that is not sold there."""
    return tuple(
        replace(offering, zone=zone, limit=limit)
        for offering, limit in zip(CATALOG, limits, strict=True)
        if limit != 0
    )


CATALOGS: dict[str, Catalog] = {
    "alike": (*in_zone("a", None, None, None), *in_zone("b", None, None, None)),
    "apart": (*in_zone("a", 0, 0, None), *in_zone("b", None, 0, 0), *in_zone("c", 0, None, 0)),
    "scarce": (*in_zone("a", 1, 1, 1), *in_zone("b", 0, 0, 3), *in_zone("c", 0, 2, 0)),
    "too small": (*in_zone("a", 1, 1, 2), *in_zone("b", 1, 0, 2)),
    "with others": (
        *in_zone("a", 2, 0, None),
        *in_zone("b", 0, 2, None),
        *in_zone("local", 1, 0, 0),
    ),
}


@dataclass
class Placements:
    """Where members of gangs began, by the cloud's own list of machines."""

    world: ChaoticWorld
    catalog: Catalog

    def zones(self) -> dict[tuple[JobId, int], set[str]]:
        """The zones of each attempt of each gang."""
        machines = self.world.cloud.bill()
        zones: defaultdict[tuple[JobId, int], set[str]] = defaultdict(set)
        for run, attempt, instance in self.world.history.starts:
            order = self.world.history.orders[run, attempt]
            if order.gang is not None:
                zones[order.job, attempt].add(machines[instance].offering.zone)
        return {key: reached - {"local"} for key, reached in zones.items()}

    def held(self, cpus: int, members: int) -> bool:
        """Whether one zone sells room for so many tasks of so many vCPUs each."""
        for zone in {offering.zone for offering in self.catalog} - {"local"}:
            room = sum(
                (ANY if offering.limit is None else offering.limit)
                * (offering.type.capacity.milli_cpus // (1000 * cpus))
                for offering in self.catalog
                if offering.zone in (zone, "local")
            )
            if room >= members:
                return True
        return False

    def check(self, story: Story) -> int:
        """Every attempt was in one zone, unless none holds it; returns how many were in several."""
        zones, torn = self.zones(), 0
        for (name, attempt), reached in zones.items():
            job = self.world.state.jobs[name]
            arrival = story.arrivals[int(job.spec.name.removeprefix("job"))]
            sizes = {
                order.gang.size
                for (_, number), order in self.world.history.orders.items()
                if order.job == name and number == attempt and order.gang is not None
            }
            if len(reached) <= 1:
                continue
            torn += 1
            # An elastic gang that has had to be in several stays there while it runs.
            stayed = bool(arrival.more) and reached <= zones.get((name, attempt - 1), set())
            assert stayed or not self.held(arrival.cpus, max(sizes)), (name, attempt, reached)
        return torn


kinds = st.sampled_from(sorted(CATALOGS))
"""Many gangs, and little that is not about them."""
many = stories.map(
    lambda story: replace(
        story,
        arrivals=[
            replace(arrival, kind=JobKind.GANG, tasks=max(2, arrival.tasks))
            if index % 3
            else arrival
            for index, arrival in enumerate(story.arrivals, 1)
        ],
    )
)


def ended(story: Story, catalog: Catalog, policy: Policy) -> Placements:
    """A world until all jobs have ended; pools of a policy may stand for ever."""
    world = _world(story, policy=policy, catalog=catalog)
    while True:
        now = world.timeline.now()
        if now >= CHAOS_MS:
            world.calm_down()
            accepted = sum(command.startswith("submit-") for command in world.answers.replies)
            if accepted == len(story.arrivals) and not world.state.active:
                break
        assert now < 20 * CHAOS_MS, _stuck(world)
        world.step()
        _check_now(world)
    _check_gangs(world)
    return Placements(world, catalog)


@drawn(25)
@given(many, kinds)
def test_gangs_of_a_capricious_policy_are_in_one_zone(story: Story, kind: str) -> None:
    policy = Fickle(CapriciousPolicy(story.seed, CHAOS_MS), story.seed, CHAOS_MS)
    world = _world(story, policy=policy, catalog=CATALOGS[kind])
    _live(world, story)
    _check_end(world, story)
    Placements(world, CATALOGS[kind]).check(story)


@pytest.mark.parametrize("name", sorted(find_policies()))
def test_gangs_of_every_policy_are_in_one_zone(name: str) -> None:
    kind_of_policy = find_policies()[name]

    @drawn(4)
    @given(many, kinds)
    def check(story: Story, kind: str) -> None:
        ended(story, CATALOGS[kind], kind_of_policy.build(kind_of_policy.config())).check(story)

    check()
