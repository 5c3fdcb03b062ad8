"""What the number of codes to come says of every code, as far as earlier visits tell what to expect."""

import torch
from torch import Tensor

STEPS = 3  # of Newton's method
FEWEST = 0.1  # codes: stands for none
LONGEST_STEP, FURTHEST = 2.0, 8.0


def tilt(log_odds: Tensor, open_: Tensor, left: Tensor) -> Tensor:
    """The shift (B,) of all log-odds (B, N) after which the chances of the codes that are open (B, N) add up to `left`
    (B,). Codes that are independent are still so given their number, but for such a shift (conditional Bernoulli)."""
    wanted = left.float().clamp(min=FEWEST).log()
    shift = torch.zeros(len(log_odds), device=log_odds.device)
    weight = open_.float()
    for _ in range(STEPS):
        p = torch.sigmoid(log_odds + shift.unsqueeze(1))
        expected = torch.linalg.vecdot(p, weight)
        spread = expected - torch.linalg.vecdot(p * p, weight)
        step = (wanted - expected.clamp(min=1e-6).log()) * expected / spread.clamp(min=1e-3)
        shift = (shift + step.clamp(-LONGEST_STEP, LONGEST_STEP)).clamp(-FURTHEST, FURTHEST)
    return shift
