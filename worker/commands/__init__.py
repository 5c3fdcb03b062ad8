"""Commands that need the workers' code; they join `ehr-d3pm` by entry points (pyproject.toml).

Modules import the service only when a command runs: `ehr-d3pm --help` loads them all."""
