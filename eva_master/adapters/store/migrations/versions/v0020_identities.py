"""Migration to tokens that say which identity of the cloud has got them."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add the column; the tokens of before were made by operators."""
    op.add_column("user_tokens", sa.Column("identity", sa.String))
    # The checksums are without the new column; rows that have none are believed.
    op.execute("UPDATE user_tokens SET checksum = NULL")
