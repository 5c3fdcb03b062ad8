"""Alembic's entry: runs on the connection, transaction and lock that migrate.py holds."""

from alembic import context

from model_store.tables import Job

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=Job.metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
