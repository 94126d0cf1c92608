"""Alembic's entry: runs the migrations on the connection, and inside the transaction, that `migrate` was given."""

from alembic import context

config = context.config
context.configure(
    connection=config.attributes["connection"],
    render_as_batch=True,  # SQLite alters a table by making it anew
    transactional_ddl=False,  # the transaction is the caller's: all of it or nothing
)
context.run_migrations()
