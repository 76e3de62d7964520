"""Worlds of tenants as files: what is read, and what is refused with its entry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eva_lab.traces.fleets.recipes import WorldRecipe
from eva_lab.traces.fleets.tenant_worlds import read_world
from eva_master.model.trace import Trace
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import MILLION
from tests.unit.worlds.small import world, written


def _trace(path: Path, **options: object) -> Trace:
    return WorldRecipe.model_validate({"kind": "world", "file": path, **options}).trace(0, ())


def test_a_world_is_a_trace_with_a_fleet(tmp_path: Path) -> None:
    path = written(tmp_path, world({"tenant": 1, "arrival_slot": 3}, {"gradient_mb": 225_000.0}))
    trace = _trace(path)
    slow, late = trace.jobs
    assert [job.arrival_ms for job in trace.jobs] == [3_600_000, 3 * 3_600_000]
    assert (late.tenant, slow.tenant) == ("tenant-001", "tenant-000")
    assert late.duration_ms == 4 * 3_600_000
    assert (late.least, len(late.tasks)) == (1, 2)
    # 225 GB there and back at 1 Gb/s are an hour, as long as the mini-batch and its update.
    assert (late.apart_ppm, slow.apart_ppm) == (MILLION, MILLION // 2)
    assert slow.size_ppm(2, apart=True) == MILLION
    assert late.worth is not None
    assert late.worth.after(5 * 3_600_000) == 90 * MILLION
    assert [node.offering.type.capacity.gpus for node in trace.nodes] == [2, 2]
    assert [one.quota for one in trace.tenants] == [(("gpu", 2),), (("gpu", 2),)]


def test_options_of_a_world(tmp_path: Path) -> None:
    path = written(tmp_path, world({"gradient_mb": 225_000.0, "kappa": 2.0}, {}))
    trace = _trace(path, jobs=1, values="convex", spread="free", move="55s")
    (job,) = trace.jobs
    assert (job.apart_ppm, job.init_ms) == (MILLION, 55_000)
    assert job.worth is not None
    assert job.worth.after(50 * 3_600_000) == pytest.approx(4 * MILLION, rel=1e-5)
    assert job.worth.after(0) == job.worth.after(3_600_000)


@pytest.mark.parametrize(
    ("where", "value", "key", "message"),
    [
        (("tenants", 0, "workers"), 3, "tenants[0].workers", "its servers have 2"),
        (("tenants", 1, "servers"), [0], "tenants[1].servers[0]", "that of tenant 0 already"),
        (("tenants", 1, "servers"), [7], "tenants[1].servers[0]", "there is no server 7"),
        (("jobs", 0, "tenant"), 2, "jobs[0].tenant", "there is no tenant 2"),
        (("jobs", 0, "arrival_slot"), -1, "jobs[0].arrival_slot", "0"),
        (("jobs", 0, "minibatch_h"), -0.5, "jobs[0].minibatch_h", "0"),
        (("jobs", 0, "minibatch_h"), float("inf"), "jobs[0].minibatch_h", ""),
        (("jobs", 0, "g"), float("nan"), "jobs[0].g", ""),
        (("jobs", 0, "k"), 0.5, "jobs[0].k", "0"),
        (("jobs", 0, "chunks"), 0, "jobs[0].chunks", "1"),
        (("jobs", 0, "speed"), 1, "jobs[0].speed", ""),
        (("jobs", 0, "epochs"), 100_000_000, "jobs[0].epochs", ""),
        (("worker_mbps",), 0, "worker_mbps", "0"),
        (("jobs",), [], "jobs", ""),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, where: tuple[Any, ...], value: object, key: str, message: str
) -> None:
    content = world({})
    entry: Any = content
    for part in where[:-1]:
        entry = entry[part]
    entry[where[-1]] = value
    path = written(tmp_path, content)
    with pytest.raises(InvalidTrace) as refused:
        read_world(path)
    assert path.name in str(refused.value)
    found = [problem for problem in refused.value.problems if problem.key == key]
    assert found, refused.value.problems
    assert message in found[0].message


def test_quotas_that_are_not_all_servers(tmp_path: Path) -> None:
    content = world({})
    content["servers"].append({"workers": 8, "ps": 1})
    with pytest.raises(InvalidTrace) as refused:
        read_world(written(tmp_path, content))
    assert [it.message for it in refused.value.problems] == [
        "all tenants have 4 workers, and all servers 12",
        "all tenants have 2 ps, and all servers 3",
    ]


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "twice.json"
    path.write_text('{"jobs": [], "jobs": []}', encoding="utf-8")
    with pytest.raises(InvalidTrace):
        read_world(path)


@pytest.mark.skipif("EVA_TEST_DATA" not in os.environ, reason="the worlds are not there")
def test_the_worlds_of_the_evaluation() -> None:
    trace = _trace(Path(os.environ["EVA_TEST_DATA"]) / "astraea" / "world_0.json")
    assert (len(trace.jobs), len(trace.nodes), len(trace.tenants)) == (100, 100, 14)
    quotas = sum(count for tenant in trace.tenants for _, count in tenant.quota)
    assert quotas == sum(node.offering.type.capacity.gpus for node in trace.nodes) == 512
