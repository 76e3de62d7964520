"""Ended jobs and instances are read page by page, and their sums are a document.

The table of task runs and the fields of rounds' reasons have the names that the code has.
"""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_BATCH = 5_000
_TERMINAL = {"succeeded", "failed", "cancelled"}


def upgrade() -> None:
    """Rename, add columns and indexes, and fill them in."""
    op.drop_index("copies_by_job", "copies")
    op.rename_table("copies", "task_runs")
    op.create_index("task_runs_by_job", "task_runs", ["job_id"])
    for table in ("jobs", "instances"):
        op.add_column(
            table, sa.Column("number", sa.BigInteger, nullable=False, server_default="-1")
        )
        op.add_column(table, sa.Column("ended_ms", sa.BigInteger))
    op.add_column("jobs", sa.Column("command", sa.String, nullable=False, server_default=""))
    _fill("jobs", _job)
    _fill("instances", _instance)
    op.drop_index("jobs_by_state", "jobs")
    op.drop_index("jobs_by_owner", "jobs")
    op.create_index("jobs_by_number", "jobs", ["number"])
    op.create_index("jobs_by_end", "jobs", ["ended_ms"])
    op.create_index("jobs_by_owner", "jobs", ["owner", "name", "number"])
    op.create_index("jobs_by_command", "jobs", ["command"])
    op.create_index("instances_by_number", "instances", ["number"])
    op.create_index("instances_by_end", "instances", ["ended_ms"])
    _rename_in_reasons()
    _sum_up()


def _job(row: Any) -> dict[str, Any]:
    record = json.loads(row.record)
    ended = record["history"][-1][1] if row.state in _TERMINAL else None
    return {"ended_ms": ended, "command": record.get("command", "")}


def _instance(row: Any) -> dict[str, Any]:
    record = json.loads(row.record)
    return {"ended_ms": record["history"][-1][1] if row.state == "gone" else None}


def _fill(name: str, values: Callable[[Any], dict[str, Any]]) -> None:
    """Set the new columns of every row of a table."""
    for rows in _batches(name, "id", "state", "record"):
        changes = [{"key": row.id, "number": _number(row.id), **values(row)} for row in rows]
        assignments = ", ".join(f"{column} = :{column}" for column in changes[0] if column != "key")
        statement = sa.text(f"UPDATE {name} SET {assignments} WHERE id = :key")  # noqa: S608
        op.get_bind().execute(statement, changes)


def _number(name: str) -> int:
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else -1


def _rename_in_reasons() -> None:
    connection = op.get_bind()
    stored = connection.execute(sa.text("SELECT round, record FROM reasons")).all()
    for number, record in stored:
        try:
            reasons = json.loads(zlib.decompress(record))
        except (zlib.error, ValueError):
            continue  # of a release that wrote another form
        for named in _members(reasons):
            if "copy" in named:
                named["run"] = named.pop("copy")
        connection.execute(
            sa.text("UPDATE reasons SET record = :record WHERE round = :number"),
            {"number": number, "record": zlib.compress(json.dumps(reasons).encode())},
        )


def _members(reasons: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for hosting in reasons.get("hostings", ()):
        yield from hosting.get("tenants", ())
    for exchange in reasons.get("exchanges", ()):
        yield from exchange.get("moves", ())


def _sum_up() -> None:
    """Write the totals that are kept as running sums from now on."""
    connection = op.get_bind()
    moves, states = 0, Counter[str]()
    for rows in _batches("task_runs", "id", "state", "record"):
        states.update(row.state for row in rows)
        moves += sum(json.loads(row.record).get("moves", 0) for row in rows)
    jobs = connection.execute(sa.text("SELECT state, count(*) FROM jobs GROUP BY state")).all()
    if not jobs:
        return  # a new journal, whose master begins at nothing
    totals = {
        "charged": str(_sum("instance_accounts", "instance_id", "charged")),
        "idle": str(_sum("instance_accounts", "instance_id", "idle")),
        "alone": str(_sum("job_accounts", "job_id", "alone")),
        "migrations": moves,
        "jobs": dict(jobs),
        "runs": dict(states),
    }
    connection.execute(
        sa.text("INSERT INTO documents (name, value) VALUES ('totals', :value)"),
        {"value": json.dumps(totals)},
    )


def _sum(table: str, key: str, column: str) -> int:
    """An exact sum of decimal strings, which are longer than the database's integers."""
    return sum(int(getattr(row, column)) for rows in _batches(table, key, column) for row in rows)


def _batches(table: str, key: str, *columns: str) -> Iterable[list[Any]]:
    """All rows of a table in the order of its key, so many at a time."""
    names = ", ".join(dict.fromkeys((key, *columns)))
    last = ""
    while True:
        rows = list(
            op.get_bind().execute(
                sa.text(
                    f"SELECT {names} FROM {table} WHERE {key} > :last"  # noqa: S608 - no input
                    f" ORDER BY {key} LIMIT {_BATCH}"
                ),
                {"last": last},
            )
        )
        if not rows:
            return
        yield rows
        last = getattr(rows[-1], key)
