"""What a record's size says of its codes: log-odds that add up to it."""

import torch

from ehr.groups import Group, Groups
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


def test_rare_codes_that_are_not_asked_shift_with_the_others() -> None:
    logits, left = random(200, 60) - 3, torch.arange(200) % 9 + 1
    logits[:, 20:] -= 3
    rare = torch.sigmoid(logits[:, 20:]).sum(1)
    told = shift_to_size(logits[:, :20], None, left, None, rare)
    torch.testing.assert_close(told, shift_to_size(logits, None, left, None), atol=0.03, rtol=0.0)


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
