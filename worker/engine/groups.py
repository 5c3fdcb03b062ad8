"""Groups as tensors: a group of codes of which one holds is one categorical variable.

Its law is a softmax over its members' logits; a group of which none may hold has one more state, whose logit is 0.
Members that are already known to be absent have no share in it: conditions restrict the softmax, nothing is rejected.
"""

from copy import copy

import numpy as np
import torch
from torch import Tensor

from ehr.groups import Groups
from worker.engine.tables import Tables

CERTAIN = 30.0  # log-odds that float32 cannot tell from certainty, yet finite


class GroupTable(Tables):
    """All groups of a vocabulary side by side: M members in G groups; `segment` (M,) is the group of each member."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        members = [list(group.codes) for group in groups.groups]
        self.codes = torch.tensor([code for group in members for code in group], dtype=torch.long)  # (M,)
        self.segment = torch.repeat_interleave(
            torch.arange(len(members)), torch.tensor([len(group) for group in members], dtype=torch.long)
        )
        starts = np.cumsum([0, *(len(group) for group in members)])[:-1]
        self.first = self.codes[torch.from_numpy(starts).long()] if members else self.codes  # (G,) one code of each
        self.optional = torch.tensor([group.is_optional for group in groups.groups], dtype=torch.bool)  # (G,)
        self.group_of = torch.from_numpy(groups.group_of.copy())  # (N,)
        self.numbers = torch.arange(len(members))  # (G,) of each group among all

    def __len__(self) -> int:
        return len(self.first)

    # --- sums over members ---

    def total(self, of_members: Tensor) -> Tensor:
        """Sums over the members of each group, (B, M) -> (B, G)."""
        sums = torch.zeros(len(of_members), len(self), dtype=of_members.dtype, device=of_members.device)
        return sums.index_add_(1, self.segment, of_members)

    def holds(self, x: Tensor, state: int) -> Tensor:
        """Whether some member is in that state, (B, N) -> (B, G)."""
        return self.total((x[:, self.codes] == state).float()) > 0

    def shared(self, of_codes: Tensor) -> Tensor:
        """The same table with one value for all members of a group, (B, N): what is drawn for one is drawn for all."""
        if len(self) == 0:
            return of_codes
        table = of_codes.clone()
        table[:, self.codes] = of_codes[:, self.first[self.segment]]
        return table

    # --- the law of a group ---

    def log_probability(self, logits: Tensor, open_members: Tensor) -> tuple[Tensor, Tensor]:
        """(log p of each member (B, M), log p of none (B, G)) among members that are open, from logits (B, M)."""
        masked = logits.masked_fill(~open_members, -torch.inf)
        rows = len(logits)
        segment = self.segment.expand(rows, -1)
        largest = torch.full((rows, len(self)), -torch.inf, dtype=logits.dtype, device=logits.device)
        largest = largest.scatter_reduce(1, segment, masked.detach(), "amax")
        # the state `none` has logit 0; a group without an open member has no other
        none = torch.where(self.optional | torch.isinf(largest), 0.0, -torch.inf).to(logits.dtype)
        largest = torch.maximum(largest, none)
        parts = torch.exp(masked - largest.gather(1, segment))
        norm = torch.exp(none - largest).scatter_add(1, segment, parts)
        log_norm = torch.log(norm) + largest
        return masked - log_norm.gather(1, segment), none - log_norm

    def nll(self, logits: Tensor, x_start: Tensor, open_members: Tensor) -> Tensor:
        """-log p of what holds in each group, (B, G) nats; 0 where that is already known."""
        log_p, log_none = self.log_probability(logits[:, self.codes], open_members)
        on = (x_start[:, self.codes] > 0) & open_members
        has = self.total(on.to(log_p.dtype)) > 0
        chosen = self.total(torch.where(on, log_p, 0.0))
        unknown = self.total(open_members.to(log_p.dtype)) > 0
        known_member = self.total(((x_start[:, self.codes] > 0) & ~open_members).to(log_p.dtype)) > 0
        none = torch.where(has | known_member | torch.isinf(log_none), 0.0, log_none)
        return -torch.where(unknown, torch.where(has, chosen, none), 0.0)

    def with_nll(self, nll: Tensor, logits: Tensor, x_start: Tensor, hidden: Tensor) -> Tensor:
        """A table of losses by code (B, N) in which a group's loss stands once, at its first member."""
        if len(self) == 0:
            return nll
        nll[:, self.codes] = 0.0
        nll[:, self.first] = self.nll(logits, x_start, hidden[:, self.codes])
        return nll

    def probability(self, logits: Tensor, open_members: Tensor) -> Tensor:
        """p of each member, (B, M)."""
        return self.log_probability(logits, open_members)[0].exp()

    def in_full(self, logits: Tensor, open_codes: Tensor) -> Tensor:
        """p of every code by itself or in its group, (B, N), from logits (B, N); 0 where it is not open."""
        p = torch.sigmoid(logits) * open_codes
        if len(self):
            p[:, self.codes] = self.probability(logits[:, self.codes], open_codes[:, self.codes]).to(p.dtype)
        return p

    def log_odds(self, logits: Tensor) -> Tensor:
        """Logits (B, N) with those of members replaced by the log-odds that their softmax gives them."""
        if len(self) == 0:
            return logits
        p = self.probability(logits[:, self.codes], torch.ones_like(logits[:, self.codes], dtype=torch.bool))
        table = logits.clone()
        table[:, self.codes] = torch.logit(p.clamp(1e-7, 1 - 1e-7))
        return table

    def prior_logits(self, prevalence: Tensor) -> Tensor:
        """The logits (M,) whose softmax gives the members' prevalences (N,)."""
        p = prevalence.double()[self.codes].clamp(min=1e-6)
        total = torch.zeros(len(self), dtype=torch.float64).index_add_(0, self.segment, p)
        rest = torch.where(self.optional, (1 - total).clamp(min=1e-6), total)
        return (p / rest[self.segment]).log().float()

    def draw(self, p: Tensor, generator: torch.Generator) -> Tensor:
        """One member of each group, or none where the probabilities p (B, M) do not add up to 1, (B, M) bool."""
        upper = p.double().cumsum(1)
        start = torch.searchsorted(self.segment, torch.arange(len(self), device=p.device))  # (G,)
        end = torch.searchsorted(self.segment, torch.arange(len(self), device=p.device), right=True) - 1
        upper = upper - (upper - p.double())[:, start][:, self.segment]  # sums within each group
        total = upper[:, end]
        point = torch.rand(total.shape, generator=generator, device=p.device, dtype=torch.float64)
        point = (point * torch.where(self.optional, 1.0, total))[:, self.segment]
        chosen = (upper > point) & (upper - p.double() <= point)
        # of two neighbours that rounding has both let in, the first
        return chosen & (self._earlier(chosen) == 0)

    def _earlier(self, chosen: Tensor) -> Tensor:
        """How many members before it in its group are chosen, (B, M)."""
        count = chosen.long().cumsum(1)
        start = torch.searchsorted(self.segment, torch.arange(len(self), device=chosen.device))
        return (count - chosen.long()) - (count - chosen.long())[:, start][:, self.segment]

    def place_among(self, some: Tensor) -> Tensor:
        """The how-manieth of its group's members each is among `some` (M,) bool, from 0 on, (M,)."""
        return self._earlier(some.unsqueeze(0)).squeeze(0)

    def likeliest(self, p: Tensor) -> Tensor:
        """The member of each group with the highest p (B, M), (B, M) bool."""
        highest = torch.zeros(len(p), len(self), dtype=p.dtype, device=p.device)
        highest = highest.scatter_reduce(1, self.segment.expand(len(p), -1), p, "amax")
        chosen = p == highest[:, self.segment]
        return chosen & (self._earlier(chosen) == 0)

    def same_group(self, code: int) -> Tensor:
        """All members of the code's group, (k,); nothing for a code by itself."""
        number = int(self.group_of[code])
        return self.codes[self.segment == number] if number >= 0 else self.codes[:0]

    def inside(self, codes: Tensor) -> "GroupTable | None":
        """The groups among `codes` (C,), whose members are then positions in it; None if there are none."""
        if len(self) == 0:
            return None
        numbers = torch.unique(self.group_of[codes])
        numbers = numbers[numbers >= 0]
        if len(numbers) == 0:
            return None
        position = torch.full_like(self.group_of, -1)
        position[codes] = torch.arange(len(codes), device=codes.device)
        kept = position[self.codes] >= 0  # members that are not among the codes have no share
        part = copy(self)
        part.codes = position[self.codes[kept]]
        part.segment = torch.searchsorted(numbers, self.segment[kept])
        part.first = part.codes[torch.searchsorted(part.segment, torch.arange(len(numbers), device=codes.device))]
        part.optional = self.optional[numbers]
        part.numbers = numbers
        return part


