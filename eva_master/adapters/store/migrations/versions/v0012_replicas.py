"""Costs of extra runs of tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0010"


def upgrade() -> None:
    """Add the column; earlier releases had one run of each task."""
    op.add_column(
        "job_accounts", sa.Column("replicas", sa.String, nullable=False, server_default="0")
    )
