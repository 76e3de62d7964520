"""A command in a task whose task is moved, suspended, displaced or cancelled."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.cluster import EVA, Cluster, until
from tests.e2e.conftest import Clusters
from tests.e2e.suspending.test_suspended_jobs import ALL, BOX, steps
from tests.e2e.test_life import share_an_instance
from tests.fakes.patience import DEADLINE_S

STOPPED = "eva: the command was ended: the task is being stopped\n"
HANGUP = 129


class Shell:
    """A shell in a task, which notes in a file when it is hung up."""

    def __init__(self, cluster: Cluster, task: str, number: int = 0) -> None:
        self.noted = cluster.home / f"hung-up-{number}"
        note = shlex.quote(str(self.noted))
        self._process = subprocess.Popen(
            [*EVA, "exec", task],
            env=cluster.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        trap = f"trap {shlex.quote(f'date +%s%3N >{note}; exit 129')} HUP"
        self._process.stdin.write(f"{trap}; echo begun; while :; do sleep 0.05; done\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "begun\n"

    def ended(self) -> tuple[int, str]:
        """Wait for its end; its exit code, and what its user was told."""
        _, errors = self._process.communicate(timeout=DEADLINE_S)
        # The shell itself may say that a program of its own was hung up.
        return self._process.returncode, errors.removeprefix("Hangup\n")

    def hung_up_ms(self) -> int:
        """When it was hung up, in milliseconds since the epoch."""
        return int(self.noted.read_text())

    def close(self) -> None:
        """Leave nothing behind."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def shell(cluster: Cluster, task: str, number: int = 0) -> Iterator[Shell]:
    """A shell that has begun in a task and goes on."""
    begun = Shell(cluster, task, number)
    try:
        yield begun
    finally:
        begun.close()


def left_behind(cluster: Cluster) -> list[Path]:
    """Records of commands beside tasks that are over, or should be."""
    return list((cluster.state_dir / "cloud").glob("*/disk/runtime/*/*/*/execs/*"))


def ended_ms(cluster: Cluster, job: str, attempt: int) -> int:
    """When the program of an attempt came to its end, by its own account."""
    return next(line.at_ms for line in cluster.lines(job, event="end") if line.attempt == attempt)


def stop_and_start_ms(cluster: Cluster, job: str) -> int:
    """Time from the order to stop to the running of the next attempt; the master does not run."""
    with cluster.journal() as journal:
        (run,) = (run for run in journal.load().runs if run.id == f"{job}/0")
    at = {after[0]: after[1] for _, after in pairwise(run.history)}
    return at["running"] - at["stopping"]


@pytest.mark.parametrize("opened", [True, pytest.param(False, marks=pytest.mark.explore)])
def test_a_move_hangs_up_and_takes_its_task_along(
    make_cluster: Clusters, record_property: pytest.FixtureRequest, *, opened: bool
) -> None:
    """Without a command it is there to be compared with."""
    cluster = make_cluster(settings={"round_period": "1h"}, catalog={"only": ["c7i"]})
    large, small = share_an_instance(cluster)
    for job in (large, small):
        until(lambda job=job: cluster.task(job).rate > 0, f"the throughput of {job} arrives")
    with shell(cluster, f"{small}/0" if opened else f"{large}/0") as user:
        cluster.finish(large)
        cluster.until_ended(large)
        until(lambda: cluster.task(small).attempt == 2, "the small job moves")
        ended = user.ended()
    cluster.until_running(small)
    if opened:
        assert ended == (HANGUP, STOPPED)
        assert user.hung_up_ms() <= ended_ms(cluster, small, 1)
    assert cluster.task(small).moves == 1
    assert left_behind(cluster) == []
    done = cluster.eva("exec", small, "--", "sh", "-c", "echo $EVA_ATTEMPT")
    assert (done.returncode, done.stdout) == (0, "2\n")
    cluster.finish(small)
    cluster.until_ended(small)
    made = [line.step for line in cluster.lines(small, event="step")]
    assert made == list(range(1, len(made) + 1)), "a move repeats and loses nothing"
    cluster.stop()
    record_property("stop_and_start_ms", stop_and_start_ms(cluster, small))


def test_a_suspension_a_displacement_and_a_cancellation_hang_up(make_cluster: Clusters) -> None:
    cluster = make_cluster(
        settings={"preemption": "suspend", "limits": {"priority": 0}, "round_period": "2s"},
        catalog={"types": BOX, "only": ["e2e"]},
    )
    job = cluster.submit("patient", resources=ALL)
    cluster.until_running(job)
    with shell(cluster, job, 1) as user:
        assert cluster.eva("suspend", job).returncode == 0
        assert user.ended() == (HANGUP, STOPPED)
        until(lambda: cluster.job(job).state == "suspended", "it is suspended")
        until(lambda: cluster.task(job).state != "stopping", "its task has stopped")
        assert user.hung_up_ms() <= ended_ms(cluster, job, 1)
    refused = cluster.eva("exec", job, "--", "true")
    assert refused.returncode == 1
    assert f"task {job}/0 waits and does not run yet: suspended by" in refused.stderr
    assert cluster.eva("resume", job).returncode == 0
    cluster.until_running(job)

    with shell(cluster, job, 2) as user:
        urgent = cluster.submit("urgent", resources=ALL, priority=10)
        assert user.ended() == (HANGUP, STOPPED)
        cluster.until_running(urgent)
        assert user.hung_up_ms() <= ended_ms(cluster, job, 2)
    cluster.finish(urgent)
    cluster.until_ended(urgent)
    cluster.until_running(job)
    made = steps(cluster, job)
    assert made == list(range(1, len(made) + 1)), "nothing is lost, and nothing done twice"

    with shell(cluster, job, 3) as user:
        assert cluster.eva("cancel", job, "--yes").returncode == 0
        assert user.ended() == (HANGUP, STOPPED)
        cluster.until_ended(job, state="cancelled")
        assert user.hung_up_ms() <= ended_ms(cluster, job, 3)
    refused = cluster.eva("exec", job, "--", "true")
    assert refused.returncode == 1
    assert f"job {job} has ended (cancelled): nothing of it runs any more" in refused.stderr
    assert left_behind(cluster) == []
