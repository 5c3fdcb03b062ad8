"""Many writers, many hosts: what holds when more than one process works on one store.

python -m benchmarks.fleet [--quick] [--stage NAME] [--json FILE]

`s3`: concurrent writers against an S3 server, how many of their writes are lost, and how fast they are beside files.
`threads`: what two worker processes on one host draw together, over one alone.
"""

from collections.abc import Callable
from pathlib import Path

from benchmarks._fleet_s3 import s3_writers
from benchmarks._fleet_threads import threads
from benchmarks._harness import Figures, options

# name -> a function of (figures, quick)
STAGES: dict[str, Callable[[Figures, bool], None]] = {"s3": s3_writers, "threads": threads}


def main() -> None:
    parser = options("Concurrent writers, workers and owners: what is lost, and how fast it is")
    parser.add_argument("--stage", choices=list(STAGES), action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    figures = Figures()
    for name in arguments.stage or STAGES:
        STAGES[name](figures, arguments.quick)
    target: Path | None = arguments.json
    figures.finish(target)


if __name__ == "__main__":
    main()
