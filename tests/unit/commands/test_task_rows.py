"""A job as a table with a row for each task."""

from __future__ import annotations

from eva_client.downloads.task_rows import OWN, task_rows
from eva_wire.jobfile.table import Rows
from eva_wire.rpc.messages import Job, Task

JOB = Job(id="sweep-1", cost_micro_usd=3_000_000)
RAN = Task(
    index=0,
    name="slow",
    state="succeeded",
    attempt=2,
    exit_code=0,
    started_ms=1_000,
    finished_ms=61_000,
    ran_ms=40_000,
    last_instance="i-1",
    instance_type="c7i.large",
    steps=10,
    metrics={"loss": 0.5},
)
FAILED = Task(index=1, name="quick", state="failed", ran_ms=20_000, metrics={"acc": 0.25})
EXTRA = Task(index=1, replica=1, state="cancelled", ran_ms=99_000)
TABLE = Rows(b'name,lr,state\nslow,0.10,x\nquick,"1,5",y\n')


def test_a_row_has_what_a_task_was_given_and_what_became_of_it() -> None:
    columns, rows = task_rows(JOB, [RAN, FAILED, EXTRA], TABLE)
    assert columns == [*OWN[:2], "lr", "table.state", *OWN[2:], "metrics.acc", "metrics.loss"]
    slow, quick = rows
    assert list(slow) == columns
    assert slow == {
        **{"task": 0, "name": "slow", "lr": "0.10", "table.state": "x", "state": "succeeded"},
        **{"exit_code": 0, "attempts": 2, "failures": 0, "moves": 0},
        **{"started": "1970-01-01T00:00:01Z", "finished": "1970-01-01T00:01:01Z", "run_s": 40.0},
        **{"cost_usd": 2.0, "instance": "i-1", "instance_type": "c7i.large"},
        **{"steps": 10, "total_steps": None, "steps_per_second": None},
        **{"metrics.loss": 0.5, "metrics.acc": None},
    }
    assert (quick["lr"], quick["cost_usd"], quick["metrics.acc"]) == ("1,5", 1.0, 0.25)
    assert (quick["started"], quick["exit_code"]) == (None, None)


def test_a_job_without_a_table_has_rows_too() -> None:
    columns, rows = task_rows(JOB, [Task(index=0, state="waiting")], None)
    assert columns == [*OWN]
    (row,) = rows
    assert (row["task"], row["state"], row["cost_usd"], row["run_s"]) == (0, "waiting", None, None)


def test_a_column_of_names_that_names_no_tasks_stays() -> None:
    task = Task(index=0, name="trial-1", state="waiting")
    columns, rows = task_rows(JOB, [task], Rows(b"name,trial\nresnet,trial-1\n"))
    assert columns[:4] == ["task", "name", "table.name", "trial"]
    assert next(rows)["table.name"] == "resnet"
