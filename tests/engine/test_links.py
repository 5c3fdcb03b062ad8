"""How the pairwise table learns: as far as patients stand behind a link, whatever their number."""

import torch
from torch import nn

from worker.engine.training.links import KNOWN, RATE, LinkDescent

PATIENTS, PRIOR = 10_000, 60.0


def test_links_of_many_and_of_few_patients_reach_what_these_say_at_the_same_pace() -> None:
    together = torch.tensor([[1.0, 10.0], [100.0, 5_000.0]])
    says = torch.tensor([[3.0, -2.0], [1.5, 4.0]])  # what would suit the patients best
    link = nn.Parameter(torch.zeros(2, 2))
    descent = LinkDescent([link], together, PATIENTS, PRIOR)
    curvature = KNOWN * together / PATIENTS
    settled = says * curvature / (curvature + PRIOR / PATIENTS)  # between that and no link at all
    half_way = round(0.7 / RATE)
    for steps in range(10 * half_way):
        link.grad = curvature * (link.detach() - says)
        descent.step(1.0)
        if steps == half_way:
            assert torch.allclose(link.detach() / settled, torch.full((2, 2), 0.5), atol=0.02)
    assert torch.allclose(link.detach(), settled, atol=0.01)
    one_patient, thousands = float(link[0, 0].detach()), float(link[1, 1].detach())
    assert abs(one_patient) < 0.05 and thousands > 3.5


def test_gradients_are_used_up_so_that_no_other_optimiser_sees_them() -> None:
    link = nn.Parameter(torch.zeros(2, 2))
    descent = LinkDescent([link], torch.ones(2, 2), PATIENTS, PRIOR)
    descent.step(1.0)  # nothing learned yet, nothing to do
    link.grad = torch.full((2, 2), -1e6)
    descent.step(1.0)
    assert link.grad is None and 0 < float(link[0, 0].detach()) < 1  # one wild batch does not throw it anywhere
