"""The plain sampler of an absorbing model, to measure the fast one by."""

import torch

from ehr.records import Records
from worker.engine.generators import SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.sampling import ancestral_sample

PLAIN_STEPS = 64
AT_ONCE = 1024


def plain_records(generator: D3PMGenerator, n: int, steps: int, seed: int = 0) -> Records:
    """The whole network at every step, every code of every record drawn for itself."""
    parts = []
    for start in range(0, n, AT_ONCE):
        draws = torch.Generator().manual_seed(seed * n + start)
        rows = min(AT_ONCE, n - start)
        denoise = generator._denoise(rows, SampleRequest(rows), draws)
        drawn = ancestral_sample(denoise, generator.noise, rows, steps, draws)
        parts.append(Records.from_dense(drawn.numpy()))
    return Records.concatenate(parts)
