"""A late task of an array with real processes: its second run wins, its files are the task's."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import pytest
import yaml

from eva_master.adapters.objects import open_store
from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import Cluster, arguments, until
from tests.e2e.conftest import Clusters
from tests.e2e.secrets.test_secrets import CHECK, digest, made_up
from tests.fakes.secrets.traces import traces

BOX = {"e2e.box": {"cpus": 2, "memory": "8GiB", "price": "$0.10/h"}}
TINY = {"cpus": 1, "memory": "1GiB"}
# Task 0's own run hangs, as on a machine that is broken; what it has written must not remain.
RUN = f"""{CHECK}
echo "$EVA_TASK_ID says who it is"
echo "$EVA_TASK_ID" >"$EVA_STORAGE/outputs/who"
if [ "$EVA_TASK_ID" = "$EVA_JOB_ID/0" ]; then
    echo half >"$EVA_STORAGE/outputs/leftover"
    exec sleep 1000
fi
sleep 1
"""


def _submit(cluster: Cluster, name: str, **keys: object) -> str:
    document = {"name": name, "resources": TINY, "reports_steps": False, **keys}
    return cluster.client.submit(yaml.safe_dump(document), file_name=f"{name}.yaml").job_id


def _outputs(cluster: Cluster, run: str) -> dict[str, str]:
    store = open_store(f"file://{cluster.state_dir / 'objects'}")

    async def read() -> dict[str, str]:
        prefix = f"jobs/{run}/outputs"
        keys = await store.list(prefix)
        return {it.removeprefix(f"{prefix}/"): (await store.get(it)).decode() for it in keys}

    return asyncio.run(read())


@pytest.mark.long
def test_the_second_run_of_a_late_task_wins(make_cluster: Clusters, tmp_path: Path) -> None:
    cluster = make_cluster(
        settings={"policy": {"name": "no_packing"}}, catalog={"types": BOX, "only": ["e2e"]}
    )
    released = cluster.home / "released"
    wait = f"while [ ! -e {shlex.quote(str(released))} ]; do sleep 0.1; done"
    busy = _submit(cluster, "busy", run=wait)
    until(lambda: cluster.task(busy).state == "running", "the other job runs")
    secret = made_up()
    cluster.client.set_secret("TOKEN", secret.encode())
    job = _submit(
        cluster,
        "late",
        run=RUN,
        kind="array",
        tasks=2,
        duration="1s",
        stragglers="duplicate",
        secrets=["TOKEN"],
        envs={"DIGEST": digest(secret)},
    )
    own = until(lambda: _of(cluster, job, 0, "running"), "the task's own run runs")
    cluster.until_ended(job)
    shown = {(it.index, it.replica): it for it in cluster.job(job).tasks}
    assert {key: it.state for key, it in shown.items()} == {
        (0, 0): "cancelled",
        (0, 1): "succeeded",
        (1, 0): "succeeded",
    }
    assert own.instance != cluster.task(busy).instance
    assert shown[0, 0].outputs_of == 1
    assert _outputs(cluster, f"{job}/0") == {"who": f"{job}/0+1\n"}
    assert _outputs(cluster, f"{job}/1") == {"who": f"{job}/1\n"}
    assert ["sleep", "1000"] not in map(arguments, cluster.processes()), "the loser is stopped"
    _check_shown(cluster, job)
    assert _fetched(cluster, job, tmp_path) == {"0/who": f"{job}/0+1\n", "1/who": f"{job}/1\n"}
    assert traces(secret, cluster.home) == []
    released.touch()
    cluster.until_ended(busy)
    cluster.until_empty()
    check_bill(cluster)
    cluster.stop()
    check_accounts(cluster)


def _fetched(cluster: Cluster, job: str, into: Path) -> dict[str, str]:
    """Files of all tasks that `eva get` brings, by path."""
    answer = cluster.eva("get", job, "--to", str(into / "results"))
    assert answer.returncode == 0, answer.stderr
    files = (path for path in (into / "results").rglob("*") if path.is_file())
    return {str(path.relative_to(into / "results")): path.read_text() for path in files}


def _of(cluster: Cluster, job: str, index: int, state: str) -> object:
    return next(
        (
            it
            for it in cluster.job(job).tasks
            if (it.index, it.replica, it.state) == (index, 0, state)
        ),
        None,
    )


def _check_shown(cluster: Cluster, job: str) -> None:
    """Users see both runs, and why there are two."""
    status = cluster.eva("status", job)
    assert "0+1" in status.stdout, status
    assert f"{job}/0+1 has succeeded" in " ".join(status.stdout.split())
    why = cluster.eva("explain", job)
    assert f"{job}/0 has run for" in " ".join(why.stdout.split()), why
    assert cluster.eva("logs", job).stdout == f"used\n{job}/0+1 says who it is\n"
    assert cluster.eva("logs", job, "--replica", "0").stdout == f"used\n{job}/0 says who it is\n"
    unknown = cluster.eva("logs", job, "--replica", "2")
    assert unknown.returncode
    assert "extra runs are numbered 1 to 1" in unknown.stderr
