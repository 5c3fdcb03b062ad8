"""How long anybody waits for Postgres. Over a network that swallows packets it would be hours."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timeouts:
    """In seconds; `statement` 0 leaves to the server what it has set, as a pooler between may demand."""

    connect: int = 5
    statement: float = 60
    silence: int = 15

    def connect_args(self) -> dict[str, Any]:
        """For libpq: what was sent and is not acknowledged, and a peer that answers no probe, break the connection."""
        arguments: dict[str, Any] = {
            "connect_timeout": self.connect,
            "keepalives": 1,
            "keepalives_idle": max(self.silence // 3, 1),
            "keepalives_interval": max(self.silence // 3, 1),
            "keepalives_count": 2,
            "tcp_user_timeout": 1000 * self.silence,
        }
        if self.statement > 0:
            longest = int(1000 * self.statement)
            arguments["options"] = f"-c statement_timeout={longest} -c idle_in_transaction_session_timeout={longest}"
        return arguments


UNHURRIED = Timeouts(statement=0)  # for migrations, which may take as long as they take
