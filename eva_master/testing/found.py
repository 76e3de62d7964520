"""Small clusters on which a policy once failed: every policy meets them.

`python -m benchmarks.conformance` finds such clusters and prints them in this form.
"""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.snapshots import START, Cluster, offer, task
from eva_wire.values.bounds import JobKind

_GPU = task("gpu", p=(1, 4, 24))
_GPU_CPU = task("gpu-cpu", p=(1, 8, 50))
_GPUS = task("gpus", p=(4, 4, 10))
_SMALL = task("small", p=(0, 4, 8), c=(0, 2, 4), r=(0, 2, 4))
_ANY = task("any", p=(0, 14, 16), c=(0, 8, 16), r=(0, 8, 16))
_MEMORY = task("memory", r=(0, 1, 60))
_NONE = task("none", c=(0, 1, 0))


def _a_gang_waits_for_an_instance_that_the_search_empties() -> Cluster:
    cluster = Cluster(
        offer("p.small", (1, 8, 61), 3.06, family="p"),
        offer("p.large", (4, 32, 244), 12.24, family="p", limit=2),
    )
    cluster.instance("i-p.large-0", "p.large", ready=False)
    cluster.instance("i-p.large-1", "p.large", ready=False)
    cluster.job("job-0", *[_GPU] * 3)
    cluster.job("job-1", _GPU)
    cluster.job("job-2", _GPU, on=["i-p.large-0"], running=False)
    return cluster.job("job-3", *[_GPUS] * 2)


def _one_waits_for_room_that_the_search_makes() -> Cluster:
    cluster = Cluster(
        offer("p.small", (1, 8, 61), 3.06, family="p", limit=1),
        offer("c.large", (0, 32, 64), 1.43, family="c"),
    )
    cluster.instance("i-p.small-0", "p.small")
    cluster.job("job-3", _SMALL, on=["i-p.small-0"], running=False)
    return cluster.job("job-5", _GPU_CPU)


def _one_waits_for_room_on_what_can_no_longer_be_bought() -> Cluster:
    cluster = Cluster(
        offer("p.large", (4, 32, 244), 12.24, family="p", until=START + 60_000),
        offer("r.medium", (0, 8, 64), 0.53, family="r"),
    )
    cluster.instance("i-p.large-0", "p.large")
    cluster.job("job-4", *[_GPU_CPU] * 2)
    cluster.job("job-6", _SMALL, on=["i-p.large-0"], running=False)
    return cluster.job("job-7", *[_GPU_CPU] * 2, kind=JobKind.ARRAY)


def _a_new_instance_has_room_to_spare() -> Cluster:
    cluster = Cluster(
        offer("c.medium", (0, 8, 16), 0.36, family="c", limit=3),
        offer("r.medium", (0, 8, 64), 0.53, family="r"),
    )
    cluster.instance("i-c.medium-0", "c.medium")
    cluster.instance("i-c.medium-1", "c.medium")
    cluster.job("job-0", *[_SMALL] * 2)
    cluster.job(
        "job-2", *[_ANY] * 2, on=["i-c.medium-0", "i-c.medium-1"], running=False, pinned=True
    )
    return cluster.job("job-3", _NONE)


def _the_packing_leaves_an_instance_of_few() -> Cluster:
    cluster = Cluster(
        offer("c.large", (0, 32, 64), 1.43, family="c"),
        offer("r.medium", (0, 8, 64), 0.53, family="r", limit=1),
    )
    cluster.job("job-2", _ANY)
    cluster.job("job-3", _MEMORY)
    return cluster.job("job-6", _ANY)


def _a_gang_fits_once_others_are_packed() -> Cluster:
    cluster = Cluster(
        offer("p.large", (4, 32, 244), 12.24, family="p", limit=3),
        offer("c.medium", (0, 8, 16), 0.36, family="c", limit=1),
    )
    cluster.job("job-0", _ANY, kind=JobKind.ARRAY)
    cluster.job("job-1", _GPUS, kind=JobKind.ARRAY)
    cluster.job("job-3", *[_ANY] * 3)
    return cluster.job("job-4", *[_ANY] * 2, kind=JobKind.ARRAY)


def _company_makes_it_worth_to_join() -> Cluster:
    cluster = Cluster(
        offer("p.small", (1, 8, 61), 3.06, family="p"),
        offer("c.large", (0, 32, 64), 1.43, family="c", until=START + 60_000),
        offer("r.medium", (0, 8, 64), 0.53, family="r", until=START + 60_000),
    )
    cluster.instance("i-c.large-0", "c.large")
    cluster.job("job-1", _SMALL)
    return cluster.job("job-2", *[_ANY] * 2, priority=1, kind=JobKind.ARRAY)


