"""Six jobs on a fleet of three nodes, with real processes: they take turns, and lose no step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, Line, until
from tests.e2e.conftest import Clusters
from tests.e2e.nodes.test_fixed_nodes import Machine

POLICIES: dict[str, dict[str, Any]] = {
    "default": {"name": "hadar", "options": {"lease_s": 1, "slack_s": 1}},
    "gavel": {"name": "gavel", "options": {"lease_s": 1, "divide_s": 1, "round_gap_s": 1}},
}
"""Every scheduler that has jobs take turns; one line each."""
TOLD = {"hadar": "its turn is expected within", "gavel": "its turn is expected within"}
"""What a suspended job is told."""
NODES = {"fast1": "v100.node", "slow1": "k80.node", "slow2": "k80.node"}
ALL = {"cpus": 1, "memory": "256MiB"}
LONG = {"total_steps": 1_000_000, "throughput": {"v100": 20, "k80": 10}}
SHORT = {"total_steps": 60, "throughput": {"v100": 20, "k80": 10}}


def _settings(policy: dict[str, Any]) -> dict[str, Any]:
    capacity = {"cpus": 1, "memory": "512MiB"}
    nodes = {
        name: {"type": type_, "capacity": capacity, "fence_after": "10s"}
        for name, type_ in NODES.items()
    }
    return {"policy": policy, "nodes": nodes, "catalog": {"only": []}, "round_period": "2s"}


@contextlib.contextmanager
def _fleet(cluster: Cluster) -> Iterator[list[Machine]]:
    with contextlib.ExitStack() as stack:
        machines = []
        for name, type_ in NODES.items():
            token = cluster.home / f"{name}.token"
            made = cluster.eva("node", "token", name, "--out", str(token))
            assert made.returncode == 0, made.stderr
            machines.append(Machine(cluster, token, name, type_))
            stack.callback(machines[-1].close)
        until(lambda: len(cluster.instances()) == len(NODES), "all nodes join")
        yield machines


def _steps(lines: list[Line]) -> list[int]:
    return [line.step for line in lines if line.event == "step"]


@pytest.mark.waits
@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policy, id=name, marks=() if name == "default" else pytest.mark.explore)
        for name, policy in POLICIES.items()
    ],
)
def test_six_jobs_on_three_nodes_take_turns_and_lose_no_step(
    make_cluster: Clusters, policy: dict[str, Any]
) -> None:
    cluster = make_cluster(settings=_settings(policy))
    with _fleet(cluster):
        long = [cluster.submit(f"long{n}", resources=ALL, **LONG) for n in range(3)]
        cluster.until_running(*long)
        short = [cluster.submit(f"short{n}", resources=ALL, **SHORT) for n in range(3)]

        def suspended_ones() -> list[str]:
            # One that waits may be on its way to another node.
            waiting = (job for job in long if cluster.task(job).state == "waiting")
            told = ((job, " ".join(cluster.eva("explain", job).stdout.split())) for job in waiting)
            return [job for job, why in told if TOLD[policy["name"]] in why]

        suspended = until(suspended_ones, "a long job makes room, and is told so")
        for job in short:
            until(lambda job=job: _steps(cluster.lines(job)), f"{job} has its turn")
        cluster.finish(*short)
        cluster.until_ended(*short)
        cluster.until_running(*long)
        cluster.finish(*long)
        cluster.until_ended(*long)
        for job in (*long, *short):
            lines = cluster.lines(job)
            steps = _steps(lines)
            assert steps == list(range(1, len(steps) + 1)), f"{job} lost steps, or did some twice"
            assert not [line for line in lines if line.event == "overlap"], f"{job} ran twice"
        started = [line for job in suspended for line in cluster.lines(job, event="start")]
        assert any(line.step > 0 for line in started), "it goes on where it was"
        assert not cluster.records(), "nothing was launched"
        assert {it.state for it in cluster.instances().values()} == {"ready"}


@pytest.mark.explore
def test_six_jobs_end_under_the_published_policy(make_cluster: Clusters) -> None:
    rounds = {"lease_s": 1, "round_gap_s": 1}
    policy = {"name": "hadar", "preset": "published", "options": rounds}
    cluster = make_cluster(settings=_settings(policy))
    with _fleet(cluster):
        jobs = [cluster.submit(f"job{number}", resources=ALL, **SHORT) for number in range(6)]
        until(lambda: any(cluster.task(job).state == "running" for job in jobs), "one runs")
        cluster.finish(*jobs)
        cluster.until_ended(*jobs)
        for job in jobs:
            steps = _steps(cluster.lines(job))
            assert steps == list(range(1, len(steps) + 1))
