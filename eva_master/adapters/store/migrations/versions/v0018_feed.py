"""Migration to a table for the feed of events."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Create the table, empty: what happened before is told nowhere."""
    op.create_table(
        "feed",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        *(
            sa.Column(name, sa.String, nullable=False)
            for name in ("kind", "job", "task", "instance", "owner")
        ),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger),
    )
    op.create_index("feed_by_job", "feed", ["job", "number"])
    op.create_index("feed_by_instance", "feed", ["instance", "number"])
    op.create_index("feed_by_time", "feed", ["at_ms"])
