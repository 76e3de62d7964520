"""A job that trains on two machines at once, with real processes."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from eva_master.adapters.objects import open_store
from tests.e2e.cluster import EVA, PROGRAMS, Cluster, arguments, until
from tests.e2e.conftest import Clusters
from tests.e2e.secrets.test_secrets import CHECK, digest, made_up
from tests.fakes.paths import PYTHON
from tests.fakes.patience import DEADLINE_S
from tests.fakes.secrets.traces import traces

TYPES = {"e2e.none": {"cpus": 1, "memory": "256MiB", "price": "$9/h"}}
NODE = {
    "type": "own.small",
    "capacity": {"cpus": 1, "memory": "512MiB"},
    "usd_per_hour": 0,
    "fence_after": "60s",
}
NODES = ("rack1", "rack2")


PUBLISHED = {"name": "hadar_published:hadare", "options": {"round_gap_s": 4, "lease_s": 3}}


@pytest.fixture(
    params=[None, pytest.param(PUBLISHED, marks=pytest.mark.explore)], ids=["default", "hadare"]
)
def cluster(make_cluster: Clusters, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    policy = {} if request.param is None else {"policy": request.param}
    made = make_cluster(
        catalog={"types": TYPES, "only": ["e2e"]},
        settings={"nodes": dict.fromkeys(NODES, NODE), **policy},
    )
    workers = []
    try:
        for name in NODES:
            token = made.home / f"{name}.token"
            assert made.eva("node", "token", name, "--out", str(token)).returncode == 0
            workers.append(_worker(made, name, token))
        until(lambda: set(NODES) <= set(made.instances()), "both nodes join")
        yield made
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(DEADLINE_S)


def _worker(cluster: Cluster, name: str, token: Path) -> subprocess.Popen[bytes]:
    state = cluster.home / name
    options = ["--join", str(token), "--type", "own.small", "--state-dir", str(state)]
    with (cluster.home / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*EVA, "worker", *options],
            env={**os.environ, "EVA_ITERATOR_DEBUG": ""},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _objects(cluster: Cluster, prefix: str) -> dict[str, bytes]:
    store = open_store(f"file://{cluster.state_dir / 'objects'}")

    async def read() -> dict[str, bytes]:
        return {key: await store.get(key) for key in await store.list(prefix)}

    return asyncio.run(read())


def test_two_forks_train_one_job_and_each_step_counts_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    secret = made_up()
    cluster.client.set_secret("TOKEN", secret.encode())
    job = cluster.submit(
        "forked",
        run=f"{CHECK}exec {PYTHON} {shlex.quote(str(PROGRAMS / 'forked.py'))}",
        secrets=["TOKEN"],
        envs={"DIGEST": digest(secret)},
        resources={"cpus": 1, "memory": "256MiB"},
        total_steps=1_000,
        forks=2,
        merge={"every": "4s"},
    )
    until(lambda: _running(cluster, job) == 2, "both forks run")
    merged = f"jobs/{job}/merge/"
    until(lambda: _notes(_objects(cluster, merged)), "a merge of two parts")

    fork = next(it for it in _programs() if f"{job}/0+1" in _variable(it, "EVA_TASK_ID"))
    fork.send_signal(signal.SIGKILL)  # Its part of this epoch is lost, and nothing else.
    before = _merges(cluster, job)
    until(lambda: _merges(cluster, job) > before, "they merge again")

    cluster.kill()
    cluster.start()  # It goes on with the epoch that was under way.

    cluster.until_ended(job)
    assert cluster.job(job).state == "succeeded"
    assert "1,000 of 1,000 steps in them" in _told(cluster, job)
    # What it ends with is the average of runs that each count their own steps.
    outputs = _objects(cluster, f"jobs/{job}/0/outputs")
    weights = json.loads(next(iter(outputs.values())))
    assert 1_000 / 2 <= weights[0] <= 1_000
    # They are the job's, as those of a job of one task; each fork has its own logs.
    fetched = cluster.eva("get", job, "--to", str(tmp_path / "outputs"))
    assert fetched.returncode == 0, fetched.stderr
    assert json.loads((tmp_path / "outputs" / "weights.json").read_text()) == weights
    assert cluster.eva("get", job, "logs", "--to", str(tmp_path / "logs")).returncode == 0
    logs = {path.name: path for path in (tmp_path / "logs").iterdir()}
    assert set(logs) == {"0", "0+1"}
    assert all(b"used" in log.read_bytes() for folder in logs.values() for log in folder.iterdir())
    assert traces(secret, cluster.home) == []


def _told(cluster: Cluster, job: str) -> str:
    """What `eva explain` says of its forks."""
    answer = cluster.eva("explain", job, "--json")
    assert answer.returncode == 0, answer.stderr
    return str(json.loads(answer.stdout).get("forks", [""])[0])


def _merges(cluster: Cluster, job: str) -> int:
    count = _told(cluster, job).partition(": ")[2].partition(" ")[0]
    return {"": 0, "one": 1}.get(count) or int(count or 0)


def _notes(objects: dict[str, bytes]) -> list[dict[str, object]]:
    found = [json.loads(it) for key, it in objects.items() if key.endswith("/merged.json")]
    return [it for it in found if sum(part["kept"] for part in it["parts"]) == 2]


def _running(cluster: Cluster, job: str) -> int:
    return sum(it.state == "running" for it in cluster.job(job).tasks)


def _programs() -> list[psutil.Process]:
    return [
        it for it in psutil.process_iter() if arguments(it)[-1:] == [str(PROGRAMS / "forked.py")]
    ]


def _variable(process: psutil.Process, name: str) -> str:
    return process.environ().get(name, "")