def even_shares(pi: Tensor, groups: Groups | None) -> Tensor:
    """Noise (N,) in which every state of a group is as likely as any other."""
    for group in groups.groups if groups is not None else ():
        pi[list(group.codes)] = 1 / (len(group.codes) + group.is_optional)
    return pi


def within_one(pi: Tensor, groups: Groups | None) -> Tensor:
    """Noise (N,) in which the members of a group add up to 1, or to less where a record may have none of them."""
    for group in groups.groups if groups is not None else ():
        total = pi[list(group.codes)].sum()
        pi[list(group.codes)] /= total.clamp(min=1.0) + 1e-6 if group.is_optional else total
    return pi


class GroupKernel(Tables):
    """The forward process of groups under noises that do not hide: a group is kept, or redrawn from pi as a whole.

    With j the state at t, c that at 0 and s that at u < t, Bayes' rule gives

        q(s | j, c) = A_s B_sc / Z_c,            A_s = alpha [s = j] + (1 - alpha) pi_j,
        B_sc = abar_u [s = c] + (1 - abar_u) pi_s,   Z_c = abar_t [c = j] + (1 - abar_t) pi_j,   alpha = abar_t / abar_u

    and the sum over c of q(s | j, c) p(c) needs no table of pairs of states.
    """

    def __init__(self, groups: GroupTable, pi_present: Tensor, abar: Tensor) -> None:
        self.groups, self.abar = groups, abar
        self.pi = pi_present[groups.codes]  # (M,) float64
        total = groups.total(self.pi.unsqueeze(0)).squeeze(0) if len(groups) else self.pi
        self.pi_none = torch.where(groups.optional, (1 - total).clamp(min=1e-12), 0.0)  # (G,)

    def evidence(self, x_t: Tensor, t: Tensor) -> Tensor:
        """log q(x_t | member) up to a constant of the group, (B, M); the state `none` has 0."""
        on, none, pi_j = self._state(x_t)
        keep = self.abar[t].unsqueeze(-1)
        gain = torch.log(keep + (1 - keep) * pi_j) - torch.log((1 - keep) * pi_j)  # (B, G)
        gain = gain.clamp(max=30.0)
        return (
            torch.where(on, 1.0, 0.0) * gain[:, self.groups.segment] - (none * gain)[:, self.groups.segment]
        ).float()

    def posterior(self, logits: Tensor, x_t: Tensor, t: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """p(state at u | x_t) of each member (B, M) and of none (B, G), float64."""
        members = logits[:, self.groups.codes].double()
        log_p, log_none = self.groups.log_probability(members, torch.ones_like(members, dtype=torch.bool))
        return self._mixture(log_p.exp(), log_none.exp(), x_t, t, u)

    def kl(self, logits: Tensor, x_start: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """KL(q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t)) of each group, nats, (B, G)."""
        on, none, _ = self._state(x_start)
        q, q_none = self._mixture(on.double(), none, x_t, t, t - 1)
        p, p_none = self.posterior(logits, x_t, t, t - 1)
        of_none = q_none * (torch.log(q_none.clamp(min=1e-300)) - torch.log(p_none.clamp(min=1e-300)))
        of_members = q * (torch.log(q.clamp(min=1e-300)) - torch.log(p.clamp(min=1e-300)))
        return self.groups.total(of_members) + of_none

    def _state(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which member holds (B, M) bool, whether none does (B, G), and pi of what holds (B, G)."""
        on = x[:, self.groups.codes] == 1
        none = 1 - self.groups.total(on.double()).clamp(max=1)
        return on, none, self.groups.total(on * self.pi) + none * self.pi_none

    def _mixture(self, p: Tensor, p_none: Tensor, x_t: Tensor, t: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        segment = self.groups.segment
        on, none, pi_j = self._state(x_t)
        abar_t, abar_u = self.abar[t].unsqueeze(-1), self.abar[u].unsqueeze(-1)
        alpha = abar_t / abar_u
        here = (1 - abar_t) * pi_j  # (B, G)
        over_z, none_over_z = p / (abar_t * on + here[:, segment]), p_none / (abar_t * none + here)
        mix = self.groups.total(over_z) + none_over_z
        back = (1 - alpha) * pi_j
        at_u = (alpha * on + back[:, segment]) * (abar_u * over_z + (1 - abar_u) * self.pi * mix[:, segment])
        none_at_u = (alpha * none + back) * (abar_u * none_over_z + (1 - abar_u) * self.pi_none * mix)
        return at_u, none_at_u
