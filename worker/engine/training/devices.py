"""Where training and sampling run, in which precision, and torch's global random numbers while they do."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch


@contextmanager
def seeded(*seeds: int) -> Iterator[None]:
    """Inside, torch's global generators follow from `seeds` alone; afterwards they are as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> 1))
        yield


def precision(device: torch.device) -> AbstractContextManager[None]:
    """Products in bfloat16 on CUDA; everything in float32 elsewhere."""
    if device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA when there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
