"""Many writers, many hosts: what holds when more than one process works on one store.

python -m benchmarks.fleet [--quick] [--stage NAME] [--json FILE]

`s3`: concurrent writers against an S3 server, how many of their writes are lost, and how fast they are beside files.
`fair`: a thousand queued jobs of twenty owners, and how long somebody else's small job waits.
`threads`: what two worker processes on one host draw together, over one alone.
`paper_mimic`: the memory that a training step of the paper's network takes.
`wide`: the memory that 20,000 codes take, from the upload to the report.
`stream`: the memory that training on ten million records takes, which stay in the store.
"""

from collections.abc import Callable

from benchmarks._fleet_fair import fair
from benchmarks._fleet_paper_mimic import paper_mimic
from benchmarks._fleet_s3 import s3_writers
from benchmarks._fleet_stream import stream
from benchmarks._fleet_threads import threads
from benchmarks._fleet_wide import wide
from benchmarks._harness import Figures, run_stages

# name -> a function of (figures, quick)
STAGES: dict[str, Callable[[Figures, bool], None]] = {"s3": s3_writers, "fair": fair, "threads": threads}
STAGES |= {"paper_mimic": paper_mimic, "wide": wide, "stream": stream}


def main() -> None:
    run_stages("Concurrent writers, workers and owners: what is lost, and how fast it is", STAGES)


if __name__ == "__main__":
    main()
