"""Uses of the tokens with which instances join."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table of join tokens."""
    op.create_table(
        "join_tokens",
        sa.Column("instance_id", sa.String, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.Column("public_key", sa.String),
        sa.Column("used_ms", sa.BigInteger),
    )
