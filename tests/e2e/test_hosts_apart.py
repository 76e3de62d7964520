"""Test hosts are what the tests that use them take for granted."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import psutil
import pytest

from tests.e2e.cluster import until
from tests.e2e.conftest import Hosts
from tests.fakes.hosts.cluster import HostCluster
from tests.fakes.hosts.site import Site
from tests.fakes.patience import DEADLINE_S

pytestmark = pytest.mark.hosts

SMALL = {"types": {"e2e.small": {"cpus": 2, "memory": "4GiB", "price": "$0.10/h"}}, "only": ["e2e"]}
# So that nothing is replaced for having been away.
PATIENT = {"lost_worker_timeout": "1h"}
SILENCE_S = 1.0
REACH_S = 0.5
MORE = bytes(1024 * 1024)

KILLED = """
import os, signal
from tests.fakes.hosts.cluster import HostCluster
cluster = HostCluster()
cluster.start()
cluster.until_running(cluster.submit("orphan"))
print(cluster.site.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def namespaces(process: psutil.Process) -> set[str]:
    return {str(Path(f"/proc/{process.pid}/ns", kind).readlink()) for kind in ("net", "pid", "mnt")}


def reaches(cluster: HostCluster, instance: str) -> bool:
    """Whether somebody on an instance can connect to the master."""
    host, _, port = cluster.address.rpartition(":")
    dial = f"import socket; socket.create_connection(({host!r}, {port}), {REACH_S})"
    inside = ["nsenter", f"--net=/proc/{cluster.init(instance).pid}/ns/net"]
    done = subprocess.run(
        [*inside, sys.executable, "-c", dial], stderr=subprocess.PIPE, check=False
    )
    return done.returncode == 0


def answers(cluster: HostCluster, instance: str) -> bool:
    """Whether the engine of an instance does."""
    with contextlib.suppress(docker.errors.DockerException), cluster.docker(instance) as client:
        return bool(client.ping())
    return False


def test_each_host_has_its_own(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=PATIENT, catalog=SMALL, disk_mib=64)
    jobs = [cluster.submit(name) for name in ("one", "two")]
    cluster.until_running(*jobs)
    one, two = (cluster.task(job).instance for job in jobs)

    assert one != two
    assert not namespaces(cluster.init(one)) & namespaces(cluster.init(two))
    assert not namespaces(cluster.init(one)) & namespaces(psutil.Process())
    for job, instance in zip(jobs, (one, two), strict=True):
        with cluster.docker(instance) as client:
            (container,) = client.containers.list(all=True)
        assert container.labels["eva.copy"] == f"{job}/0"
        program = cluster.container(f"{job}/0")
        assert program.cmdline() == ["python3", "counter.py"]
        assert program in cluster.everything(instance)
        ours = {cluster.agent(instance), cluster.supervisor(instance), cluster.engine(instance)}
        assert ours < set(cluster.everything(instance))

    cluster.cut(one)
    assert not reaches(cluster, one)
    assert reaches(cluster, two)
    cluster.until_steps(jobs[0])
    cluster.mend(one)
    until(lambda: reaches(cluster, one), "the cable is mended")

    cluster.cut("master")
    assert not reaches(cluster, one)
    assert not reaches(cluster, two)
    cluster.mend("master")
    until(lambda: reaches(cluster, one) and reaches(cluster, two), "the master's is, too")

    cluster.freeze(one)
    known = cluster.lines(jobs[0])
    time.sleep(SILENCE_S)
    assert cluster.lines(jobs[0]) == known
    cluster.thaw(one)
    cluster.until_steps(jobs[0])

    program, engine = cluster.container(f"{jobs[1]}/0"), cluster.engine(two)
    engine.kill()
    until(lambda: set(cluster.processes_of(two, "dockerd")) - {engine}, "an engine is started")
    until(lambda: answers(cluster, two), "it answers")
    assert cluster.container(f"{jobs[1]}/0") == program, "the container outlives its engine"

    filler = cluster.fill(one)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        (filler.parent / "more").write_bytes(MORE)
    cluster.inside(two, cluster.disk(two) / "more").write_bytes(MORE)
    filler.unlink()
    cluster.finish(*jobs)
    cluster.until_ended(*jobs)


@pytest.mark.long
def test_a_host_that_crashes_boots_again_with_its_disk(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=PATIENT, catalog=SMALL)
    job = cluster.submit("shaken")
    cluster.until_running(job)
    instance = cluster.task(job).instance
    machine, init = cluster.machine(instance), cluster.init(instance)
    program = cluster.container(f"{job}/0")

    init.kill()

    until(lambda: not program.is_running(), "nothing outlives the crash")
    until(lambda: cluster.has_booted(instance) and cluster.init(instance) != init, "it boots")
    until(lambda: len(cluster.lines(job, event="start")) == 2, "the job starts again")
    assert cluster.machine(instance) == machine
    assert cluster.task(job).instance == instance, "no other instance is needed"
    assert not cluster.lines(job, event="overlap")
    cluster.finish(job)
    cluster.until_ended(job)


def test_a_test_run_that_is_killed_leaves_nothing_that_runs() -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert killed.returncode == -signal.SIGKILL
    path = Path(killed.stdout.strip())
    assert path.is_dir()

    until(lambda: not [it for it in psutil.process_iter() if of_site(it, path)], "all have ended")
    Site().close()
    # Another test run at the same time may be at it.
    until(lambda: not path.exists(), "its directory is removed")
    assert not list(Path("/sys/fs/cgroup").glob(f"*/eva-hosts/{path.name}"))


def of_site(process: psutil.Process, path: Path) -> bool:
    """By its environment, or as a program in a container by its control group."""
    try:
        groups = Path(f"/proc/{process.pid}/cgroup").read_text()
        return str(path) in process.environ().values() or path.name in groups
    except (psutil.Error, FileNotFoundError, ProcessLookupError):
        return False
