"""Small clusters in the middle of their lives, as Hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.testing.snapshots import START, Cluster, offer, table, task
from eva_wire.values.bounds import JobKind

CATALOG = (
    ("p.small", (1, 8, 61), 3.06, "p"),
    ("p.large", (4, 32, 244), 12.24, "p"),
    ("c.small", (0, 4, 8), 0.18, "c"),
    ("c.medium", (0, 8, 16), 0.36, "c"),
    ("c.large", (0, 32, 64), 1.43, "c"),
    ("r.medium", (0, 8, 64), 0.53, "r"),
)
TASKS = (
    task("gpu", p=(1, 4, 24)),
    task("gpu-cpu", p=(1, 8, 50)),
    task("gpus", p=(4, 4, 10)),
    task("small", p=(0, 4, 8), c=(0, 2, 4), r=(0, 2, 4)),
    task("any", p=(0, 14, 16), c=(0, 8, 16), r=(0, 8, 16)),  # all of a c.medium
    task("memory", r=(0, 1, 60)),
    task("none", c=(0, 1, 0)),
    task("huge", c=(0, 64, 64)),  # no offering hosts it
    task("elsewhere", x=(0, 1, 1)),  # a family that is not on sale
)

# Made once: Hypothesis looks at each strategy that it meets for the first time.
_SOMETIMES = st.booleans()
_LIMITS = st.one_of(st.none(), st.none(), st.integers(0, 3))
_DELAYS_MS = st.sampled_from([0, 0, 0, 60_000])
_SPECS = st.sampled_from(TASKS)
_MEMBERS = st.sampled_from([1, 1, 1, 2, 3])
_PINNED = st.sampled_from([False, False, True])
_KINDS = st.sampled_from(JobKind)
_LEFT_S = st.sampled_from([None, 0, 100, 5_000, 5_500, 60_000])
_THROUGHPUTS = st.dictionaries(
    st.tuples(
        st.sampled_from(["gpu", "small", "any"]),
        st.sampled_from([("gpu",), ("small",), ("any",), ("any", "small")]),
    ),
    st.sampled_from([0.3, 0.6, 0.9, 1.0]),
    max_size=4,
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Draw a catalog with limits, live instances, jobs in every state, and what was learned."""
    cluster = Cluster(
        *(
            offer(
                name,
                size,
                usd,
                family=family,
                limit=draw(_LIMITS),
                until=START + draw(_DELAYS_MS),
            )
            for name, size, usd, family in CATALOG
        )
    )
    room: dict[str, tuple[str, Resources]] = {}
    for offering in cluster.catalog:
        for number in range(draw(st.integers(0, 2 if offering.limit is None else offering.limit))):
            name = f"i-{offering.type.name}-{number}"
            cluster.instance(name, offering.type.name, ready=draw(_SOMETIMES))
            room[name] = offering.type.family, offering.type.capacity
    for number in range(draw(st.integers(0, 8))):
        spec = draw(_SPECS)
        tasks = [spec] * draw(_MEMBERS)
        places = [_resident(room, spec) if draw(_SOMETIMES) else None for _ in tasks]
        cluster.job(
            f"job-{number}",
            *tasks,
            on=places,
            running=draw(_SOMETIMES),
            pinned=draw(_PINNED),
            kind=draw(_KINDS),
            priority=draw(st.integers(0, 1)),
            left_s=draw(_LEFT_S),
        )
    cluster.throughput = table(draw(_THROUGHPUTS))
    return cluster.snapshot()


def _resident(room: dict[str, tuple[str, Resources]], spec: TaskSpec) -> str | None:
    """An instance with room for the task, from which the room is taken."""
    for name, (family, free) in room.items():
        need = next((need for other, need in spec.demand if other == family), None)
        if need is not None and need.fits(free):
            room[name] = family, free - need
            return name
    return None
