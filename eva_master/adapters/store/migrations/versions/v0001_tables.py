"""Migration to the first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables of the journal."""
    _records()
    _accounts()
    op.create_table(
        "rounds",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("planned_ms", sa.BigInteger, nullable=False),
        sa.Column("launches", sa.Integer, nullable=False),
        sa.Column("moves", sa.Integer, nullable=False),
        sa.Column("figures", sa.Text, nullable=False),
    )
    op.create_table(
        "documents",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def _records() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("submitted_ms", sa.BigInteger, nullable=False),
        *_document(),
    )
    op.create_index("jobs_by_owner", "jobs", ["owner", "name"])
    op.create_index("jobs_by_state", "jobs", ["state"])
    op.create_table("job_specs", sa.Column("job_id", sa.String, primary_key=True), *_document())
    op.create_table(
        "copies",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("instance", sa.String),
        *_document(),
    )
    op.create_index("copies_by_job", "copies", ["job_id"])
    op.create_table(
        "instances",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("type", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("up_ms", sa.BigInteger),
        sa.Column("gone_ms", sa.BigInteger),
        *_document(),
    )


def _document() -> tuple[sa.Column[str], sa.Column[int]]:
    return (
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
    )


def _accounts() -> None:
    op.create_table(
        "job_accounts",
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("charged", sa.String, nullable=False),
        sa.Column("alone", sa.String, nullable=False),
        sa.Column("busy_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "instance_accounts",
        sa.Column("instance_id", sa.String, primary_key=True),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
        sa.Column("charged", sa.String, nullable=False),
        sa.Column("idle", sa.String, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
    )
