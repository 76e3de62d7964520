"""Gangs are in one zone beside disks, pools, partitions, spot instances, own nodes and limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.settings import NO_LIMIT, Limits, Settings
from eva_master.model.catalog import (
    Attached,
    Catalog,
    InstanceType,
    Offering,
    Purchase,
    spot_family,
    with_attached,
)
from eva_master.model.fleet.partitions import Offers, Partition, Rule, with_nodes
from eva_master.model.resources import Resources
from eva_master.ports import Policy
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Price
from tests.drawing import drawn
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld
from tests.fakes.policies.sizes import Fickle
from tests.fakes.pools.policy import CapriciousLines
from tests.property.fleet.test_owned_nodes import NODES
from tests.property.test_control_loop import (
    CHAOS_MS,
    QUICK,
    Arrival,
    Story,
    _check_end,
    _live,
    _world,
    stories,
)

GIB = 1_024
LARGEST_DISK_GIB = 100
ANY = 10**6
VISION_ZONES = frozenset({"a", "c"})
RACK, _, BOX = NODES


@dataclass(frozen=True)
class Shelf:
    """Limits of each size in a zone, on demand and on the spot market; 0 is not sold."""

    listed: tuple[int | None, ...]
    spot: tuple[int | None, ...]


SIZES = (2, 4, 8)


def sold(cpus: int, zone: str, market: Purchase, limit: int | None) -> Offering:
    """An offering as EC2 has it: each instance gets the disk that its first tasks state."""
    size = Resources(0, cpus * 1000, cpus * 2048, LARGEST_DISK_GIB * GIB)
    family = Family("c") if market is Purchase.ON_DEMAND else spot_family(Family("c"))
    kind = InstanceType(f"c.{cpus}", family, size, 7_000, 20_000, sized_disk=True)
    price = Price(cpus * (50_000 if market is Purchase.ON_DEMAND else 20_000))
    return with_attached(Offering(kind, price, zone, market, limit), Attached(gib_month=80_000))


def catalog_of(shelves: dict[str, Shelf]) -> Catalog:
    return tuple(
        sold(cpus, zone, market, limit)
        for zone, shelf in shelves.items()
        for market, limits in (
            (Purchase.ON_DEMAND, shelf.listed),
            (Purchase.SPOT, shelf.spot),
        )
        for cpus, limit in zip(SIZES, limits, strict=True)
        if limit != 0
    )


@dataclass(frozen=True)
class Beside:
    """A story with gangs, and all that is beside them."""

    story: Story
    shelves: dict[str, Shelf]
    nodes: bool
    divided: bool
    pooled: bool
    limits: Limits

    def settings(self) -> Settings:
        nodes = {node.name: node for node in (RACK, BOX)} if self.nodes else {}
        settings = replace(QUICK, nodes=nodes, limits=self.limits)
        if not self.divided:
            return settings
        vision = Partition(
            "vision",
            offers=Offers(zones=VISION_ZONES),
            nodes=frozenset({RACK.name}) if self.nodes else frozenset(),
            rule=Rule(tenants=frozenset({"vision"})),
        )
        parts = (vision, Partition("main", default=True))
        offerings = {name: node.offering.id for name, node in nodes.items()}
        return replace(settings, partitions=with_nodes(parts, offerings))

    def policy(self, seed: int) -> Policy:
        whims = Fickle(CapriciousPolicy(seed, CHAOS_MS), seed, CHAOS_MS)
        return CapriciousLines(seed, CHAOS_MS, whims) if self.pooled else whims

    def world(self) -> ChaoticWorld:
        seed = self.story.seed
        policies = {"vision": self.policy(seed), "main": self.policy(seed + 1)}
        policy = policies if self.divided else policies["main"]
        return _world(self.story, self.settings(), policy, catalog_of(self.shelves))


# -- the oracle, which looks at the cloud's own list of machines ----------------------------------


def holds(beside: Beside, zone: str, arrival: Arrival, members: int) -> bool:
    """Whether a zone sells room for so many tasks of an arrival, whatever runs there."""
    room = 0
    for market, limits in (
        ("listed", beside.shelves[zone].listed),
        ("spot", beside.shelves[zone].spot),
    ):
        if arrival.market not in (market, "any"):
            continue
        for cpus, limit in zip(SIZES, limits, strict=True):
            each = cpus // arrival.cpus
            if arrival.disk_gib:
                each = min(each, LARGEST_DISK_GIB // arrival.disk_gib)
            room += each * (ANY if limit is None else limit)
    return room >= members


def check_zones(beside: Beside, world: ChaoticWorld) -> Counter[str]:
    """Attempts of gangs by what is true of them; each is in one zone, or rightly in several."""
    machines = world.cloud.bill()
    places: dict[tuple[str, int], dict[str, str]] = {}
    for run, attempt, instance in world.history.starts:
        order = world.history.orders[run, attempt]
        if order.gang is not None:
            zone = machines[instance].offering.zone if instance in machines else "nodes"
            places.setdefault((order.job, attempt), {})[run] = zone
    counts: Counter[str] = Counter()
    for (name, attempt), zones in places.items():
        arrival = beside.story.arrivals[int(world.state.jobs[name].spec.name.removeprefix("job"))]
        reached = {*zones.values()}
        counts["several" if len(reached) > 1 else "one"] += 1
        if len(reached) == 1 or arrival.spans:
            continue
        # An elastic gang that has had to be in several zones stays there while it runs.
        before = {*places.get((name, attempt - 1), {}).values()}
        if arrival.more and reached <= before:
            continue
        members = arrival.tasks + arrival.more
        ours = {*beside.shelves}
        if beside.divided and world.state.jobs[name].partition == "vision":
            ours &= VISION_ZONES
        large_enough = [zone for zone in sorted(ours) if holds(beside, zone, arrival, members)]
        assert not large_enough, (name, attempt, zones, large_enough)
    return counts


# -- drawn worlds ---------------------------------------------------------------------------------

numbers = st.sampled_from([0, 1, 2, 3, None])


def shelves(largest: list[int | None]) -> st.SearchStrategy[Shelf]:
    """Zones that sell the largest size on demand in one of these numbers."""
    listed = st.tuples(numbers, numbers, st.sampled_from(largest))
    return st.builds(Shelf, listed, st.tuples(numbers, numbers, numbers))


# Together a and c have room for the largest gang, so that each job can end in each partition.
zones = st.fixed_dictionaries(
    {"a": shelves([1, 2, 3, None]), "b": shelves([0, 2, 3]), "c": shelves([2, 3, None])}
)
gangs = st.builds(
    lambda story, disks, markets, spans: replace(
        story,
        arrivals=[
            replace(
                arrival,
                kind=JobKind.GANG if index % 3 else arrival.kind,
                tasks=max(2, arrival.tasks) if index % 3 else arrival.tasks,
                disk_gib=disks[index % len(disks)],
                market=markets[index % len(markets)],
                spans=spans[index % len(spans)],
            )
            for index, arrival in enumerate(story.arrivals, 1)
        ],
    ),
    stories,
    st.lists(st.sampled_from([0, 0, 10, 60]), min_size=1, max_size=3),
    st.lists(st.sampled_from(["listed", "any"]), min_size=1, max_size=3),
    st.lists(st.sampled_from([False, False, True]), min_size=1, max_size=3),
)
worlds = st.builds(
    Beside,
    story=gangs,
    shelves=zones,
    nodes=st.booleans(),
    divided=st.booleans(),
    pooled=st.booleans(),
    limits=st.builds(
        Limits,
        instances=st.sampled_from([NO_LIMIT, NO_LIMIT, 7]),
        instances_per_job=st.sampled_from([NO_LIMIT, 6]),
    ),
)


@drawn(40)
@given(worlds)
def test_gangs_are_in_one_zone_beside_all_else(beside: Beside) -> None:
    world = beside.world()
    _live(world, beside.story)
    _check_end(world, beside.story)
    check_zones(beside, world)
