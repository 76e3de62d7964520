"""Commands in tasks of a whole cluster: of arrays and gangs, and through restarts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.cluster import EVA, Cluster, until
from tests.e2e.conftest import Clusters
from tests.fakes.patience import DEADLINE_S

UNREACHABLE = 69


@contextmanager
def command(cluster: Cluster, *task: str) -> Iterator[subprocess.Popen[str]]:
    """A command that has begun in a task and goes on."""
    with subprocess.Popen(
        [*EVA, "exec", *task, "--", "sh", "-c", "echo begun; exec sleep 3600"],
        env=cluster.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def printed(cluster: Cluster, task: str) -> str:
    """A command's own account of its task."""
    done = cluster.eva("exec", task, "--", "sh", "-c", "echo $EVA_TASK_ID $NODE_RANK")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_command_gets_into_each_kind_of_task_and_through_restarts(make_cluster: Clusters) -> None:
    cluster = make_cluster()
    array = cluster.submit("array", tasks=2, kind="array")
    gang = cluster.submit("gang", tasks=2)
    cluster.until_running(array, gang)
    assert printed(cluster, f"{array}/1") == f"{array}/1"
    assert printed(cluster, f"{gang}/1") == f"{gang}/1 1"
    several = cluster.eva("exec", gang, "--", "true")
    assert (several.returncode, several.stdout) == (1, "")
    assert f"job {gang} has 2 tasks: name one of them" in several.stderr

    with command(cluster, f"{array}/0") as process:
        cluster.kill()
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == UNREACHABLE
        assert "broke, and what ran in the task has ended" in errors
    cluster.start()
    until(lambda: cluster.eva("exec", f"{array}/0", "--", "true").returncode == 0, "a way in")

    with command(cluster, f"{array}/0") as process:
        instance = cluster.task(array, 0).instance
        (agent,) = cluster.processes_of(instance, "eva_worker.agent")
        agent.kill()
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == UNREACHABLE
        assert f"the worker on {instance} went away" in errors
    until(lambda: cluster.eva("exec", f"{array}/0", "--", "true").returncode == 0, "a way in")
    assert cluster.task(array, 0).attempt == 1
