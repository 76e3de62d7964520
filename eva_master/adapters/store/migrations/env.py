"""How Alembic runs the migrations: on the connection, and in the transaction, of the caller."""

from alembic import context

from eva_master.adapters.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    # SQLite's schema changes are transactional when the transaction is begun in earnest, as
    # `journal` does; a kill in the middle of a migration then leaves the old schema.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
