"""Commands in forks on own nodes, in each run of a late task, and beside what holds jobs back."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
import yaml

from tests.e2e.cluster import PROGRAMS, Cluster, until
from tests.e2e.conftest import Clusters
from tests.e2e.forks.test_forked_job import NODE, NODES, TYPES
from tests.e2e.nodes.test_fixed_nodes import Machine
from tests.e2e.parts.test_exec import UNREACHABLE, command
from tests.e2e.parts.test_exec_stops import HANGUP, STOPPED, shell
from tests.fakes.paths import PYTHON
from tests.fakes.patience import DEADLINE_S

WHO = "echo $EVA_TASK_ID $EVA_ATTEMPT $EVA_FORK"
BOX = {"e2e.box": {"cpus": 2, "memory": "8GiB", "price": "$0.10/h"}}
TINY = {"cpus": 1, "memory": "1GiB"}


def printed(cluster: Cluster, *task: str, script: str = WHO) -> str:
    """A command's own account of its task."""
    done = cluster.eva("exec", *task, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def until_let_in(cluster: Cluster, *task: str) -> None:
    """Wait until commands get into a task again."""
    until(lambda: cluster.eva("exec", *task, "--", "true").returncode == 0, "a way in")


@pytest.fixture
def nodes(make_cluster: Clusters) -> Iterator[tuple[Cluster, dict[str, Machine]]]:
    """A cluster of two own nodes and no instances, and the machines."""
    cluster = make_cluster(
        catalog={"types": TYPES, "only": ["e2e"]}, settings={"nodes": dict.fromkeys(NODES, NODE)}
    )
    with ExitStack() as stack:
        machines = {}
        for name in NODES:
            token = cluster.home / f"{name}.token"
            assert cluster.eva("node", "token", name, "--out", str(token)).returncode == 0
            machines[name] = stack.enter_context(closing(Machine(cluster, token, name)))
        until(lambda: set(NODES) <= set(cluster.instances()), "both nodes join")
        yield cluster, machines


def test_commands_get_into_forks_on_own_nodes_and_through_restarts(
    nodes: tuple[Cluster, dict[str, Machine]],
) -> None:
    cluster, machines = nodes
    job = cluster.submit(
        "forked",
        run=f"{PYTHON} {shlex.quote(str(PROGRAMS / 'forked.py'))}",
        resources={"cpus": 1, "memory": "256MiB"},
        total_steps=100_000,
        forks=2,
        merge={"every": "4s"},
    )
    until(lambda: [run.state for run in cluster.job(job).tasks] == ["running"] * 2, "both run")
    assert printed(cluster, job) == f"{job}/0 1 0"
    assert printed(cluster, "--replica=1", job) == f"{job}/0+1 1 1"
    missing = cluster.eva("exec", "--replica=2", job, "--", "true")
    assert missing.returncode == 1
    assert f"task 0 of job {job} has no run 2" in missing.stderr
    place = {run.replica: run.instance for run in cluster.job(job).tasks}
    assert set(place.values()) == set(NODES)

    with command(cluster, "--replica=1", job) as process:
        (agent,) = machines[place[1]].processes()[1:]
        agent.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == UNREACHABLE
        assert f"the worker on {place[1]} went away, and what ran in {job}/0+1 with it" in errors
    until_let_in(cluster, "--replica=1", job)

    with command(cluster, "--replica=1", job) as process:
        cluster.kill()
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == UNREACHABLE
        assert "broke, and what ran in the task has ended" in errors
    cluster.start()
    until_let_in(cluster, "--replica=1", job)
    until(lambda: not left_on(cluster), "nothing is left of the commands")
    assert {(run.replica, run.attempt) for run in cluster.job(job).tasks} == {(0, 1), (1, 1)}
    cluster.client.cancel(job)
    cluster.until_ended(job, state="cancelled")


def left_on(cluster: Cluster) -> list[str]:
    """Traces of commands on own nodes: records and processes."""
    records = [str(path) for path in cluster.home.glob("rack*/runtime/*/*/*/execs/*")]
    for process in cluster.processes():
        try:
            if "EVA_EXEC" in process.environ():
                records.append(str(process))
        except OSError:
            continue
    return records


# The runs of task 0 end when they are told to; those of task 1 show how long tasks take.
LATE = """
[ "$EVA_TASK_INDEX" = 0 ] || exec sleep 1
while [ ! -e "$RELEASED$EVA_TASK_ID" ]; do sleep 0.1; done
"""


@pytest.mark.long
def test_commands_get_into_each_run_of_a_late_task(make_cluster: Clusters) -> None:
    cluster = make_cluster(
        settings={"policy": {"name": "no_packing"}}, catalog={"types": BOX, "only": ["e2e"]}
    )
    released = cluster.home / "released"
    wait = f"while [ ! -e {shlex.quote(str(released))}/busy ]; do sleep 0.1; done"
    keys = {"resources": TINY, "reports_steps": False}
    text = yaml.safe_dump({"name": "busy", "run": wait, **keys})
    busy = cluster.client.submit(text, file_name="busy.yaml").job_id
    until(lambda: cluster.task(busy).state == "running", "the other job runs")
    document = {
        **keys,
        "name": "late",
        "run": LATE,
        "envs": {"RELEASED": f"{released}/"},
        "kind": "array",
        "tasks": 2,
        "duration": "1s",
        "stragglers": "duplicate",
    }
    text = yaml.safe_dump(document)
    job = cluster.client.submit(text, file_name="late.yaml").job_id
    (released / job).mkdir(parents=True)

    def running() -> set[int]:
        tasks = cluster.job(job).tasks
        return {run.replica for run in tasks if (run.index, run.state) == (0, "running")}

    until(lambda: running() == {0, 1}, "both runs of task 0 run")
    assert printed(cluster, f"{job}/0") == f"{job}/0 1"
    assert printed(cluster, "--replica=0", f"{job}/0") == f"{job}/0 1"
    assert printed(cluster, "--replica=1", f"{job}/0") == f"{job}/0+1 1"
    ended = cluster.eva("exec", f"{job}/1", "--", "true")
    assert ended.returncode == 1
    assert f"task {job}/1 has ended (succeeded)" in ended.stderr
    with shell(cluster, f"{job}/0") as user:
        (released / job / "0+1").touch()
        assert user.ended() == (HANGUP, STOPPED)
    cluster.until_ended(job)
    (released / "busy").touch()
    cluster.until_ended(busy)


def test_commands_beside_caps_and_what_is_held_back(make_cluster: Clusters) -> None:
    """An array that runs two at a time, with a secret, a disk, and a cap on what it may cost."""
    cluster = make_cluster(
        catalog={
            "types": {"e2e.box": {"cpus": 8, "memory": "16GiB", "price": "$36/h", "limit": 1}},
            "only": ["e2e"],
        },
        settings={"local": {"launch_delay": "100ms"}},
    )
    cluster.client.set_secret("TOKEN", b"seven")
    job = cluster.submit(
        "held",
        kind="array",
        tasks=3,
        concurrency=2,
        secrets=["TOKEN"],
        resources={"cpus": 1, "memory": "1GiB", "disk": "64MiB"},
        max_cost="$100",
        grace_period="2s",
    )

    def running() -> list[int]:
        return [task.index for task in cluster.job(job).tasks if task.state == "running"]

    until(lambda: running() == [0, 1], "two tasks run")
    for index in running():
        script = 'echo "$EVA_TASK_ID $TOKEN"'
        assert printed(cluster, f"{job}/{index}", script=script) == f"{job}/{index} seven"
    waits = cluster.eva("exec", f"{job}/2", "--", "true")
    assert waits.returncode == 1
    assert f"task {job}/2 waits and does not run yet" in waits.stderr
    # Reports of a command, and its checkpoints, are not the task's.
    report = (
        "import eva_iterator as e; e.step(10**9); e.set_total(7)\n"
        "for _ in e.EvaIterator(range(5), checkpoint=lambda _: 1 / 0): pass\n"
        "assert e.publish(lambda _: 1 / 0) == 0"
    )
    reported = cluster.eva("exec", f"{job}/0", "--", *shlex.split(PYTHON), "-c", report)
    assert (reported.returncode, reported.stderr) == (0, "")
    steps = cluster.task(job).steps
    until(lambda: steps < cluster.task(job).steps, "the task goes on and reports")
    assert cluster.task(job).steps < 10**9
    with shell(cluster, f"{job}/1") as user:
        # As much as the rest of a minute costs, however long the machine took for all that.
        cap = cluster.job(job).cost_micro_usd + 600_000
        assert cluster.eva("resume", job, "--max-cost", f"{cap / 1e6:.6f}").returncode == 0
        assert user.ended() == (HANGUP, STOPPED)
    until(lambda: cluster.job(job).state == "suspended", "it has spent what it may")
    assert cluster.job(job).cost_micro_usd <= cap
    closed = cluster.eva("exec", f"{job}/1", "--", "true")
    assert closed.returncode == 1
    assert "waits and does not run yet" in closed.stderr
    assert cluster.eva("resume", job, "--max-cost", "$100").returncode == 0
    until(lambda: running() == [0, 1], "two tasks run again")
    until_let_in(cluster, f"{job}/1")
    cluster.client.cancel(job)
    cluster.until_ended(job, state="cancelled")
