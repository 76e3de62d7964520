"""Alembic migrations, applied whenever a journal is opened."""
