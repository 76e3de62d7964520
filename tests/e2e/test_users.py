"""Several people on one cluster: what each may do, and how each is kept from the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eva_wire.values.errors import NotAuthenticated, NotAuthorised
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import Clusters

_RECORDS = ("jobs", "job_specs", "task_runs", "instances", "user_tokens")


def records(cluster: Cluster) -> dict[str, list[tuple[Any, ...]]]:
    """What the master has written down about jobs, instances and users."""
    rows = cluster.journal_rows()
    found = {table: rows[table] for table in _RECORDS}
    # The rest of a task's row is its progress.
    return found | {"task_runs": [row[:4] for row in found["task_runs"]]}


def test_a_viewer_sees_everything_and_changes_nothing(cluster: Cluster) -> None:
    job = cluster.submit("shown")
    cluster.until_running(job)
    viewer = cluster.client_of("vic", "viewer")
    assert viewer.job(job).owner == cluster.client.who_am_i().owner
    assert [one.id for one in viewer.jobs()] == [job]
    assert len(viewer.describe().instances) == 1
    assert b"attempt 1 starts" in b"".join(viewer.logs(job))
    before = records(cluster)
    with pytest.raises(NotAuthorised, match=r"Jobs\.Submit needs role user; you are vic"):
        viewer.submit(cluster.job_file("mine"), file_name="mine.yaml")
    with pytest.raises(NotAuthorised, match=r"Jobs\.Cancel needs role user"):
        viewer.cancel(job)
    with pytest.raises(NotAuthorised, match=r"Tokens\.Create needs role operator"):
        viewer.create_token("vic", "operator")
    with pytest.raises(NotAuthorised, match=r"Tokens\.Revoke needs role operator"):
        viewer.revoke_token(cluster.client.who_am_i().id)
    assert records(cluster) == before
    assert cluster.job(job).state == "running"
    cluster.finish(job)
    cluster.until_ended(job)


def test_jobs_are_ended_by_their_owner_or_an_operator(cluster: Cluster) -> None:
    ana, ben = (cluster.client_of(owner, "user") for owner in ("ana", "ben"))
    text = cluster.job_file("train", run="sleep 600")
    of_ana = ana.submit(text, file_name="train.yaml").job_id
    of_ben = ben.submit(text, file_name="train.yaml").job_id
    # The same name, and each user means their own job.
    assert (ana.job("train").id, ben.job("train").id) == (of_ana, of_ben)
    before = records(cluster)["jobs"]
    with pytest.raises(NotAuthorised, match=f"job {of_ana} belongs to ana; you are ben"):
        ben.cancel(of_ana)
    assert [row[:3] for row in records(cluster)["jobs"]] == [row[:3] for row in before]
    assert cluster.job(of_ana).state in ("pending", "running")
    assert ben.cancel("train").job_id == of_ben
    assert cluster.client.cancel(of_ana).job_id == of_ana
    cluster.until_ended(of_ana, of_ben, state="cancelled")


def test_a_token_from_its_making_to_its_end(make_cluster: Clusters) -> None:
    cluster = make_cluster(command="master")
    made = cluster.eva("token", "create", "--owner", "ana", "--role", "user", "--json")
    assert made.returncode == 0, made.stderr
    token = json.loads(made.stdout)
    told = cluster.eva("whoami", EVA_TOKEN=token["secret"])
    assert told.stdout.startswith("ana, with role user"), told.stderr
    ana = cluster.client_with(token["secret"])
    assert ana.who_am_i().owner == "ana"
    # From one call to the next, on the same connection.
    revoked = cluster.eva("token", "revoke", "-y", token["id"])
    assert (revoked.returncode, revoked.stdout) == (0, f"revoked {token['id']}\n")
    with pytest.raises(NotAuthenticated, match="was revoked"):
        ana.who_am_i()
    refused = cluster.eva("ls", EVA_TOKEN=token["secret"])
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        f"error: token {token['id']} of ana was revoked",
        "hint: ask an operator for a new one",
    ]
    # A master that starts again knows who is who.
    cluster.kill()
    cluster.start()
    assert cluster.client.who_am_i().role == "operator"
    with pytest.raises(NotAuthenticated, match="was revoked"):
        ana.who_am_i()
    logs = "".join(text for _, text in cluster.logs())
    assert "token made" in logs
    assert token["secret"] not in logs


def test_whoever_runs_a_cluster_has_nothing_to_set_up(cluster: Cluster) -> None:
    (cluster.home / "eva").symlink_to(cluster.state_dir)
    done = cluster.eva(
        *("whoami", "--json"),
        EVA_CONFIG="",
        XDG_STATE_HOME=str(cluster.home),
        XDG_CONFIG_HOME=str(cluster.home / "none"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["role"] == "operator"
    # Unlike somebody whose token has expired.
    made = cluster.client.create_token("ana", "user", lifetime_ms=1)
    refused = cluster.eva("ls", EVA_TOKEN=made.secret)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: token {made.token.id} of ana has expired\n")
