"""Opens copies of journals that other processes may have open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from eva_master.adapters.store.journal import SqlJournal
from eva_wire.values.errors import NotFound, StorageError

_FILE = "journal.db"


@contextmanager
def copied_journal(state: Path) -> Iterator[SqlJournal]:
    """Open a copy of a master's journal; the master may run meanwhile, and is not disturbed.

    Args:
        state: The master's state directory, or the journal itself.

    Raises:
        NotFound: There is no journal.
        JournalTooNew: A later release wrote it.
        StorageError: The journal cannot be read.
    """
    file = state / _FILE if state.is_dir() else state
    if not file.is_file():
        raise NotFound(
            f"there is no journal at {file}",
            hint="name a master's state directory; journals in PostgreSQL cannot be replayed",
        )
    with TemporaryDirectory(prefix="eva-history-") as folder:
        copy = Path(folder) / _FILE
        try:
            source = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
            with closing(source), closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        except sqlite3.Error as error:
            raise StorageError(f"{file} cannot be read: {error}") from error
        with SqlJournal.open(f"sqlite:///{copy}") as journal:
            yield journal
