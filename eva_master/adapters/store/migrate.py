"""Migrates a database to the schema of this release."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from eva_wire.values.errors import JournalTooNew, JournalTooOld

_SCRIPTS = Path(__file__).parent / "migrations"
TOO_NEW_HINT = "run the release of Eva that wrote it, or a later one, or restore an older backup"


def migrate(connection: Connection) -> None:
    """Apply the migrations that the database lacks, as a part of the running transaction.

    Raises:
        JournalTooNew: A later release wrote the database; nothing was changed.
        JournalTooOld: A version from before the first release did; nothing was changed.
    """
    config = configured(connection)
    scripts = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    revisions = sorted(each.revision for each in scripts.walk_revisions())
    if current is not None and current not in revisions:
        if len(current) == len(revisions[0]) and current < revisions[0]:
            raise JournalTooOld(
                f"the journal has the schema {current} of a version from before the first release",
                hint="let its jobs end under the version that wrote it, then start this one with a"
                " new `state_dir`",
            )
        raise JournalTooNew(f"the journal has the unknown schema {current}", hint=TOO_NEW_HINT)
    if current != scripts.get_current_head():
        command.upgrade(config, "head")


def configured(connection: Connection) -> Config:
    """Alembic's configuration for these migrations, on a connection in a transaction."""
    config = Config()
    # The config parser expands percent signs.
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
