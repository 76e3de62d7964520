"""`eva plan` foresees what `eva submit` does with any job file: with every key, drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.resolving.partition import Placement
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Limits, Settings
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase, spot_family
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.fleet.partitions import (
    Budget,
    Partition,
    PartitionLimits,
    Partitions,
    ShortJobs,
)
from eva_master.model.job import JobSpec
from eva_master.model.planning.suspension import Preemption
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy
from eva_wire.jobfile.schema import JobFile
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import Family, InstanceId, Price
from tests.drawing import drawn
from tests.fakes.jobs import LARGE, MEDIUM, SMALL
from tests.property.previews.cluster import Cluster, compare

SPOT = Offering(
    InstanceType("spot.1", spot_family(SMALL.type.family), SMALL.type.capacity),
    Price(SMALL.price // 3),
    purchase=Purchase.SPOT,
)
GPUS = Family("v100")
NODE = Offering(
    InstanceType("v100.x2", GPUS, Resources(2, 16_000, 65_536)), Price(0), Purchase.OWNED, NODE_ZONE
)


def _with_disks(offering: Offering) -> Offering:
    """An offering whose instances get the disk that their tasks need."""
    machine = offering.type
    capacity = replace(machine.capacity, disk_mib=100 * 1_024)
    return replace(offering, type=replace(machine, capacity=capacity, sized_disk=True))


CATALOG = tuple(map(_with_disks, (SMALL, MEDIUM, LARGE, SPOT)))
FRONTS = ("cloudcoaster", "no_packing", "slearn", "stratus")
OWNERS = ("ana", "bob")

NO_PLAN_SEES = {"image", "build", "workdir", "storage"}
"""Keys that need files or containers; no plan knows of them."""
VALUES: Mapping[str, tuple[Any, ...]] = {
    "kind": ("array",),
    "workload": ("train", "infer"),
    "resources": (
        {"cpus": 2, "memory": "1 GiB"},
        {"cpus": 3, "memory": "4 GiB"},
        {"cpus": 1, "memory": "1 GiB", "disk": "20 GiB"},
        {"gpus": 2, "cpus": 1, "memory": "1 GiB"},
    ),
    "resources_by_family": ({"c": {"cpus": 2, "memory": "2 GiB"}},),
    "throughput": (2.0, {"c": 3}),
    "reports_steps": (False,),
    "total_steps": (1, 10_000),
    "duration": ("5 s", "10m", "3 h"),
    "tasks": (2, 3, 5, {"least": 1, "most": 3}, [{"name": "a"}, {"name": "b", "run": "true"}]),
    "split_batch": (True,),
    "batch_size": (32,),
    "model_size": ("small", "high"),
    "dataset_size": ("S", "XL"),
    "concurrency": (1, 2),
    "stragglers": ("duplicate",),
    "on_failure": ("continue", "stop"),
    "forks": (2, 3),
    "merge": ({"every": "60 s"}, {"check": "loss"}),
    "ps": ({"minibatch": "1 s", "gradient": "10 MiB"},),
    "pilots": (1, 2),
    "value": ({"worth": "$5"}, {"worth": "$5", "loses": "$1/h"}, {"worth": "$5", "halves": "1 h"}),
    "latency": ("short", "long"),
    "envs": ({"A": "1"},),
    "secrets": (["TOKEN"], ["TOKEN", "OTHER"]),
    "grace_period": ("10 s",),
    "delays": ({"checkpoint": "2 s", "launch": "30 s"},),
    "spot": ("never", "allowed", "only"),
    "deadline": ({"within": "30 s"}, {"within": "1 h"}, {"within": "30 h"}),
    "deadline_miss": ("fail",),
    "spot_wait": ("10m",),
    "checkpoint_interval": ("5m",),
    "retries": (0,),
    "retry_on": ([7],),
    "fail_on": ([8],),
    "max_duration": ("2 h",),
    "max_cost": ("$5", "$1000"),
    "priority": (1, 5),
    "partition": ("all",),
    "after": (["old0"], [{"job": "old0", "when": "ended"}]),
    "notify": (["end", "late"],),
    "unique": (True,),
    "zones": ("any",),
    "dag": ("nightly",),
    "labels": ({"team": "vision"},),
}
"""Values of each key, beside none; keys that others need come first."""


def test_every_key_of_a_job_file_is_drawn() -> None:
    assert VALUES.keys() == JobFile.model_fields.keys() - NO_PLAN_SEES - {"name", "run"}


@st.composite
def files(draw: st.DrawFn, name: str, catalog: Catalog, cluster: Cluster) -> JobSpec:
    """A job as a job file states it, with some keys, each of which goes with those before it."""
    machine = cluster.machine
    document: dict[str, Any] = {"name": name, "run": "true"}
    document["resources"] = {"cpus": 1, "memory": "1 GiB"}
    if catalog[0].type.family == GPUS:
        document["resources"]["gpus"] = 1
    partitions = machine.settings.partitions

    def parsed() -> JobSpec:
        jobs = {job.spec.name: job.id for job in machine.state.jobs.values()}
        return parse_job(
            yaml.safe_dump(document),
            file_name="job.yaml",
            owner=owner,
            tenant=tenant,
            catalog=catalog,
            workdir=None,
            containers=False,
            find=lambda names: {known: jobs[known] for known in names if known in jobs},
            spec_of=lambda job: machine.state.jobs[job].spec,
            placement=Placement(partitions, anywhere=True),
        )

    owner = draw(st.sampled_from(OWNERS))
    tenant = draw(st.sampled_from(OWNERS)) if machine.settings.tenancy.quotas else "default"
    spec = parsed()
    chosen = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=12))
    if draw(st.booleans()):
        chosen.add("kind")  # many keys are those of arrays alone
    for key in filter(chosen.__contains__, VALUES):
        before = dict(document)
        document[key] = draw(st.sampled_from(VALUES[key]))
        try:
            spec = parsed()
        except EvaError:
            document.clear()
            document.update(before)
    return spec


@st.composite
def rules(draw: st.DrawFn, *, partitioned: bool) -> Settings:
    """Limits and budgets of an operator."""
    limits = Limits(
        instances=draw(st.sampled_from([10**9, 2, 4])),
        instances_per_job=draw(st.sampled_from([10**9, 1])),
        instances_per_user=draw(st.sampled_from([10**9, 2])),
    )
    partitions = Partitions()
    if partitioned or draw(st.booleans()):
        part = Partition(
            "all",
            default=True,
            limits=PartitionLimits(instances=draw(st.sampled_from([None, 2]))),
            budget=Budget(
                per_hour=draw(st.sampled_from([None, 300_000])),
                per_month=draw(st.sampled_from([None, 1])),
            ),
            short=ShortJobs(60_000) if partitioned else None,
        )
        partitions = Partitions((part,))
    return Settings(
        round_gap_ms=0,
        profile=draw(st.booleans()),
        limits=limits,
        partitions=partitions,
        preemption=draw(st.sampled_from(list(Preemption))),
    )


def _built(name: str, front: str | None) -> Policy:
    kind = policies()[name]
    policy = kind.build(kind.config())
    if front is None:
        return policy
    short = policies()[front]
    return Splitter.of_short(short.build(short.config()), policy, 60_000, shares=short.shares)


def _compared(cluster: Cluster, catalog: Catalog, data: st.DataObject) -> None:
    """Draw what was submitted before, and a job whose outlook is compared with its first plan."""
    earlier = [f"old{number}" for number in range(data.draw(st.integers(0, 2)))]
    for name in earlier:
        cluster.submit(data.draw(files(name, catalog, cluster)))
    compare(cluster, [], data.draw(files("new", catalog, cluster)))


@pytest.mark.parametrize("name", sorted(policies()))
@drawn(12)
@given(data=st.data())
def test_the_outlook_of_any_job_file_is_its_first_plan(name: str, data: st.DataObject) -> None:
    front = data.draw(st.sampled_from([None, *FRONTS]))
    settings = data.draw(rules(partitioned=front is not None))
    cluster = Cluster(CATALOG, _built(name, front), settings)
    cluster.begin()
    _compared(cluster, CATALOG, data)


@pytest.mark.parametrize("name", sorted(policies()))
@drawn(8)
@given(data=st.data())
def test_it_is_with_quotas_and_budgets_of_tenants(name: str, data: st.DataObject) -> None:
    front = data.draw(st.sampled_from([None, *FRONTS]))
    settings = data.draw(rules(partitioned=True))
    if front is None:
        lends = policies()[name].lends
        parts = (replace(part, short=None, lends=lends) for part in settings.partitions.parts)
        settings = replace(settings, partitions=Partitions(tuple(parts)))
    quotas = {owner: ((GPUS, data.draw(st.sampled_from([1, 2, 4]))),) for owner in OWNERS}
    budgets = {owner: data.draw(st.sampled_from([1, 10**12])) for owner in OWNERS}
    settings = replace(
        settings,
        tenancy=Tenancy(
            quotas,
            data.draw(st.sampled_from([{}, budgets])),
        ),
        nodes={node: OwnedNode(node, NODE, 60_000) for node in map(InstanceId, ("n0", "n1"))},
    )
    catalog = (NODE,)
    cluster = Cluster(catalog, _built(name, front), settings)
    cluster.begin()
    cluster.register(*settings.nodes)
    _compared(cluster, catalog, data)
