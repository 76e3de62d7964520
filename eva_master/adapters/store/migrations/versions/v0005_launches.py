"""Requests to the cloud, so that they can be repeated word for word."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table of launches."""
    op.create_table(
        "launches",
        sa.Column("instance_id", sa.String, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("request", sa.Text, nullable=False),
    )