def _a_search_misses_what_another_one_finds() -> Cluster:
    cluster = Cluster(
        offer("p.small", (1, 8, 61), 3.06, family="p"),
        offer("p.large", (4, 32, 244), 12.24, family="p"),
        offer("c.small", (0, 4, 8), 0.18, family="c", limit=3),
        offer("c.medium", (0, 8, 16), 0.36, family="c"),
        offer("c.large", (0, 32, 64), 1.43, family="c"),
        offer("r.medium", (0, 8, 64), 0.53, family="r"),
    )
    for name in ("c.large-0", "c.medium-0", "c.small-0", "c.small-1", "c.small-2"):
        cluster.instance(f"i-{name}", name[:-2], ready=False)
    cluster.instance("i-p.small-0", "p.small", ready=False)
    cluster.instance("i-p.small-1", "p.small", ready=False)
    cluster.job("job-0", _NONE, on=["i-c.small-0"])
    cluster.job("job-1", _SMALL, on=["i-p.small-0"], running=False)
    cluster.job("job-2", _GPUS)
    cluster.job("job-3", _SMALL, on=["i-p.small-0"], running=False)
    cluster.job("job-4", _GPU_CPU)
    cluster.job("job-5", *[_GPU] * 3)
    cluster.job("job-6", _GPU, pinned=True)
    return cluster.job("job-7", _GPU, pinned=True)


def _a_gang_that_lost_members_is_not_split() -> Cluster:
    cluster = Cluster(
        offer("p.large", (4, 32, 244), 12.24, family="p", until=START + 60_000),
    )
    cluster.instance("i-p.large-0", "p.large")
    cluster.instance("i-p.large-1", "p.large")
    cluster.job("job-2", *[_GPU_CPU] * 3, on=[None, "i-p.large-0", None], running=False)
    cluster.job("job-3", *[_ANY] * 3, on=["i-p.large-1", "i-p.large-1", None], running=False)
    return cluster.job("job-6", _GPU, kind=JobKind.ARRAY)


def _a_gang_that_lost_members_waits_for_a_limit() -> Cluster:
    cluster = Cluster(
        offer("p.large", (4, 32, 244), 12.24, family="p", until=START + 60_000),
        offer("c.medium", (0, 8, 16), 0.36, family="c", limit=2),
    )
    cluster.instance("i-p.large-1", "p.large")
    cluster.job("job-0", *[_ANY] * 2, kind=JobKind.ARRAY)
    return cluster.job("job-3", *[_ANY] * 3, on=[None, "i-p.large-1", None], running=False)


def _a_bound_finds_another_packing_of_the_same_price() -> Cluster:
    """Where later rounds began with its columns, plans hung on whether reasons were asked for."""
    cluster = Cluster(
        offer("c.small", (0, 4, 8), 0.18, family="c", until=START + 60_000),
        offer("c.medium", (0, 8, 16), 0.36, family="c"),
    )
    cluster.job("job-1", *[_NONE] * 3, kind=JobKind.ARRAY)
    return cluster.job("job-5", *[_NONE] * 2, kind=JobKind.ARRAY)


def _an_empty_instance_is_all_that_the_limit_allows() -> Cluster:
    """A policy in front of another one did not see it, so it went and another one was launched."""
    cluster = Cluster(offer("p.large", (4, 32, 244), 12.24, family="p", limit=2))
    cluster.instance("i-p.large-0", "p.large")
    cluster.instance("i-p.large-1", "p.large")
    return cluster.job("job-2", _GPU, kind=JobKind.ARRAY)


FOUND: Mapping[str, Snapshot] = {
    make.__name__.strip("_").replace("_", " "): make().snapshot()
    for make in (
        _a_gang_waits_for_an_instance_that_the_search_empties,
        _one_waits_for_room_that_the_search_makes,
        _one_waits_for_room_on_what_can_no_longer_be_bought,
        _a_new_instance_has_room_to_spare,
        _the_packing_leaves_an_instance_of_few,
        _a_gang_fits_once_others_are_packed,
        _company_makes_it_worth_to_join,
        _a_search_misses_what_another_one_finds,
        _a_gang_that_lost_members_is_not_split,
        _a_gang_that_lost_members_waits_for_a_limit,
        _a_bound_finds_another_packing_of_the_same_price,
        _an_empty_instance_is_all_that_the_limit_allows,
    )
}
"""By what is particular to each."""
