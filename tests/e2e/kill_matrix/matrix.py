"""What the rows of the kill matrix have in common: how they begin, and what must hold at the end.

docs/reference/kill-matrix.md lists the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import Line, until
from tests.fakes.hosts.cluster import HostCluster

RUN = "python3 counter.py && echo over"
SLOW = {"STEP_S": "0.2", "CHECKPOINT_S": "1"}
"""Environment of programs that leave the CPUs to the other tests."""
SETTINGS = {
    # Nothing is replaced for having been away, unless a test wants that.
    "lost_worker_timeout": "10m",
    # Less haste than in tests that run alone.
    "heartbeat": "1s",
    "round_min_interval": "1s",
    "upload_interval": "1s",
}
TWO_EACH: dict[str, Any] = {
    "types": {"e2e.pair": {"cpus": 4, "memory": "8GiB", "price": "$0.20/h"}},
    "only": ["e2e"],
}
"""A catalog of instances that have room for two jobs."""


def submit(cluster: HostCluster, name: str, **keys: Any) -> str:
    """Submit a job whose program is slow, and whose log has a last line; returns its id."""
    return cluster.submit(name, **{"run": RUN, "envs": SLOW, **keys})


def run(cluster: HostCluster, *names: str, **keys: Any) -> list[str]:
    """Have jobs run together on one instance, each with a checkpoint stored; returns their ids."""
    jobs = [submit(cluster, name, **keys) for name in names]
    for job in jobs:
        wait = f"{job} has stored a checkpoint"
        until(lambda job=job: cluster.task(job).generation, wait)
    cluster.until_running(*jobs)
    assert len({cluster.task(job).instance for job in jobs}) == 1
    return jobs


def container_of(cluster: HostCluster, job: str) -> tuple[str, str]:
    """Id of a job's container, and when it was started: what must not change if it goes on."""
    with cluster.docker(cluster.task(job).instance) as client:
        (found,) = client.containers.list(filters={"label": f"eva.copy={job}/0"})
        return found.id, found.attrs["State"]["StartedAt"]


def gone(process: psutil.Process) -> bool:
    """Whether a process is dead; a zombie is."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def hold(seconds: float, condition: Callable[[], bool], what: str) -> None:
    """See that a condition holds for so long."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        assert condition(), f"not for {seconds:g} s: {what}"
        time.sleep(min(left, 0.5))


def end(cluster: HostCluster, *jobs: str) -> None:
    """Have jobs finish, and see that they succeed and nothing of the cluster is left."""
    cluster.finish(*jobs)
    for job in jobs:
        state = f"{job} ends"
        until(lambda job=job: cluster.job(job).finished_ms, state)
    cluster.until_ended(*jobs)
    until(lambda: not cluster.client.describe().instances, "instances go")
    cluster.until_empty()
    until(lambda: not cluster.leftovers(), "no cable, no container is left")
    check_bill(cluster)


def stop(cluster: HostCluster) -> None:
    """End the cluster; no process is left, and the books add up."""
    cluster.stop()
    check_accounts(cluster)


def check_log(cluster: HostCluster, job: str) -> None:
    """Each attempt says what it resumes from, the last one that it is over: all is stored."""
    said = b"".join(cluster.client.logs(job)).decode().splitlines()
    begun = [it for it in cluster.lines(job) if it.event == "start"]
    attempts = [f"attempt {it.attempt} starts at step {it.step}" for it in begun]
    assert said == [*attempts, "over"]


def check_steps(lines: list[Line]) -> None:
    """The attempt never ran beside another, and left out and repeated no step."""
    assert lines[0].event == "start"
    begun = lines[0].step
    steps = [line.step for line in lines if line.event == "step"]
    assert steps == list(range(begun + 1, begun + 1 + len(steps)))
    assert len({line.attempt for line in lines}) == len({line.pid for line in lines}) == 1


def check_undisturbed(cluster: HostCluster, *jobs: str, unheard: str = "") -> None:
    """Jobs ran from their beginning to their end in one go, and all of it was heard.

    Args:
        cluster: Where.
        jobs: Which.
        unheard: The one that made its last steps while nobody was there to be told how many.
    """
    for job in jobs:
        lines = cluster.lines(job)
        assert [line.event for line in lines if line.event in ("start", "overlap", "end")] == [
            "start",
            "end",
        ]
        check_steps(lines)
        assert cluster.task(job).attempt == 1
        assert cluster.task(job).steps == lines[-1].step or job == unheard
        assert cluster.job(job).failures == 0
        check_log(cluster, job)


def check_resumed(cluster: HostCluster, job: str, stored: int, *, failures: int = 0) -> None:
    """A job ran twice, one after the other, and went on from the last checkpoint stored.

    Args:
        job: Which.
        stored: Generation that was known to be stored before something happened.
        failures: How many count.
    """
    lines = cluster.lines(job)
    assert [line.attempt for line in lines] == sorted(line.attempt for line in lines)
    assert not [line for line in lines if line.event == "overlap"]
    first, second = ([it for it in lines if it.attempt == number] for number in (1, 2))
    check_steps(first)
    check_steps(second)
    saved = [line.step for line in first if line.event == "checkpoint"]
    assert second[0].step in saved
    # Generations count from 1. A newer one may have been stored that nobody has heard of yet.
    assert second[0].step >= saved[stored - 1]
    assert lines[-1].event == "end"
    assert cluster.task(job).attempt == 2
    assert cluster.task(job).steps == lines[-1].step
    assert cluster.job(job).failures == failures
    check_log(cluster, job)


def check_replaced_when_gone(cluster: HostCluster, job: str, lost: str) -> None:
    """The second attempt began elsewhere, and not before the cloud said that all was over."""
    gone_ms = cluster.records()[lost].gone_ms
    assert gone_ms is not None
    assert min(line.at_ms for line in cluster.lines(job) if line.attempt == 2) >= gone_ms
    assert len(cluster.records()) == 2


def settings(**more: Any) -> Mapping[str, Any]:
    """Settings of a master, `SETTINGS` unless told otherwise."""
    return {**SETTINGS, **more}
