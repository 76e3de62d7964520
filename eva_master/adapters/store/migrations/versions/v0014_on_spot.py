"""Costs of jobs on spot instances."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the columns; what was on spot instances before is not on record."""
    for name, kind in (
        ("spot", sa.String),
        ("spot_ms", sa.BigInteger),
        ("listed", sa.String),
        ("interruptions", sa.BigInteger),
    ):
        op.add_column("job_accounts", sa.Column(name, kind, nullable=False, server_default="0"))
