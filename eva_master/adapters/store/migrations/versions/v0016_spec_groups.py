"""Optional parts of specs are groups; values that equal a default are left out."""

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

_BATCH = 1_000
_BEFORE, _VERSION = 2, 3
_GROUPS = {
    "stage": ("depends_on", "only_ended", "dag"),
    "restarts": ("grace_period_ms", "checkpoint_ms", "launch_ms", "checkpoint_interval_ms"),
    "failing": ("retries", "retry_on", "fail_on", "on_failure", "max_duration_ms"),
    "array": ("concurrency", "stragglers", "pilots"),
    "elastic": ("least", "scaling", "scaling_apart"),
    "forking": ("forks", "merge"),
}


def upgrade() -> None:
    """Rewrite the documents of specs, but for damaged ones, which loading reports."""
    update = sa.text(
        "UPDATE job_specs SET record = :record, version = :version, checksum = :checksum"
        " WHERE job_id = :job_id"
    )
    last = ""
    while rows := _rows(last):
        last = rows[-1].job_id
        if changes := [change for row in rows if (change := _change(row)) is not None]:
            op.get_bind().execute(update, changes)


def _rows(after: str) -> list[Any]:
    query = sa.text(
        "SELECT job_id, record, version, tasks, runs, checksum FROM job_specs"
        " WHERE job_id > :last ORDER BY job_id LIMIT :limit"
    )
    return list(op.get_bind().execute(query, {"last": after, "limit": _BATCH}))


def _change(row: Any) -> dict[str, Any] | None:
    """New values of a row; `None` if it is damaged, or of another version."""
    *values, checksum = row
    if row.version != _BEFORE or (checksum is not None and _checksum(*values) != checksum):
        return None
    try:
        record = json.dumps(_grouped(json.loads(row.record)))
    except (ValueError, TypeError, AttributeError):
        return None
    return {
        "job_id": row.job_id,
        "record": record,
        "version": _VERSION,
        "checksum": _checksum(row.job_id, record, _VERSION, row.tasks, row.runs),
    }


def _grouped(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A document with the values of each group in an object of their own."""
    group_of = {name: group for group, names in _GROUPS.items() for name in names}
    training = {name: spec[name] for name in ("split_batch", "ps") if name in spec}
    document: dict[str, Any] = {"training": {**(spec.get("training") or {}), **training}}
    for name, value in spec.items():
        if (group := group_of.get(name)) is not None:
            document.setdefault(group, {})[name] = value
        elif name not in document and name not in training:
            document[name] = value
    return document


def _checksum(*values: object) -> int:
    return crc32("\x1f".join(map(str, values)).encode("utf-8", "surrogatepass"))
