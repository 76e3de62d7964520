"""An array from a table with real processes, through a restart of the master."""

from __future__ import annotations

import csv
import hashlib
import io
import json

import pytest

from tests.e2e.arrays.test_array_jobs import BOX
from tests.e2e.cluster import until
from tests.e2e.conftest import Clusters

TABLE = 'name,text\r\nfirst,"one, ""two"""\r\nsecond,"a\nb"\r\nthird,$HOME\r\n'
JOB = """
name: sweep
concurrency: 1
run: |
  printf '%s=%s.' "$name" "$text"
  printf '%s' "$text" >"$EVA_STORAGE/outputs/text"
  until [ -e "GATE" ]; do sleep 0.1; done
resources: {cpus: 1, memory: 64MiB}
"""
READER = """
name: reader
storage: {inputs: {second: "job:sweep/second/outputs/text"}}
run: cat "$EVA_STORAGE/inputs/second"
resources: {cpus: 1, memory: 64MiB}
"""


def test_rows_reach_their_tasks_before_and_after_a_restart(make_cluster: Clusters) -> None:
    cluster = make_cluster(catalog={"types": BOX, "only": ["e2e"]})
    gate = cluster.home / "record" / "gate"
    files = {"sweep.yaml": JOB.replace("GATE", str(gate)), "reader.yaml": READER, "t.csv": TABLE}
    paths = {name: str(cluster.home / "record" / name) for name in files}
    for name, text in files.items():
        (cluster.home / "record" / name).write_bytes(text.encode())
    submitted = cluster.eva("submit", paths["sweep.yaml"], "--array", paths["t.csv"])
    assert submitted.returncode == 0, submitted.stderr
    sweep = submitted.stdout.strip()
    reader = cluster.eva("submit", paths["reader.yaml"]).stdout.strip()
    until(lambda: cluster.task(sweep).state == "running", "the first task runs")
    cluster.kill()
    cluster.start()
    gate.touch()
    cluster.until_ended(sweep, reader)
    shown = cluster.client.job(sweep)
    assert [(task.name, task.attempt) for task in shown.tasks] == [
        ("first", 1),
        ("second", 1),
        ("third", 1),
    ]
    logs = [b"".join(cluster.client.logs(sweep, task=index)) for index in range(3)]
    assert logs == [b'first=one, "two".', b"second=a\nb.", b"third=$HOME."]
    assert b"".join(cluster.client.logs(reader)) == b"a\nb"
    named = cluster.eva("logs", f"{sweep}/third")
    assert named.stdout == "third=$HOME."
    assert "second" in cluster.eva("status", sweep).stdout
    exported = cluster.eva("get", sweep, "--metrics")
    assert exported.returncode == 0, exported.stderr
    rows = list(csv.DictReader(io.StringIO(exported.stdout)))
    assert [(row["task"], row["name"], row["text"]) for row in rows] == [
        ("0", "first", 'one, "two"'),
        ("1", "second", "a\nb"),
        ("2", "third", "$HOME"),
    ]
    assert {(row["state"], row["exit_code"], row["instance_type"]) for row in rows} == {
        ("succeeded", "0", "e2e.box")
    }
    assert all(float(row["run_s"]) > 0 and row["started"] <= row["finished"] for row in rows)
    cost = sum(float(row["cost_usd"]) for row in rows)
    assert cost == pytest.approx(shown.cost_micro_usd / 1e6, abs=1e-5)
    one = json.loads(cluster.eva("get", f"{sweep}/second", "--metrics", "--json").stdout)
    assert [task["text"] for task in one["tasks"]] == ["a\nb"]


def test_a_task_whose_row_is_lost_fails_with_the_reason(make_cluster: Clusters) -> None:
    cluster = make_cluster(catalog={"types": BOX, "only": ["e2e"]})
    gate, record = cluster.home / "record" / "gate", cluster.home / "record"
    (record / "sweep.yaml").write_text(JOB.replace("GATE", str(gate)) + "retries: 0\n")
    (record / "t.csv").write_text("name,text\na-1,x\nb-2,y\n")
    submitted = cluster.eva("submit", str(record / "sweep.yaml"), "--array", str(record / "t.csv"))
    sweep = submitted.stdout.strip()
    until(lambda: cluster.task(sweep).state == "running", "the first task runs")
    digest = hashlib.sha256((record / "t.csv").read_bytes()).hexdigest()
    (table,) = cluster.state_dir.rglob(digest)
    table.unlink()
    cluster.kill()  # The master has the table in memory.
    cluster.start()
    gate.touch()
    cluster.until_ended(sweep, state="failed")
    first, second = cluster.client.job(sweep).tasks
    assert (first.state, second.state) == ("succeeded", "failed")
    assert "its row of the job's table cannot be read" in second.reason
    exported = cluster.eva("get", sweep, "--metrics")
    assert exported.returncode == 0
    assert "without the columns of its table" in exported.stderr
    again = cluster.eva("retry", sweep, "--failed")
    assert again.returncode != 0
    assert "not stored any more" in again.stderr
