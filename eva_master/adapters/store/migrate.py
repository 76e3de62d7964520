"""Bringing a database to the schema of this release, without an ini file or a command."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select

from eva_master.adapters.store.codec import RECORD_VERSION
from eva_master.adapters.store.tables import VERSIONED
from eva_master.model.errors import JournalTooNew

_SCRIPTS = Path(__file__).parent / "migrations"
_HINT = "run the release of Eva that wrote it, or a later one, or restore an older backup"


def migrate(connection: Connection) -> None:
    """Apply the migrations that the database lacks, as a part of the running transaction.

    Raises:
        JournalTooNew: A later release wrote the database; nothing was changed.
    """
    config = Config()
    # The config parser expands percent signs.
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    if current is not None and current not in {each.revision for each in scripts.walk_revisions()}:
        raise JournalTooNew(f"the journal has the unknown schema {current}", hint=_HINT)
    if current != scripts.get_current_head():
        command.upgrade(config, "head")
    _check_records(connection)


def _check_records(connection: Connection) -> None:
    for table in VERSIONED:
        newest = connection.scalar(select(func.max(table.c.version)))
        if newest is not None and newest > RECORD_VERSION:
            raise JournalTooNew(
                f"the journal's {table.name} have records of version {newest}, "
                f"this release knows {RECORD_VERSION}",
                hint=_HINT,
            )
