"""The journal in an SQL database: SQLite beside the master, or PostgreSQL by URL."""

from eva_master.adapters.store.archive import SqlArchive
from eva_master.adapters.store.journal import SqlJournal
from eva_master.adapters.store.user_tokens import UserTokens

__all__ = ["SqlArchive", "SqlJournal", "UserTokens"]
