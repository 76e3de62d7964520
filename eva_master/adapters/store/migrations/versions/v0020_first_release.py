"""The schema of the first release."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = None


def upgrade() -> None:
    """Create all tables of the journal."""
    for create in (_jobs, _instances, _accounts, _told, _users):
        create()


def _checksum() -> sa.Column[Any]:
    return sa.Column("checksum", sa.BigInteger)


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("submitted_ms", sa.BigInteger, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False, server_default="-1"),
        sa.Column("ended_ms", sa.BigInteger),
        sa.Column("command", sa.String, nullable=False, server_default=""),
        _checksum(),
    )
    op.create_index("jobs_by_number", "jobs", ["number"])
    op.create_index("jobs_by_end", "jobs", ["ended_ms"])
    op.create_index("jobs_by_owner", "jobs", ["owner", "name", "number"])
    op.create_index("jobs_by_command", "jobs", ["command"])
    op.create_table(
        "job_specs",
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("tasks", sa.Text, nullable=False, server_default=""),
        sa.Column("runs", sa.Integer, nullable=False, server_default="0"),
        _checksum(),
    )
    op.create_table(
        "task_runs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("instance", sa.String),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        _checksum(),
    )
    op.create_index("task_runs_by_job", "task_runs", ["job_id"])


def _instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("type", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("up_ms", sa.BigInteger),
        sa.Column("gone_ms", sa.BigInteger),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False, server_default="-1"),
        sa.Column("ended_ms", sa.BigInteger),
        _checksum(),
    )
    op.create_index("instances_by_number", "instances", ["number"])
    op.create_index("instances_by_end", "instances", ["ended_ms"])
    op.create_table(
        "launches",
        sa.Column("instance_id", sa.String, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("request", sa.Text, nullable=False),
        _checksum(),
    )
    op.create_table(
        "join_tokens",
        sa.Column("instance_id", sa.String, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.Column("public_key", sa.String),
        sa.Column("used_ms", sa.BigInteger),
        _checksum(),
    )
    op.create_table(
        "node_tokens",
        sa.Column("node", sa.String, primary_key=True),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.Column("public_key", sa.String),
        sa.Column("used_ms", sa.BigInteger),
        _checksum(),
    )


def _accounts() -> None:
    op.create_table(
        "job_accounts",
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("charged", sa.String, nullable=False),
        sa.Column("alone", sa.String, nullable=False),
        sa.Column("busy_ms", sa.BigInteger, nullable=False),
        sa.Column("replicas", sa.String, nullable=False, server_default="0"),
        sa.Column("spot", sa.String, nullable=False, server_default="0"),
        sa.Column("spot_ms", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("listed", sa.String, nullable=False, server_default="0"),
        sa.Column("interruptions", sa.BigInteger, nullable=False, server_default="0"),
        _checksum(),
    )
    op.create_table(
        "instance_accounts",
        sa.Column("instance_id", sa.String, primary_key=True),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
        sa.Column("charged", sa.String, nullable=False),
        sa.Column("idle", sa.String, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.Column("standing", sa.Text, nullable=False, server_default=""),
        _checksum(),
    )
    op.create_table(
        "documents",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        _checksum(),
    )


def _told() -> None:
    op.create_table(
        "rounds",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("planned_ms", sa.BigInteger, nullable=False),
        sa.Column("launches", sa.Integer, nullable=False),
        sa.Column("moves", sa.Integer, nullable=False),
        sa.Column("figures", sa.Text, nullable=False),
        _checksum(),
    )
    op.create_table(
        "reasons",
        sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        _checksum(),
    )
    op.create_table(
        "feed",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("job", sa.String, nullable=False),
        sa.Column("task", sa.String, nullable=False),
        sa.Column("instance", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("failure", sa.Integer, nullable=False, server_default="0"),
        _checksum(),
    )
    op.create_index("feed_by_job", "feed", ["job", "number"])
    op.create_index("feed_by_instance", "feed", ["instance", "number"])
    op.create_index("feed_by_time", "feed", ["at_ms"])
    op.create_table(
        "notices",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("receiver", sa.String, nullable=False),
        sa.Column("due_ms", sa.BigInteger, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        _checksum(),
    )
    op.create_table(
        "notice_marks",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
        _checksum(),
    )


def _users() -> None:
    op.create_table(
        "user_tokens",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger),
        sa.Column("revoked_ms", sa.BigInteger),
        sa.Column("identity", sa.String),
        _checksum(),
    )
    op.create_table(
        "secrets",
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("holder", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("set_ms", sa.BigInteger, nullable=False),
        sa.Column("set_by", sa.String, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("key_id", sa.String, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        _checksum(),
    )
