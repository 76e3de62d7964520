"""The journal in an SQL database: SQLite beside the master, or PostgreSQL by URL."""

from eva_master.adapters.store.journal import SqlJournal

__all__ = ["SqlJournal"]
