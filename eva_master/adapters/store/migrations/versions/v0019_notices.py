"""Migration to an outbox of notices, and to events that say which failure they tell."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Create the tables, empty; events of before are counted as no failure of their task."""
    op.add_column("feed", sa.Column("failure", sa.Integer, nullable=False, server_default="0"))
    # The checksums of events are without the new column; rows that have none are believed.
    op.execute("UPDATE feed SET checksum = NULL")
    op.create_table(
        "notices",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("receiver", sa.String, nullable=False),
        sa.Column("due_ms", sa.BigInteger, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger),
    )
    op.create_table(
        "notice_marks",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.Column("checksum", sa.BigInteger),
    )
