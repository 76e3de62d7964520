"""Secrets of users and tenants, sealed."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Create the table of secrets."""
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
        sa.Column("checksum", sa.BigInteger),
    )
