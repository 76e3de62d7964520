"""Policies declare the optional keys of job files that they read: each of these, and no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, ClassVar

import pytest

from eva_master.model.accounting.worth import Worth
from eva_master.model.catalog import Gpu, Offering
from eva_master.model.fleet.job_keys import DECLARED
from eva_master.model.job import (
    ArrayRules,
    DatasetSize,
    JobSpec,
    Latency,
    ModelSize,
    ParameterServers,
    Training,
)
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.job_view import DagView, JobProgress, JobTenancy, JobView
from eva_master.model.planning.snapshot import Snapshot
from eva_master.testing.job_views import changed
from eva_master.testing.policy_suite import Variant, later, variants_of
from eva_master.testing.snapshots import Cluster, carried_out, offer, task
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Millis
from tests.conformance.test_policies import KINDS

KEYS = {
    "pilots": ("pilots",),
    "dag": ("dag",),
    "worth": ("value",),
    "ps": ("ps",),
    "batch_size": ("batch_size",),
    "dataset": ("dataset_size",),
    "model": ("model_size",),
}
"""The declared keys by the part of a view that has them."""
ROUNDS = 4


class Watched:
    """Part of a view; reads of it by code of policies are noted."""

    __slots__ = ()
    seen: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in KEYS and "/tests/" not in sys._getframe(1).f_code.co_filename:
            Watched.seen.add(name)
        return super().__getattribute__(name)


class WatchedSpec(Watched, JobSpec):
    __slots__ = ()


class WatchedArray(Watched, ArrayRules):
    __slots__ = ()


class WatchedTraining(Watched, Training):
    __slots__ = ()


class WatchedProgress(Watched, JobProgress):
    __slots__ = ()


class WatchedTenancy(Watched, JobTenancy):
    __slots__ = ()


def copied(kind: type, value: Any) -> Any:
    """A watched copy of a part of a view."""
    return kind(**{field.name: getattr(value, field.name) for field in fields(value)})


@contextmanager
def noted() -> Iterator[set[str]]:
    Watched.seen = set()
    yield Watched.seen


def watched(job: JobView, number: int) -> JobView:
    """A job whose file states all of the keys."""
    array = job.spec.kind is JobKind.ARRAY
    stated = changed(
        job,
        owner=f"o{number % 2}",
        size=len(job.runs),
        pilots=1 if array else None,
        latency=Latency.SHORT,
        dag=DagView("d", job.id, Millis(0), waiting=1, waiting_ms=60_000, likely_ms=60_000),
        worth=Worth(5_000_000, 1_000_000),
        ps=ParameterServers(1_000_000, 50_000, 1 << 20),
        batch_size=8,
        model=ModelSize.HIGH,
        dataset=DatasetSize.L,
        steps_left=1_000,
        estimate=Estimate.stated(600_000) if number % 2 else None,
    )
    spec = replace(
        stated.spec,
        array=copied(WatchedArray, stated.spec.array),
        training=copied(WatchedTraining, stated.spec.training),
    )
    return replace(
        stated,
        spec=copied(WatchedSpec, spec),
        progress=copied(WatchedProgress, stated.progress),
        tenancy=copied(WatchedTenancy, stated.tenancy),
    )


def machine(name: str, usd: float) -> Offering:
    """A type with a data sheet."""
    sold = offer(name, (4, 16, 64), usd, family=name, limit=3)
    return replace(sold, type=replace(sold.type, gpu=Gpu(100_000, 16)))


def snapshot() -> Snapshot:
    """Jobs of every form on a small cluster of two types with GPUs: some run, and some wait."""
    cluster = Cluster(
        *(machine(name, usd) for name, usd in (("v100", 4), ("k80", 2))),
    )
    cluster.instance("i-1", "v100").instance("i-2", "k80")
    gpu = task("gpu", v100=(1, 1, 1), k80=(1, 1, 1))
    array = task("array", v100=(2, 2, 2), k80=(2, 2, 2))
    cluster.job("a-1", gpu, on=["i-1"], left_s=900)
    cluster.job("b-2", gpu, gpu, on=["i-2", "i-2"], left_s=900)
    cluster.job("c-3", *[array] * 6, kind=JobKind.ARRAY)
    cluster.job("d-4", *[array] * 2, kind=JobKind.ARRAY, left_s=900)
    cluster.job("e-5", gpu, gpu, left_s=1_800)
    cluster.job("f-6", gpu)
    made = cluster.snapshot()
    jobs = tuple(watched(job, number) for number, job in enumerate(made.jobs))
    return replace(made, jobs=jobs)


VARIANTS = {
    **{label: it for kind in KINDS.values() for label, it in variants_of(kind).items()},
    "astraea_published-with-servers": Variant(KINDS["astraea_published"], {"ps_per_server": 4}),
}


def read(variant: Variant) -> set[str]:
    """The keys that a policy looks at in rounds of that cluster."""
    with noted() as seen:
        policy, memory, now = variant.make(), None, snapshot()
        for _ in range(ROUNDS):
            plan, memory = policy.plan(now, memory)
            now = later(carried_out(now, plan), event=True, minutes=60)
    return {key for part in seen for key in KEYS[part]}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_what_is_declared_is_what_is_read(variant: Variant) -> None:
    declared = variant.kind.reads(variant.kind.config(**variant.options))
    assert set(declared) <= DECLARED
    assert read(variant) == set(declared)
