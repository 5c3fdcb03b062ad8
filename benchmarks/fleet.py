"""Many writers, many hosts: what holds when more than one process works on one store.

python -m benchmarks.fleet [--quick] [--stage NAME] [--other DIR] [--json FILE]

`s3`: concurrent writers against an S3 server, how many of their writes are lost, and how fast they are beside files.
`fair`: a thousand queued jobs of twenty owners, and how long somebody else's small job waits.
`threads`: what two worker processes on one host draw together, over one alone.
`workers`: one cohort by 1, 2 and 4 workers on Postgres, Valkey and S3: records per second and share of the ideal.
`history`: what claims, sweeps, lists and scrapes cost with a hundred thousand jobs in history.
`ten_million`: ten million records through the API: seconds and memory.
`deploys`: workers are told to stop, one after the other, under load: jobs lost.
`upgrade`: the version of another checkout becomes this one under load: jobs failed.
`paper_mimic`: the memory that a training step of the paper's network takes.
`wide`: the memory that 20,000 codes take, from the upload to the report.
`stream`: the memory that training on ten million records takes, which stay in the store.

    git worktree add /tmp/other COMMIT && python -m benchmarks.fleet --stage upgrade --other /tmp/other
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks._fleet_cohorts import scaling, ten_million
from benchmarks._fleet_deploys import deploys, upgrade
from benchmarks._fleet_fair import fair
from benchmarks._fleet_history import history
from benchmarks._fleet_paper_mimic import paper_mimic
from benchmarks._fleet_parts import HERE
from benchmarks._fleet_s3 import s3_writers
from benchmarks._fleet_stream import stream
from benchmarks._fleet_threads import threads
from benchmarks._fleet_wide import wide
from benchmarks._harness import Figures, run_stages

# name -> a function of (figures, quick)
STAGES: dict[str, Callable[[Figures, bool], None]] = {
    "s3": s3_writers,
    "fair": fair,
    "threads": threads,
    "workers": scaling,
    "history": history,
    "ten_million": ten_million,
    "deploys": deploys,
    "paper_mimic": paper_mimic,
    "wide": wide,
    "stream": stream,
}


def main() -> None:
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--other", type=Path, default=HERE, metavar="DIR", help="upgrade: the checkout to come from")
    other = more.parse_known_args()[0].other.resolve()
    stages = STAGES | {"upgrade": partial(upgrade, other)}
    run_stages("Concurrent writers, workers and owners: what is lost, and how fast it is", stages, more)


if __name__ == "__main__":
    main()
