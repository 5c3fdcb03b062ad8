"""Commands that need the API's code or its database; they join `ehr-d3pm` by entry points (pyproject.toml).

Modules import the service only when a command runs: `ehr-d3pm --help` loads them all."""
