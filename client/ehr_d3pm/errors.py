"""What the client raises."""

from typing import Any

Json = dict[str, Any]


class ClientError(Exception):
    """The root of what the client raises."""


class UnreachableError(ClientError):
    """Nobody answers at the service's address."""


class ApiError(ClientError):
    """The service refused or failed; `problem` is its RFC 9457 body."""

    def __init__(self, status: int, problem: Json) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or f"HTTP status {status}"))
        self.status, self.problem = status, problem

    @property
    def type(self) -> str:
        """The stable word at the end of the problem's type, such as `unknown-code`."""
        return str(self.problem.get("type", "")).rsplit(":", 1)[-1]


class JobFailedError(ClientError):
    """A job that was waited for failed or was cancelled."""

    def __init__(self, job: Json) -> None:
        error = job.get("error") or {}
        super().__init__(str(error.get("detail") or f"the job was {job['state']}"))
        self.job = job
