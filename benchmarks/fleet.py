"""Many writers, many hosts: what holds when more than one process works on one store.

python -m benchmarks.fleet [--quick] [--stage NAME] [--json FILE]

`s3`: concurrent writers against an S3 server, how many of their writes are lost, and how fast they are beside files.
`fair`: a thousand queued jobs of twenty owners, and how long somebody else's small job waits.
`threads`: what two worker processes on one host draw together, over one alone.
"""

from collections.abc import Callable

from benchmarks._fleet_fair import fair
from benchmarks._fleet_s3 import s3_writers
from benchmarks._fleet_threads import threads
from benchmarks._harness import Figures, run_stages

# name -> a function of (figures, quick)
STAGES: dict[str, Callable[[Figures, bool], None]] = {"s3": s3_writers, "fair": fair, "threads": threads}


def main() -> None:
    run_stages("Concurrent writers, workers and owners: what is lost, and how fast it is", STAGES)


if __name__ == "__main__":
    main()
