"""What one owner may have at a time. Imports nothing: settings are read before anything else."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The most that an owner may have at a time, of each."""

    queued_jobs: int
    running_jobs: int  # further ones wait
    queued_records: int  # synthetic ones, of jobs that wait or run
    stored_bytes: int
