"""What a record's size says of its codes: log-odds that add up to it, and a last block that keeps to it."""

import torch

from ehr.groups import Group, Groups
from worker.engine import reveal
from worker.engine.groups import GroupTable
from worker.engine.sizes import MOST_SHIFT, shift_to_size


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_open_codes_add_up_to_what_is_left_and_known_ones_do_not_count() -> None:
    logits, left = random(200, 60) - 3, torch.arange(200) % 9 + 1
    is_open = random(200, 60) > -1
    p = torch.sigmoid(logits + shift_to_size(logits, is_open, left, None)) * is_open
    within = shift_to_size(logits, is_open, left, None).abs().squeeze(1) < MOST_SHIFT
    assert within.sum() > 100
    assert torch.allclose(p.sum(1)[within], left[within].float(), rtol=0.02)


def test_where_nothing_is_left_nothing_comes() -> None:
    logits = random(5, 20)
    shift = shift_to_size(logits, torch.ones(5, 20, dtype=torch.bool), torch.zeros(5, dtype=torch.long), None)
    assert float(torch.sigmoid(logits + shift).max()) < 1e-6


def test_members_of_a_group_count_as_the_one_that_they_are() -> None:
    logits, left = random(50, 12) - 2, torch.full((50,), 3)
    groups = GroupTable(Groups(12, (Group("G", (0, 1, 2, 3), "exactly one", "declared"),)))
    is_open = torch.ones(50, 12, dtype=torch.bool)
    shift = shift_to_size(logits, is_open, left, groups)
    within = shift.abs().squeeze(1) < MOST_SHIFT
    others = torch.sigmoid(logits[:, 4:] + shift).sum(1)
    assert within.sum() > 10
    assert torch.allclose(others[within], torch.full_like(others[within], 2.0), rtol=0.02)


def test_the_last_codes_are_as_many_as_are_left() -> None:
    p = torch.tensor([0.5, 0.5, 0.4, 0.3, 0.2, 0.1]).expand(20_000, -1)
    generator = torch.Generator().manual_seed(0)
    found = reveal._evenly(p, torch.full((20_000,), 2), generator)
    assert set(found.sum(1).tolist()) <= {1, 2}
    assert float((found.sum(1) == 2).float().mean()) > 0.98
    assert torch.allclose(found.float().mean(0), p[0], atol=0.015)
