"""The client under its former name, until the next release: import it from `ehr_d3pm`."""

from ehr_d3pm import ApiError, Client, ClientError, JobFailedError, UnreachableError

__all__ = ["ApiError", "Client", "ClientError", "JobFailedError", "UnreachableError"]
