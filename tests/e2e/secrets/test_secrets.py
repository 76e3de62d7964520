"""A secret from its user to the tasks that use it, and nowhere else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest
import yaml

from tests.e2e.cluster import EVA, SETTINGS, Cluster, arguments, until
from tests.e2e.conftest import Clusters
from tests.e2e.nodes.test_fixed_nodes import NODE, Machine
from tests.e2e.test_containers import containers, containers_of
from tests.e2e.test_deaths import ONE_TYPE
from tests.fakes.patience import DEADLINE_S
from tests.fakes.secrets.traces import traces

CHECK = """\
told=$(printf %s "$TOKEN" | sha256sum | cut -c1-64)
[ "$told" = "$DIGEST" ] || { echo "another value: $told"; exit 9; }
echo used
"""
"""Uses the secret without printing it."""


def made_up() -> str:
    """A value that is nowhere else on this machine."""
    return f's3cr\'t "{secrets.token_urlsafe(24)}" $HOME `id` \\ é\n second line'


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def job_with(value: str, name: str, run: str = "", first: str = "", **keys: Any) -> str:
    """A job file whose program checks the value of TOKEN."""
    document = {
        "name": name,
        "run": first + CHECK + run,
        "resources": {"cpus": 1, "memory": "64MiB"},
        "secrets": ["TOKEN"],
        "envs": {"DIGEST": digest(value)},
        "grace_period": "1s",
        **keys,
    }
    return yaml.safe_dump(document)


def submit(cluster: Cluster, text: str) -> str:
    return cluster.client.submit(text, file_name="job.yaml").job_id


def end_programs(cluster: Cluster) -> None:
    """Kill the programs of all tasks, which sleep."""
    for process in cluster.processes():
        if arguments(process) == ["sleep", "600"]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def until_used(cluster: Cluster, job: str, index: int = 0, *, times: int = 1) -> None:
    """Wait until the program of a task has used its secret."""

    def used() -> bool:
        return b"".join(cluster.client.logs(job, task=index)).count(b"used\n") >= times

    until(used, f"{job}/{index} uses its secret")


def test_a_secret_reaches_its_tasks_and_no_disk(cluster: Cluster) -> None:
    value = made_up()
    assert not cluster.client.set_secret("TOKEN", value.encode()).unchanged
    gang = submit(cluster, job_with(value, "gang", "sleep 600", tasks=2))
    array = submit(cluster, job_with(value, "array", tasks=3, kind="array"))
    for index in range(2):
        until_used(cluster, gang, index)
    cluster.until_ended(array)
    assert traces(value, cluster.home) == []
    # A command in the task has its environment, and writes none of it down.
    inside = cluster.eva("exec", f"{gang}/1", "--", "sh", "-c", CHECK)
    assert (inside.returncode, inside.stdout) == (0, "used\n"), inside.stderr
    assert traces(value, cluster.home) == []
    # Tasks that run go on with a master and an agent that know nothing of the value.
    for task in cluster.job(gang).tasks:
        cluster.kill_processes_of(task.instance, "eva_worker.agent")
    cluster.kill()
    cluster.start()
    until(lambda: cluster.client.describe().instances[0].state == "ready", "the worker is back")
    assert {task.attempt for task in cluster.job(gang).tasks} == {1}
    # The next attempt has what is set then, by a master that was started again.
    again = submit(cluster, job_with(value, "again"))
    cluster.until_ended(again)
    cluster.client.cancel(gang)
    cluster.until_ended(gang, state="cancelled")
    assert traces(value, cluster.home) == []


def test_each_attempt_has_the_value_of_its_start(cluster: Cluster) -> None:
    old, new = made_up(), made_up()
    cluster.client.set_secret("TOKEN", old.encode())
    # The first attempt waits for its successor's value, and fails by it; the next ones have it.
    file = cluster.home / "go"
    first = f"echo used; until [ -e '{file}' ]; do sleep 0.05; done\n"
    job = submit(cluster, job_with(new, "job", first=first, retries=5))
    until_used(cluster, job)
    answer = cluster.client.set_secret("TOKEN", new.encode())
    assert (answer.secret.version, list(answer.jobs)) == (2, [job])
    file.touch()
    cluster.until_ended(job)
    assert cluster.job(job).failures == 1
    assert traces(old, cluster.home) == traces(new, cluster.home) == []


def test_a_job_waits_for_its_secret_and_says_so(cluster: Cluster) -> None:
    value = made_up()
    text = job_with(value, "waits")
    file = cluster.home / "waits.yaml"
    file.write_text(text)
    submitted = cluster.eva("submit", str(file))
    job = submitted.stdout.strip()
    note = "the secret TOKEN is not set, and the job waits for it: eva secret set TOKEN"
    assert note in submitted.stderr
    cluster.until_ended(submit(cluster, job_with("", "other", secrets=[])))
    assert cluster.job(job).state == "pending"
    assert len(cluster.instances()) == 1
    reason = "it waits for the secret TOKEN: eva secret set TOKEN"
    assert list(cluster.job(job).waiting_for) == [reason]
    for command in ("status", "explain"):
        shown = cluster.eva(command, job)
        assert reason in " ".join(shown.stdout.split()), shown
    assert json.loads(cluster.eva("status", job, "--json").stdout)["waiting_for"] == [reason]
    result = eva_with(cluster, value, "secret", "set", "TOKEN")
    assert (result.returncode, result.stdout) == (0, "set TOKEN\n")
    assert f"used by {job}: tasks that run keep what they have" in result.stderr
    cluster.until_ended(job)
    removed = cluster.eva("secret", "rm", "TOKEN", "-y")
    assert (removed.returncode, removed.stdout) == (0, "removed TOKEN\n")
    missing = cluster.eva("secret", "rm", "TOKEN", "-y")
    assert missing.returncode == 1
    assert "you have no secret 'TOKEN'" in missing.stderr


def eva_with(cluster: Cluster, value: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a value on standard input, as `echo` gives it."""
    return subprocess.run(
        [*EVA, *arguments],
        env=cluster.environment(),
        input=f"{value}\n",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_each_way_to_begin_again_reads_the_value_anew(make_cluster: Clusters) -> None:
    cluster = make_cluster(catalog=ONE_TYPE)
    values = [made_up() for _ in range(5)]
    cluster.client.set_secret("TOKEN", values[0].encode())
    # The log says by a digest which value each attempt had.
    program = 'printf "%s\\n" "$(printf %s "$TOKEN" | sha256sum | cut -c1-64)"\nexec sleep 600\n'
    text = yaml.safe_dump({**yaml.safe_load(job_with("", "job", retries=5)), "run": program})
    job = submit(cluster, text)

    def until_told(attempts: int) -> None:
        def said() -> bool:
            return b"".join(cluster.client.logs(job)).decode().endswith(last)

        last = f"{digest(values[attempts - 1])}\n"
        until(said, f"attempt {attempts} has the value that was set when it began")
        assert cluster.task(job).attempt == attempts

    until_told(1)
    # A job that is suspended goes on with the value that is set by then.
    assert cluster.eva("suspend", job).returncode == 0
    until(lambda: cluster.job(job).state == "suspended", "it is suspended")
    cluster.client.set_secret("TOKEN", values[1].encode())
    assert cluster.eva("resume", job).returncode == 0
    until_told(2)
    # So does one that moves to another instance.
    cluster.client.set_secret("TOKEN", values[2].encode())
    source = cluster.task(job).instance
    assert cluster.eva("drain", source, "--move", "-y").returncode == 0
    until_told(3)
    assert cluster.task(job).instance != source
    # One that has failed and whose secret is gone waits for it.
    cluster.client.remove_secret("TOKEN")
    end_programs(cluster)
    until(lambda: "waits for the secret TOKEN" in cluster.task(job).waiting_for, "it waits")
    assert cluster.job(job).failures == 1
    cluster.client.set_secret("TOKEN", values[3].encode())
    until_told(4)
    # An instance that dies takes the value with it.
    cluster.client.set_secret("TOKEN", values[4].encode())
    cluster.kill_processes_of(cluster.task(job).instance)
    until_told(5)
    cluster.client.cancel(job)
    cluster.until_ended(job, state="cancelled")
    assert [traces(value, cluster.home) for value in values] == [[]] * len(values)


def test_a_restored_cluster_without_the_key_says_so(make_cluster: Clusters) -> None:
    cluster = make_cluster(command="master")
    cluster.client.set_secret("TOKEN", made_up().encode())
    cluster.kill()
    key = cluster.state_dir / "pki" / "secrets.key"
    kept = key.read_bytes()
    key.unlink()
    cluster.start()
    assert "SECRETS CANNOT BE READ" in cluster.said()
    (listed,) = json.loads(cluster.eva("secret", "ls", "--json").stdout)["secrets"]
    assert (listed["name"], listed["unreadable"]) == ("TOKEN", True)
    shown = cluster.eva("secret", "ls").stdout
    assert "unreadable: set it again" in shown
    job = submit(cluster, job_with("x", "waits"))
    until(lambda: cluster.job(job).waiting_for, "the job waits")
    # With the key from the backup all is as before.
    cluster.kill()
    key.write_bytes(kept)
    cluster.start()
    assert not json.loads(cluster.eva("secret", "ls", "--json").stdout)["secrets"][0]["unreadable"]
    cluster.client.cancel(job)


def test_an_own_node_gets_secrets_too(
    make_cluster: Clusters, make_home: Callable[[], Path]
) -> None:
    objects = f"file://{make_home()}"
    cluster = make_cluster(
        catalog=ONE_TYPE, settings={"nodes": {"rack1": NODE}, "objects": objects}
    )
    path, value = cluster.home / "rack1.token", made_up()
    assert cluster.eva("node", "token", "rack1", "--out", str(path)).returncode == 0
    cluster.client.set_secret("TOKEN", value.encode())
    with contextlib.closing(Machine(cluster, path)) as machine:
        job = submit(cluster, job_with(value, "own", "exec sleep 600", retries=3))
        until_used(cluster, job)
        assert cluster.task(job).instance == "rack1"
        machine.processes()[1].send_signal(signal.SIGKILL)
        until(lambda: len(machine.processes()) == 2, "there is another agent")
        assert traces(value, cluster.home) == []
        # A master at the same address that has nothing but the state directory takes over.
        cluster.kill()
        elsewhere = cluster.home / "other-machine"
        cluster.state_dir.rename(elsewhere)
        cluster.state_dir = elsewhere
        cluster.start()
        assert cluster.task(job).attempt == 1
        end_programs(cluster)
        until_used(cluster, job, times=2)
        assert cluster.task(job).attempt == 2
        cluster.client.cancel(job)
        cluster.until_ended(job, state="cancelled")
        assert traces(value, cluster.home) == []


@pytest.fixture
def client(docker_engine: str) -> Iterator[Any]:
    with contextlib.closing(docker.DockerClient(base_url=docker_engine)) as client:
        yield client


@pytest.mark.docker
def test_containers_get_secrets_that_no_engine_shows(
    make_cluster: Clusters, client: Any, docker_engine: str
) -> None:
    local = containers_of(docker_engine)
    cluster = make_cluster(settings={"local": {**SETTINGS["local"], **local}})
    value = made_up()
    cluster.client.set_secret("TOKEN", value.encode())
    job = submit(cluster, job_with(value, "job", "exec sleep 600"))
    until_used(cluster, job)
    (container,) = containers(client, job)
    inspected = json.dumps(client.api.inspect_container(container.id))
    assert json.dumps(value)[1:-1] not in inspected
    assert digest(value) in inspected
    books = Path(client.info()["DockerRootDir"])
    assert traces(value, cluster.home, books / "containers", books / "image") == []
    cluster.kill()
    cluster.start()
    until(lambda: cluster.client.describe().instances[0].state == "ready", "the worker is back")
    assert cluster.task(job).attempt == 1
    container.kill()
    until(lambda: cluster.task(job).attempt == 2, "the next attempt begins")
    until_used(cluster, job, times=1)
    cluster.client.cancel(job)
    cluster.until_ended(job, state="cancelled")
    assert traces(value, cluster.home, books / "containers", books / "image") == []
