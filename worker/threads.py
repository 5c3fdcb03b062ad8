"""Each worker process takes its share of the cores. Imports nothing that computes: libraries read what is set here when
they are loaded.

Threads of OpenMP that wait for each other spin by default. Two processes with as many threads as there are cores then
burn each other's time, and both together are slower than one: so there are no more threads than cores, and they wait
asleep.
"""

import math
import os
from collections.abc import MutableMapping
from pathlib import Path

COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
WAITS = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}  # libgomp's name for it, and that of Intel's and LLVM's


def available_cores(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Those this process may run on, or fewer if its container or unit may use less time than that."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(cores, _quota(cgroups, own))))


def _quota(cgroups: Path, own: Path) -> float:
    """The least `cpu.max` of this process's group and those around it (cgroup v2), in cores."""
    try:
        group = next(line[3:].strip() for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return math.inf
    folder, least = cgroups / group.strip("/"), math.inf
    for place in (folder, *folder.parents):
        try:
            quota, period = (place / "cpu.max").read_text().split()
            least = min(least, math.inf if quota == "max" else int(quota) / int(period))
        except (OSError, ValueError):
            continue
    return least


def share_of_cores(processes: int, threads: int = 0) -> int:
    """Threads of one of so many worker processes; `threads` above 0 was chosen by whoever runs them."""
    return threads if threads > 0 else max(1, available_cores() // processes)


def take_share(processes: int, threads: int = 0, environment: MutableMapping[str, str] = os.environ) -> None:
    """For this process and those it starts, unless their environment says otherwise already."""
    for name in COUNTS:
        if threads > 0:
            environment[name] = str(threads)
        else:
            environment.setdefault(name, str(share_of_cores(processes)))
    for name, value in WAITS.items():
        environment.setdefault(name, value)
