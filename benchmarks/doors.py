"""The doors that people and platforms come through: the command line, webhooks, the OpenAPI document.

python -m benchmarks.doors [--quick] [--stage NAME] [--json FILE]

`cli`: how soon a command answers. `client`: how much there is to install. `webhooks`: 1,000 messages to a receiver that
fails a third of the time, while the sender is killed twice. `schema`: schemathesis with all of its checks.
"""

from collections.abc import Callable
from pathlib import Path

from benchmarks._doors_client import command_start, install_size
from benchmarks._doors_schema import schema_failures
from benchmarks._doors_webhooks import webhooks
from benchmarks._harness import Figures, options

# name -> a function of (figures, quick)
STAGES: dict[str, Callable[[Figures, bool], None]] = {
    "cli": command_start,
    "client": install_size,
    "webhooks": webhooks,
    "schema": schema_failures,
}


def main() -> None:
    parser = options("What people and platforms meet first: how soon, how much, and whether any of it is lost")
    parser.add_argument("--stage", choices=list(STAGES), action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    figures = Figures()
    for name in arguments.stage or STAGES:
        STAGES[name](figures, arguments.quick)
    target: Path | None = arguments.json
    figures.finish(target)


if __name__ == "__main__":
    main()
