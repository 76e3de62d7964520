"""A checksum of each row; rows of before get theirs when they are next written."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the column to all tables."""
    for table in (
        "jobs",
        "job_specs",
        "task_runs",
        "instances",
        "job_accounts",
        "instance_accounts",
        "rounds",
        "reasons",
        "documents",
        "join_tokens",
        "node_tokens",
        "launches",
        "user_tokens",
    ):
        op.add_column(table, sa.Column("checksum", sa.BigInteger))
