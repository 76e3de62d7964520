"""Costs of instances since they stood in pools, not only while they were empty there."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Rewrite the amounts by pool; of what was busy then nothing is on record."""
    connection = op.get_bind()
    select = sa.text("SELECT instance_id, standing FROM instance_accounts WHERE standing != ''")
    update = sa.text("UPDATE instance_accounts SET standing = :standing WHERE instance_id = :id")
    for instance, standing in connection.execute(select).all():
        rewritten = json.dumps(_costs(json.loads(standing)))
        connection.execute(update, {"standing": rewritten, "id": instance})
    totals = connection.execute(sa.text("SELECT value FROM documents WHERE name = 'totals'"))
    value = totals.scalar()
    if value is None or "standing" not in (sums := json.loads(value)):
        return
    sums["pools"] = _costs(sums.pop("standing"))
    connection.execute(
        sa.text("UPDATE documents SET value = :value WHERE name = 'totals'"),
        {"value": json.dumps(sums)},
    )


def _costs(idle: dict[str, str]) -> dict[str, dict[str, str]]:
    return {pool: {"charged": amount, "idle": amount} for pool, amount in idle.items()}
