"""The task runs on an instance are its occupants: tenants are who pays for jobs."""

import json
import zlib

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Rename the field in the reasons of rounds."""
    connection = op.get_bind()
    update = sa.text("UPDATE reasons SET record = :record WHERE round = :number")
    for number, record in connection.execute(sa.text("SELECT round, record FROM reasons")).all():
        try:
            reasons = json.loads(zlib.decompress(record))
        except (zlib.error, ValueError):
            continue  # of a release that wrote another form
        for hosting in reasons.get("hostings", ()):
            if "tenants" in hosting:
                hosting["occupants"] = hosting.pop("tenants")
        renamed = zlib.compress(json.dumps(reasons).encode())
        connection.execute(update, {"record": renamed, "number": number})
