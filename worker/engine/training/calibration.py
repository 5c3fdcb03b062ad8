"""How common a network makes each code, and the shift of its log-odds that makes it as common as it was."""

import numpy as np
import torch
from torch import Tensor

from ehr.records import Records
from worker.engine.denoisers import Denoiser
from worker.engine.losses import TimeSampler
from worker.engine.noise import HIDDEN, Noise

ROWS = 512


@torch.no_grad()
def expected_shares(denoiser: Denoiser, noise: Noise, records: Records, seed: int, device: torch.device) -> Tensor:
    """The mean of p(code | what is revealed of a record) where the code is hidden, (N,); for noise that reveals.

    Times are uniform, as the moments are at which the sampler comes to a code. The same seed gives the same moments, so
    that two networks compare.
    """
    denoiser.eval()
    generator, times = torch.Generator(device).manual_seed(seed), TimeSampler(noise.timesteps)
    total = torch.zeros(noise.n_codes, dtype=torch.float64, device=device)
    hidden_in = torch.zeros_like(total)
    for start in range(0, len(records), ROWS):
        rows = np.arange(start, min(start + ROWS, len(records)))
        x_start = torch.from_numpy(records.take(rows).to_dense(np.uint8)).to(device)
        t, _ = times.draw(len(rows), generator)
        x_t = noise.q_sample(x_start, t, generator)
        hidden = x_t == HIDDEN
        p = noise.groups.in_full(denoiser.in_batches(x_t, t, x_start.sum(1)), hidden)
        total += p.double().sum(0)
        hidden_in += hidden.sum(0)
    return total / hidden_in.clamp(min=1)
