"""Equal parts of the tasks of a job stand once; task runs that never changed need no row."""

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_BATCH = 100
_VERSION = 2


def upgrade() -> None:
    """Add the columns, and take the tasks out of the documents of specs."""
    op.add_column("job_specs", sa.Column("tasks", sa.Text, nullable=False, server_default=""))
    op.add_column("job_specs", sa.Column("runs", sa.Integer, nullable=False, server_default="0"))
    update = sa.text(
        "UPDATE job_specs SET record = :record, tasks = :tasks, version = :version"
        " WHERE job_id = :job_id"
    )
    last = ""
    while rows := _rows(last):
        last = rows[-1].job_id
        changes = []
        for row in rows:
            spec = json.loads(row.record)
            tasks = json.dumps(_shared(spec.pop("tasks")))
            record = json.dumps(spec)
            changes.append(
                {"job_id": row.job_id, "record": record, "tasks": tasks, "version": _VERSION}
            )
        op.get_bind().execute(update, changes)


def _rows(after: str) -> list[Any]:
    query = sa.text(
        "SELECT job_id, record FROM job_specs WHERE job_id > :last ORDER BY job_id LIMIT :limit"
    )
    return list(op.get_bind().execute(query, {"last": after, "limit": _BATCH}))


class _Listed:
    """A list of different values, and the place of each."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        place = self._places.setdefault(json.dumps(value, sort_keys=True), len(self.values))
        if place == len(self.values):
            self.values.append(value)
        return place


def _shared(tasks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Tasks as one document in which every part that is repeated stands once."""
    texts, programs, demands, rates, kinds = (_Listed() for _ in range(5))
    order: list[list[int]] = []

    def pairs(of: Iterable[tuple[str, str]]) -> list[list[int]]:
        return [[texts.place(key), texts.place(value)] for key, value in of]

    for task in tasks:
        program = task["program"]
        stored = {
            **program,
            "run": texts.place(program["run"]),
            "env": pairs(program.get("env", ())),
            "inputs": pairs(program.get("inputs", ())),
        }
        place = kinds.place(
            {
                "workload": texts.place(task["workload"]),
                "program": programs.place(stored),
                "demand": demands.place(task["demand"]),
                "rates": rates.place(task.get("throughput", [])),
                "name": task.get("name", ""),
            }
        )
        if order and order[-1][0] == place:
            order[-1][1] += 1
        else:
            order.append([place, 1])
    return {
        "texts": texts.values,
        "programs": programs.values,
        "demands": demands.values,
        "rates": rates.values,
        "tasks": kinds.values,
        "order": order,
    }
