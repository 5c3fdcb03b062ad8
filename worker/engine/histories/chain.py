"""Tokens of a visit that are drawn one after the other, as groups and rules leave room for them."""

import torch
from torch import Tensor

from worker.engine.histories.gaps import FIRST
from worker.engine.histories.tokens import VisitTokens


class Chain:
    """Visits of B patients while their tokens are drawn in the order of the tokens."""

    def __init__(self, tokens: VisitTokens, rows: int, device: torch.device) -> None:
        self.x = torch.zeros(rows, len(tokens), dtype=torch.uint8, device=device)
        self.forbidden = torch.zeros(rows, len(tokens), dtype=torch.bool, device=device)
        self.forced = torch.zeros_like(self.forbidden)
        self.rules = tokens.rule_table.to(device)
        self.group_of, self.groups = tokens.groups.group_of, tokens.groups.groups

    @classmethod
    def of_static(cls, tokens: VisitTokens, rows: int, device: torch.device) -> "Chain":
        """Who patients are: nothing but static codes."""
        chain = cls(tokens, rows, device)
        chain.forbidden[:, : tokens.first_static] = True
        chain.forbidden[:, tokens.first_gap :] = True
        return chain

    @classmethod
    def of_visit(cls, tokens: VisitTokens, static: Tensor, number: int, is_last: bool) -> "Chain":
        """A visit of patients with these static codes (B, S); visits are counted from 0."""
        chain = cls(tokens, len(static), static.device)
        of_patient = slice(tokens.first_static, tokens.first_gap)
        chain.forbidden[:, tokens.static] = True  # what is true of patients is no code of a visit
        chain.forbidden[:, of_patient] = True  # they were drawn before
        gaps = slice(tokens.first_gap, tokens.first_end)
        if number == 0:
            chain.forbidden[:, gaps] = True
        chain.forbidden[:, tokens.first_gap + FIRST] = number > 0
        chain.forbidden[:, tokens.first_end] = is_last
        rows, places = static.nonzero(as_tuple=True)
        chain._note(rows, places + tokens.first_static)
        rows, places = (static == 0).nonzero(as_tuple=True)
        chain._note_missing(rows, places + tokens.first_static)
        return chain

    def draw(self, token: int, p: Tensor, chance: Tensor) -> Tensor:
        """Whether each patient has the token, (B,) bool, by its probability and a number from [0, 1), (B,) each."""
        forced = self.forced[:, token]
        number = int(self.group_of[token])
        if number >= 0 and not self.groups[number].is_optional:  # one must be there, so the last that can be
            later = [code for code in self.groups[number].codes if code > token]
            forced = forced | self.forbidden[:, later].all(1)
        on = ((chance < p) | forced) & ~self.forbidden[:, token]
        rows, missing = on.nonzero().squeeze(1), (~on).nonzero().squeeze(1)
        self.x[rows, token] = 1
        if number >= 0 and len(rows):
            others = torch.tensor([code for code in self.groups[number].codes if code != token], device=p.device)
            self.forbidden[rows.unsqueeze(1), others] = True
        self._note(rows, torch.full_like(rows, token))
        self._note_missing(missing, torch.full_like(missing, token))
        return on

    def _note(self, rows: Tensor, tokens: Tensor) -> None:
        """These tokens are there: what they exclude cannot come, what they imply must."""
        if len(self.rules) == 0:
            return
        row, _, linked = self.rules.excluded.of(rows, tokens)
        self.forbidden[row, linked] = True
        row, _, linked = self.rules.implied.of(rows, tokens)
        self.forced[row, linked] = True

    def _note_missing(self, rows: Tensor, tokens: Tensor) -> None:
        """These tokens are not there: what comes only with them cannot come."""
        if len(self.rules):
            row, _, linked = self.rules.implying.of(rows, tokens)
            self.forbidden[row, linked] = True
