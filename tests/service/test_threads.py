"""Shares of the cores."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.threads import available_cores, share_of_cores, take_share

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("limit", "cores"), [("max 100000", CORES), ("150000 100000", 1), ("20000 100000", 1)])
def test_a_limit_of_the_container_or_of_what_is_around_it(tmp_path: Path, limit: str, cores: int) -> None:
    (tmp_path / "system" / "worker").mkdir(parents=True)
    (tmp_path / "system" / "cpu.max").write_text(limit)
    (tmp_path / "system" / "worker" / "cpu.max").write_text("max 100000")
    own = tmp_path / "cgroup"
    own.write_text("0::/system/worker\n")
    assert available_cores(tmp_path, own) == cores
    assert available_cores(tmp_path, tmp_path / "missing") == CORES


def test_shares() -> None:
    assert share_of_cores(1) == available_cores()
    assert share_of_cores(1000) == 1
    assert share_of_cores(1000, threads=3) == 3
    theirs = {"OMP_NUM_THREADS": "5"}
    take_share(1000, environment=theirs)
    assert (theirs["OMP_NUM_THREADS"], theirs["MKL_NUM_THREADS"], theirs["OMP_WAIT_POLICY"]) == ("5", "1", "PASSIVE")
    take_share(1000, threads=2, environment=theirs)
    assert theirs["OMP_NUM_THREADS"] == "2"


def test_a_worker_process_has_its_share_before_anything_computes() -> None:
    """What `python -m worker` has imported by then must not be what reads it."""
    code = (
        "import sys, os, worker.__main__ as main\n"
        "assert not {'numpy', 'torch', 'scipy', 'pyarrow'} & sys.modules.keys()\n"
        "main.take_share(1, 1)\n"
        "import torch; print(torch.get_num_threads())"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == "1", found.stderr
