"""Files of jobs: fetched while these run, rest and move, and through restarts of the master."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters

BOX = {"e2e.box": {"cpus": 1, "memory": "2GiB", "price": "$0.10/h"}}
NEEDS = {"cpus": 1, "memory": "64MiB"}
WAIT = 'until [ -e "$GATE" ]; do sleep 0.1; done\n'
WRITE = 'echo "$EVA_TASK_ID" | tee "$EVA_STORAGE/outputs/of-$EVA_ATTEMPT"\n'


def gate(cluster: Cluster, name: str) -> Path:
    """The file for which a job waits."""
    return cluster.home / "record" / f"{name}.go"


def submit(cluster: Cluster, name: str, run: str, **keys: Any) -> str:
    document = {
        "name": name,
        "run": run,
        "resources": NEEDS,
        "envs": {"GATE": str(gate(cluster, name))},
        "grace_period": "1s",
        **keys,
    }
    text = yaml.safe_dump(document)
    return cluster.client.submit(text, file_name=f"{name}.yaml").job_id


def listed(cluster: Cluster, job: str) -> set[str]:
    """Paths of the outputs of a job, as `eva get --list` has them."""
    answer = cluster.eva("get", job, "outputs", "--list", "--json")
    files = json.loads(answer.stdout)["files"] if answer.returncode == 0 else []
    return {file["path"] for file in files}


def fetched(cluster: Cluster, job: str, into: Path) -> dict[str, str]:
    """Files that `eva get` leaves in a directory, by path."""
    answer = cluster.eva("get", job, "--to", str(into))
    assert answer.returncode == 0, answer.stderr
    files = (path for path in into.rglob("*") if path.is_file())
    return {str(path.relative_to(into)): path.read_text() for path in files}


def refused(answer: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """The words of a command that was refused, in one line."""
    assert answer.returncode == code, answer
    assert not answer.stdout, answer
    return " ".join(answer.stderr.split())


def test_a_job_has_its_files_while_it_runs_rests_and_moves(
    make_cluster: Clusters, tmp_path: Path
) -> None:
    cluster = make_cluster(catalog={"types": BOX, "only": ["e2e"]})
    job = submit(cluster, "job", WRITE + WAIT)
    said = f"{job}/0\n"
    until(lambda: listed(cluster, job) == {"outputs/of-1"}, "a running job has what it stored")
    into = tmp_path / "results"
    assert fetched(cluster, job, into) == {"of-1": said}
    assert cluster.eva("suspend", job).returncode == 0
    until(lambda: cluster.job(job).state == "suspended", "it is suspended")
    cluster.until_empty()
    again = json.loads(cluster.eva("get", job, "--to", str(into), "--json").stdout)
    assert (again["fetched"], again["present"]) == (0, 1)
    assert cluster.eva("resume", job).returncode == 0
    until(lambda: "outputs/of-2" in listed(cluster, job), "it goes on, and stores more")
    # The job leaves its instance for another one, where none of its files lie.
    source = cluster.task(job).instance
    assert cluster.eva("drain", source, "--move", "-y").returncode == 0
    until(lambda: "outputs/of-3" in listed(cluster, job), "it moves, and stores more")
    assert cluster.task(job).instance != source
    gate(cluster, "job").touch()
    cluster.until_ended(job)
    assert fetched(cluster, job, into) == {f"of-{attempt}": said for attempt in (1, 2, 3)}
    logs = cluster.eva("get", job, "logs", "--to", str(tmp_path / "logs"))
    assert logs.returncode == 0, logs.stderr
    assert len(list((tmp_path / "logs").iterdir())) == 3


def test_members_have_a_directory_each(make_cluster: Clusters, tmp_path: Path) -> None:
    cluster = make_cluster(catalog={"types": BOX, "only": ["e2e"]})
    gang = submit(cluster, "gang", WRITE + WAIT, tasks=2)
    array = submit(cluster, "array", WRITE, tasks=3, kind="array")
    cluster.until_ended(array)
    expected = {f"{index}/of-1": f"{gang}/{index}\n" for index in range(2)}
    until(lambda: listed(cluster, f"{gang}/0") and listed(cluster, f"{gang}/1"), "both store files")
    assert fetched(cluster, gang, tmp_path / "gang") == expected
    assert fetched(cluster, f"{gang}/1", tmp_path / "one") == {"1/of-1": f"{gang}/1\n"}
    assert fetched(cluster, array, tmp_path / "array") == {
        f"{index}/of-1": f"{array}/{index}\n" for index in range(3)
    }
    gate(cluster, "gang").touch()
    cluster.until_ended(gang)


def test_outputs_reach_the_next_job_through_restarts_and_stay_until_it_ends(
    make_cluster: Clusters, tmp_path: Path
) -> None:
    cluster = make_cluster(command="master", catalog={"types": BOX, "only": ["e2e"]})
    copy = 'cat "$EVA_STORAGE/inputs/data/of-1" >"$EVA_STORAGE/outputs/copy"\n'
    first = submit(cluster, "first", WRITE + WAIT)
    second = submit(
        cluster, "second", copy + WRITE + WAIT, storage={"inputs": {"data": "job:first/outputs"}}
    )
    # An array of which each task has the outputs of the second job.
    third = submit(
        cluster,
        "third",
        'cat "$EVA_STORAGE/inputs/data/of-1"',
        tasks=2,
        kind="array",
        storage={"inputs": {"data": f"job:{second}/outputs"}},
    )
    until(lambda: listed(cluster, first), "the first job has stored something")
    restart(cluster)
    assert f"job {first} is running" in refused(cluster.eva("rm", first, "-y"))
    gate(cluster, "first").touch()
    until(lambda: cluster.task(second).state == "running", "the second job runs")
    assert f"what {first} has stored is read by {second}" in refused(cluster.eva("rm", first, "-y"))
    restart(cluster)
    assert f"what {first} has stored is read by {second}" in refused(cluster.eva("rm", first, "-y"))
    assert cluster.eva("gc").returncode == 0
    gate(cluster, "second").touch()
    cluster.until_ended(first, second, third)
    assert fetched(cluster, second, tmp_path / "second") == {
        "copy": f"{first}/0\n",
        "of-1": f"{second}/0\n",
    }
    assert [b"".join(cluster.client.logs(third, task=index)) for index in range(2)] == [
        f"{second}/0\n".encode()
    ] * 2
    assert fetched(cluster, first, tmp_path / "first") == {"of-1": f"{first}/0\n"}
    removed = cluster.eva("rm", first, "-y")
    assert (removed.returncode, removed.stdout) == (0, f"removed the files of {first}\n")
    restart(cluster)
    kept = cluster.state_dir / "objects" / "jobs" / first
    until(lambda: not list(kept.rglob("*.*")) and not listed(cluster, first), "the files are gone")
    assert "removed" in refused(cluster.eva("get", first))
    assert fetched(cluster, second, tmp_path / "second")
    late = cluster.home / "record" / "late.yaml"
    late.write_text(
        f"name: late\nrun: 'true'\nresources: {{cpus: 1, memory: 64MiB}}\n"
        f"storage: {{inputs: {{data: 'job:{first}/outputs'}}}}\n"
    )
    assert f"what {first} had stored was removed" in refused(cluster.eva("submit", str(late)), 2)


def restart(cluster: Cluster) -> None:
    """Have the master die, and start it again; its instances run on."""
    cluster.kill()
    cluster.start()
