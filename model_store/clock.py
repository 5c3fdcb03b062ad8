"""One clock for all processes: the database's. Times are seconds since 1970 UTC, as floating point numbers.

Leases are compared across hosts whose own clocks may differ, so no lease is ever computed from a local clock.
"""

from typing import Any

from sqlalchemy import Double
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement


class now(FunctionElement[float]):  # noqa: N801 - reads as the SQL function it is
    """The database's present time."""

    type = Double()
    inherit_cache = True


@compiles(now, "postgresql")
def _postgresql(element: Any, compiler: Any, **options: Any) -> str:
    # clock_timestamp moves on within a transaction: a lease is counted from the moment it is written
    return "EXTRACT(EPOCH FROM clock_timestamp())::double precision"


@compiles(now, "sqlite")
def _sqlite(element: Any, compiler: Any, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"
