"""How Alembic runs the migrations: on the connection, and in the transaction, of the caller."""

from alembic import context

from eva_master.adapters.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
)
with context.begin_transaction():
    context.run_migrations()
