"""Run the API, and bring its database up to date."""

from ehr.errors import EhrError
from ehr_d3pm.cli.output import errors_as_exit_codes, say
from runtime.command_options import DataDir, Host, LogLevel, Port, settings_with


@errors_as_exit_codes(EhrError)
def api(data_dir: DataDir = None, host: Host = None, port: Port = None, log_level: LogLevel = None) -> None:
    """Run the API alone; workers, database and broker are elsewhere (DATABASE_URL, REDIS_URL, STORE_URL)."""
    from app.server import run_api

    level = None if log_level is None else log_level.upper()
    run_api(settings_with(data_dir=data_dir, host=host, port=port, log_level=level))


@errors_as_exit_codes(EhrError)
def migrate() -> None:
    """Bring the database's schema to where this version needs it."""
    from model_store import migrate as migrations

    migrations.upgrade(settings_with().resolved_database_url)
    say(f"the schema is at {migrations.head()}")
