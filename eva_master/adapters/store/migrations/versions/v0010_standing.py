"""Costs of instances while they stood empty in pools."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column; earlier releases had no pools."""
    op.add_column(
        "instance_accounts", sa.Column("standing", sa.Text, nullable=False, server_default="")
    )
