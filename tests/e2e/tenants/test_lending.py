"""Two tenants on three nodes, with real processes: one lends, takes back, and is paid for it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from eva_wire.values.errors import EvaError
from tests.e2e.cluster import PROGRAMS, Cluster, Line, until
from tests.e2e.conftest import Clusters
from tests.e2e.nodes.test_fixed_nodes import Machine

NODES = ("node1", "node2", "node3")
NEED = {"gpus": 1, "cpus": 1, "memory": "256MiB"}
LONG = {"resources": NEED, "total_steps": 1_000_000, "throughput": {"v100": 20}}
SETTINGS: dict[str, Any] = {
    "policy": {"name": "astraea", "options": {"lease_s": 1, "horizon_s": 60}},
    "tenants": {
        "vision": {"owners": ["ana"], "quota": {"v100": 2}},
        "speech": {"owners": ["bo"], "quota": {"v100": 1}},
    },
    "nodes": {
        name: {
            "type": "v100.node",
            "capacity": {"gpus": 1, "cpus": 1, "memory": "512MiB"},
            "fence_after": "10s",
        }
        for name in NODES
    },
    "catalog": {"only": []},
    "round_period": "2s",
}


@contextlib.contextmanager
def _nodes(cluster: Cluster) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in NODES:
            token = cluster.home / f"{name}.token"
            made = cluster.eva("node", "token", name, "--out", str(token))
            assert made.returncode == 0, made.stderr
            machine = Machine(cluster, token, name, "v100.node", "--emulated")
            stack.callback(machine.close)
        until(lambda: len(cluster.instances()) == len(NODES), "all nodes join")
        yield


def _submit(cluster: Cluster, owner: str, name: str, loses: str, **keys: Any) -> str:
    client = cluster.client_of(owner, "user")
    value = {"worth": "$100", "loses": loses}
    text = cluster.job_file(name, **{**LONG, "value": value, **keys})
    files = client.upload(PROGRAMS)
    return client.submit(text, file_name=f"{name}.yaml", workdir=files).job_id


def _steps(lines: list[Line]) -> list[int]:
    return [line.step for line in lines if line.event == "step"]


def _accounts(cluster: Cluster) -> dict[str, dict[str, Any]]:
    told = cluster.eva("cost", "--by", "tenant", "--json")
    assert told.returncode == 0, told.stderr
    return {it["name"]: it for it in json.loads(told.stdout)["tenants"]}


@pytest.mark.long
@pytest.mark.waits
def test_a_tenant_lends_takes_back_and_is_paid(make_cluster: Clusters) -> None:
    cluster = make_cluster(settings=SETTINGS)
    with _nodes(cluster):
        with pytest.raises(EvaError, match="belongs to no tenant; there are: speech, vision"):
            _submit(cluster, "cy", "stranger", "$1/h")
        borrowers = [_submit(cluster, "bo", f"speech{n}", "$1/h") for n in range(4)]

        def held(state: str) -> list[str]:
            return [job for job in borrowers if cluster.task(job).state == state]

        until(lambda: len(held("running")) == len(NODES), "who has a quota of one runs three")
        until(lambda: _accounts(cluster)["vision"]["earned_micro_usd"] > 0, "lenders earn")

        def borrows() -> bool:
            # Who of them borrows changes while they take turns.
            told = (" ".join(cluster.eva("explain", job).stdout.split()) for job in borrowers)
            return any("it borrows 1 GPU for $1.00/h: vision gets" in it for it in told)

        until(borrows, "a borrower is told from whom")
        lenders = [_submit(cluster, "ana", f"vision{n}", "$1/h") for n in range(2)]
        cluster.until_running(*lenders)
        until(lambda: len(held("running")) == 1, "its quota is left to the borrower")

        def told() -> bool:
            told = (" ".join(cluster.eva("explain", job).stdout.split()) for job in borrowers)
            return any("vision has its quota back" in it for it in told)

        until(told, "who was stopped is told why")
        cluster.finish(*lenders)
        cluster.until_ended(*lenders)
        until(lambda: len(held("running")) == len(NODES), "what is idle is lent again")
        cluster.finish(*borrowers)
        cluster.until_ended(*borrowers)
        for job in (*borrowers, *lenders):
            lines = cluster.lines(job)
            steps = _steps(lines)
            assert steps == list(range(1, len(steps) + 1)), f"{job} lost steps, or did some twice"
            assert not [line for line in lines if line.event == "overlap"], f"{job} ran twice"
        sums = _accounts(cluster)
        assert sums["speech"]["paid_micro_usd"] == sums["vision"]["earned_micro_usd"] > 0
        assert sums["vision"]["paid_micro_usd"] == sums["speech"]["earned_micro_usd"] == 0
        assert sums["vision"]["lent_gpu_hours"] == sums["speech"]["borrowed_gpu_hours"] > 0
        assert sums["vision"]["value_micro_usd"] > 199_000_000
