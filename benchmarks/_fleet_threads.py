"""Two worker processes on one host against one: records per second together.

`python -m benchmarks._fleet_threads RECORDS` is one of the processes: it draws when it is told to, and says when it is
done.
"""

import os
import statistics
import subprocess
import sys

from benchmarks._harness import Figures, show, timed
from worker.threads import COUNTS, WAITS, share_of_cores, take_share

CODES = 950
ROUNDS = 5


class Process:
    """A process with its share of the cores, ready to draw."""

    def __init__(self, processes: int, n_records: int) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in {*COUNTS, *WAITS}}
        take_share(processes, environment=environment)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._fleet_threads", str(n_records)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.wait()

    def begin(self) -> None:
        assert self._process.stdin is not None
        print("draw", file=self._process.stdin, flush=True)

    def wait(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() == "":
            raise RuntimeError("a process of the benchmark has ended")

    def close(self) -> None:
        self._process.communicate()


def threads(figures: Figures, quick: bool) -> None:
    """`workers2_over_1`: the median over rounds. One and two take turns, so other work on the machine hits both."""
    n_records = 1_024 if quick else 20_480
    one, two = [Process(1, n_records)], [Process(2, n_records) for _ in range(2)]
    try:
        rates: list[tuple[float, float]] = []
        for _ in range(1 if quick else ROUNDS):
            rates.append((_rate(one, n_records), _rate(two, n_records)))
    finally:
        for process in (*one, *two):
            process.close()
    ratios = [together / alone for alone, together in rates]
    show(
        "worker processes on one host",
        ["processes", "threads each", "records / s together"],
        [[str(n), str(share_of_cores(n)), f"{statistics.median(rate[n - 1] for rate in rates):,.0f}"] for n in (1, 2)],
    )
    figures.add("workers2_over_1", statistics.median(ratios), "times")


def _rate(processes: list[Process], n_records: int) -> float:
    """Until the slowest is done."""
    with timed() as seconds:
        for process in processes:
            process.begin()
        for process in processes:
            process.wait()
    return len(processes) * n_records / seconds[0]


def _draw_when_told(n_records: int) -> None:
    import numpy as np
    import torch

    from ehr.generators.d3pm import D3PMConfig
    from worker.engine.generators import SampleRequest
    from worker.engine.generators.d3pm import D3PMGenerator

    weights = 1 / np.arange(1, CODES + 1) ** 0.9
    prevalence = torch.from_numpy(weights * 9 / weights.sum()).clamp(max=0.5)
    sizes = torch.from_numpy(np.bincount(np.random.default_rng(0).poisson(9, 10_000)) / 10_000)
    generator = D3PMGenerator(D3PMConfig(), prevalence, sizes)  # an untrained network costs the same
    generator.sample(SampleRequest(64))
    print("ready", flush=True)
    for _ in sys.stdin:
        generator.sample(SampleRequest(n_records))
        print("done", flush=True)


if __name__ == "__main__":
    _draw_when_told(int(sys.argv[1]))
