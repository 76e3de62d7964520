"""Why the plans of the newest rounds were as they were."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table of reasons."""
    op.create_table(
        "reasons",
        sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )
