"""Tokens with which owned nodes join, and the keys that they were used for."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the table of node tokens."""
    op.create_table(
        "node_tokens",
        sa.Column("node", sa.String, primary_key=True),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.Column("public_key", sa.String),
        sa.Column("used_ms", sa.BigInteger),
    )
