"""Where training and sampling run, in which precision, and torch's global random numbers while they do."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import numpy as np
import torch


@contextmanager
def seeded(*seeds: int) -> Iterator[None]:
    """Inside, torch's global generators follow from `seeds` alone; afterwards they are as they were."""
    with torch.random.fork_rng():
        seed = int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> 1)
        if torch.cuda.is_available():
            torch.manual_seed(seed)
        else:  # the same numbers: for devices that are not there it writes down the whole stack, at every step
            torch.default_generator.manual_seed(seed)
        yield


def precision(device: torch.device) -> AbstractContextManager[None]:
    """Products in bfloat16 on CUDA; everything in float32 on a CPU, so that all CPUs draw the same records."""
    if device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


def training_precision(device: torch.device) -> AbstractContextManager[None]:
    """The same, but products in bfloat16 also on a CPU that multiplies such numbers by itself: twice as fast."""
    if device.type == "cpu" and multiplies_bfloat16():
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return precision(device)


@cache
def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for it; without them bfloat16 is slower than float32."""
    tell = getattr(torch.cpu, "get_capabilities", None)  # older versions of torch do not tell
    able = {} if tell is None else tell()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA when there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
