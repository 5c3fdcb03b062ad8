"""The forward process and its exact reverse step, for every kind of noise.

Each code is noised independently: q(x_t | x_0) = abar_t * [x_t = x_0] + (1 - abar_t) * pi[x_t]. The noises differ only
in pi, the distribution a code is lost to, and in the schedule:

    uniform    pi = (1/2, 1/2)            multinomial diffusion, as in the paper
    marginal   pi = (1 - p_i, p_i)        the code's prevalence p_i: x_T is as sparse as the data (DiGress)
    absorbing  pi = (0, 0, 1)             a third state, HIDDEN (D3PM's absorbing state, masked diffusion)

States are 0 (absent), 1 (present) and, under absorbing noise, 2 (hidden). `x_start` is x_0, always 0 or 1.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ehr.errors import ConfigError
from ehr.groups import Groups
from worker.engine import schedules
from worker.engine.groups import CERTAIN, GroupKernel, GroupTable, even_shares, within_one
from worker.engine.tables import Tables

ABSENT, PRESENT, HIDDEN = 0, 1, 2


class Noise(Tables, ABC):
    """A forward process over `n_codes` codes in T steps, and what follows from it by Bayes' rule."""

    name: ClassVar[str]
    reveals: ClassVar[bool] = False  # whether a code that is not HIDDEN is known to be the truth

    def __init__(self, pi: Tensor, abar: Tensor, groups: Groups | None = None) -> None:
        self.pi = pi.double()  # (N, S)
        self.groups = GroupTable(groups or Groups(len(pi)))
        self.abar = abar.double()  # (T + 1,)
        self.timesteps = len(abar) - 1
        self.n_codes, self.n_states = pi.shape

    @classmethod
    @abstractmethod
    def create(cls, prevalence: Tensor, timesteps: int, groups: Groups | None = None) -> "Noise":
        """The noise for codes with these training prevalences, (N,). A group is kept, lost and drawn as a whole."""

    # --- the forward process ---

    def q_probability(self, x_start: Tensor, t: Tensor) -> Tensor:
        """q(x_t = s | x_0) for every state s, (B, N, S)."""
        return self._kernel(x_start, self._at(self.abar, t))

    def q_sample(self, x_start: Tensor, t: Tensor, generator: torch.Generator) -> Tensor:
        """Draw x_t ~ q(x_t | x_0): keep each code with probability abar_t, else redraw it from pi, (B, N) uint8."""
        kept = torch.rand(x_start.shape, generator=generator, device=x_start.device) < self._at(self.abar, t).float()
        kept = self.groups.shared(kept)
        return torch.where(kept, x_start.to(torch.uint8), self.prior_sample(len(x_start), generator, x_start.device))

    @abstractmethod
    def prior_sample(self, n: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Tensor:
        """Draw x_T ~ pi, (n, N) uint8."""

    def _kernel(self, x: Tensor, keep: Tensor) -> Tensor:
        """keep * [state = x] + (1 - keep) * pi, the law of a code that is kept with probability `keep`, (B, N, S)."""
        keep = keep.unsqueeze(-1)  # (B, 1, 1)
        return keep * F.one_hot(x.long(), self.n_states) + (1 - keep) * self.pi

    @staticmethod
    def _at(table: Tensor, t: Tensor) -> Tensor:
        return table[t].unsqueeze(-1)  # (B, 1)

    # --- the reverse step ---

    def q_posterior(self, x_start: Tensor, x_t: Tensor, t: Tensor, u: Tensor) -> Tensor:
        """q(x_u = s | x_t, x_0) for u < t by Bayes' rule, (B, N, S); 0 everywhere where x_t cannot come from x_0."""
        alpha = self._at(self.abar, t) / self._at(self.abar, u)  # survival from u to t
        x_t_given_s = self._transpose_kernel(x_t, alpha)  # q(x_t | x_u = s)
        joint = x_t_given_s * self.q_probability(x_start, u)  # q(x_t, x_u = s | x_0)
        total = joint.sum(-1, keepdim=True)  # q(x_t | x_0)
        return torch.where(total > 0, joint / total.clamp(min=1e-300), 0.0)

    def _transpose_kernel(self, x_t: Tensor, alpha: Tensor) -> Tensor:
        """q(x_t | x_u = s) as a function of s, (B, N, S): alpha * [s = x_t] + (1 - alpha) * pi[x_t]."""
        pi_at_x_t = self.pi.expand(len(x_t), -1, -1).gather(-1, x_t.long().unsqueeze(-1))  # (B, N, 1)
        alpha = alpha.unsqueeze(-1)
        return alpha * F.one_hot(x_t.long(), self.n_states) + (1 - alpha) * pi_at_x_t

    def p_posterior(self, logits: Tensor, x_t: Tensor, t: Tensor, u: Tensor) -> Tensor:
        """The mixture posterior p(x_u = s | x_t) = sum over x_0 of q(x_u = s | x_t, x_0) p(x_0 | x_t), (B, N, S).

        `logits` are log-odds of x_0 = 1. Plugging the mean of x_0 into q_posterior instead is wrong: the posterior is
        not linear in x_0.
        """
        p_present = self.x_start_probability(logits, x_t).double().unsqueeze(-1)
        present, absent = torch.ones_like(x_t), torch.zeros_like(x_t)
        return p_present * self.q_posterior(present, x_t, t, u) + (1 - p_present) * self.q_posterior(absent, x_t, t, u)

    def x_start_probability(self, logits: Tensor, x_t: Tensor) -> Tensor:
        """p(x_0 = 1 | x_t), (B, N)."""
        return torch.sigmoid(logits)

    @abstractmethod
    def p_sample(self, logits: Tensor, x_t: Tensor, t: Tensor, u: Tensor, generator: torch.Generator) -> Tensor:
        """Draw x_u ~ p_posterior, (B, N) uint8; a quick equivalent of drawing from the (B, N, S) table."""

    @abstractmethod
    def posterior_kl(self, logits: Tensor, x_start: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """KL(q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t)) per code, nats, (B, N).

        At t = 1 the left side is a point mass on x_0 and this is the decoder term -log p(x_0 | x_1).
        """

    def prior_kl(self, x_start: Tensor) -> Tensor:
        """KL(q(x_T | x_0) || pi) per record, nats, (B,)."""
        q = self.q_probability(x_start, torch.full((len(x_start),), self.timesteps, device=x_start.device))
        ratio = torch.where(q > 0, q / self.pi.clamp(min=1e-300), 1.0)
        return (q * ratio.log()).sum((-1, -2))

    @abstractmethod
    def evidence(self, x_t: Tensor, t: Tensor) -> Tensor:
        """log q(x_t | x_0 = 1) - log q(x_t | x_0 = 0) per code: what x_t says about its own code alone, (B, N).

        Finite: certainty is +-CERTAIN, so that the result may be added to logits.
        """


class TwoStateNoise(Noise):
    """Noise that turns codes on and off; `pi_present` is the probability that a lost code comes back as present."""

    def __init__(self, pi_present: Tensor, abar: Tensor, groups: Groups | None = None) -> None:
        super().__init__(torch.stack([1 - pi_present, pi_present], dim=-1), abar, groups)
        self.pi_present = self.pi[:, PRESENT]  # (N,)
        self.kernel = GroupKernel(self.groups, self.pi_present, self.abar)
        keep, pi = self.abar.unsqueeze(-1), self.pi_present
        if_on = torch.log(keep + (1 - keep) * pi) - torch.log((1 - keep) * pi)
        if_off = torch.log((1 - keep) * (1 - pi)) - torch.log(keep + (1 - keep) * (1 - pi))
        self._evidence_on = if_on.clamp(max=CERTAIN).float()  # (T + 1, N)
        self._evidence_off = if_off.clamp(min=-CERTAIN).float()  # (T + 1, N)

    def prior_sample(self, n: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Tensor:
        return self.draw(self.pi_present.float().to(device).expand(n, -1), generator)

    def draw(self, p: Tensor, generator: torch.Generator) -> Tensor:
        """Codes with these probabilities (B, N), one member of each group, (B, N) uint8."""
        x = torch.rand(p.shape, generator=generator, device=p.device) < p
        if len(self.groups):
            x[:, self.groups.codes] = self.groups.draw(p[:, self.groups.codes], generator)
        return x.to(torch.uint8)

    def _present_given(self, x_0: int, x_t: Tensor, t: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """q(x_u = 1 | x_t, x_0) and its complement, each exact however close to 0, (B, N) float64."""
        on, pi = x_t == PRESENT, self.pi_present
        abar_u = self._at(self.abar, u)
        alpha = self._at(self.abar, t) / abar_u
        x_t_given_on = torch.where(on, alpha + (1 - alpha) * pi, (1 - alpha) * (1 - pi))
        x_t_given_off = torch.where(on, (1 - alpha) * pi, alpha + (1 - alpha) * (1 - pi))
        joint_on = x_t_given_on * (abar_u * x_0 + (1 - abar_u) * pi)
        joint_off = x_t_given_off * (abar_u * (1 - x_0) + (1 - abar_u) * (1 - pi))
        total = joint_on + joint_off
        return joint_on / total, joint_off / total

    def present_probability(self, logits: Tensor, x_t: Tensor, t: Tensor, u: Tensor) -> Tensor:
        """p(x_u = 1 | x_t), the mixture posterior's one number for each code, (B, N) float64."""
        on = x_t == PRESENT

        def given(x_0: int, state: int) -> Tensor:
            # Sampling has one t for all records: this is a row then, not a table of as many rows as x_t.
            return self._present_given(x_0, torch.full_like(x_t[:1], state), t, u)[0]

        if_absent = torch.where(on, given(0, PRESENT), given(0, ABSENT))
        gap = torch.where(on, given(1, PRESENT) - given(0, PRESENT), given(1, ABSENT) - given(0, ABSENT))
        p_on = if_absent + torch.sigmoid(logits.double()) * gap
        if len(self.groups):
            p_on[:, self.groups.codes] = self.kernel.posterior(logits, x_t, t, u)[0]
        return p_on

    def p_sample(self, logits: Tensor, x_t: Tensor, t: Tensor, u: Tensor, generator: torch.Generator) -> Tensor:
        return self.draw(self.present_probability(logits, x_t, t, u), generator)

    def posterior_kl(self, logits: Tensor, x_start: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        is_present = x_start == PRESENT
        on_if_absent, off_if_absent = self._present_given(0, x_t, t, t - 1)
        on_if_present, off_if_present = self._present_given(1, x_t, t, t - 1)
        on = torch.where(is_present, on_if_present, on_if_absent).to(logits.dtype)  # q(x_{t-1} = 1 | x_t, x_0)
        off = torch.where(is_present, off_if_present, off_if_absent).to(logits.dtype)
        # p(x_{t-1} = 1 | x_t) = on + d, with d = p(the other x_0) * (difference of the two posteriors). Writing the KL
        # in d keeps it exact in float32: at T = 500 the distributions differ by 1e-4 and plain logarithms would cancel.
        p_present, p_absent = torch.sigmoid(logits), torch.sigmoid(-logits)
        gap = (on_if_present - on_if_absent).to(logits.dtype)
        d = torch.where(is_present, -p_absent, p_present) * gap
        p_on = p_present * on_if_present.to(logits.dtype) + p_absent * on_if_absent.to(logits.dtype)
        p_off = p_present * off_if_present.to(logits.dtype) + p_absent * off_if_absent.to(logits.dtype)
        # At t = 1, `on` is exactly 0 or 1 and the KL is -log p(x_0 | x_1); keep its division by 0 out of the gradient.
        # So it is with the only member of a group, which is always there; groups have their own KL, below.
        first = (t == 1).unsqueeze(-1)
        known = first | (self.groups.group_of >= 0)
        on, off, p_on, p_off = (x.masked_fill(known, 0.5) for x in (on, off, p_on, p_off))
        d = d.masked_fill(known, 0.0)
        kl = -on * _log_ratio(p_on, on, d) - off * _log_ratio(p_off, off, -d)
        decoder = F.softplus(torch.where(is_present, -logits, logits))
        kl = torch.where(first, decoder, kl)
        if len(self.groups):
            kl[:, self.groups.codes] = 0.0
            kl[:, self.groups.first] = self.kernel.kl(logits, x_start, x_t, t).to(kl.dtype)
        return kl

    def evidence(self, x_t: Tensor, t: Tensor) -> Tensor:
        evidence = torch.where(x_t == PRESENT, self._evidence_on[t], self._evidence_off[t])
        if len(self.groups):
            evidence[:, self.groups.codes] = self.kernel.evidence(x_t, t)
        return evidence


class UniformNoise(TwoStateNoise):
    """The paper's multinomial noise: at time T every code is a fair coin."""

    name = "uniform"

    @classmethod
    def create(cls, prevalence: Tensor, timesteps: int, groups: Groups | None = None) -> "UniformNoise":
        pi = even_shares(torch.full_like(prevalence, 0.5, dtype=torch.float64), groups)
        return cls(pi, schedules.cosine(timesteps), groups)


class MarginalNoise(TwoStateNoise):
    """At time T every code is present with its prevalence: noisy records are as sparse as clean ones."""

    name = "marginal"

    @classmethod
    def create(cls, prevalence: Tensor, timesteps: int, groups: Groups | None = None) -> "MarginalNoise":
        # A code that nobody (or everybody) has would make the process irreversible for it.
        pi = within_one(prevalence.double().clamp(1e-6, 1 - 1e-6), groups)
        return cls(pi, schedules.cosine(timesteps), groups)


class AbsorbingNoise(Noise):
    """Codes are hidden one by one; a code that is not hidden is known."""

    name = "absorbing"
    reveals = True

    def __init__(self, n_codes: int, abar: Tensor, groups: Groups | None = None) -> None:
        super().__init__(torch.tensor([0.0, 0.0, 1.0]).expand(n_codes, 3), abar, groups)

    @classmethod
    def create(cls, prevalence: Tensor, timesteps: int, groups: Groups | None = None) -> "AbsorbingNoise":
        return cls(len(prevalence), schedules.linear(timesteps), groups)

    def prior_sample(self, n: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Tensor:
        return torch.full((n, self.n_codes), HIDDEN, dtype=torch.uint8, device=device)

    def x_start_probability(self, logits: Tensor, x_t: Tensor) -> Tensor:
        return torch.where(x_t == HIDDEN, torch.sigmoid(logits), x_t.to(logits.dtype))

    def _reveal_probability(self, t: Tensor, u: Tensor) -> Tensor:
        """The probability that a code hidden at t is visible at u, (B, 1)."""
        return (self._at(self.abar, u) - self._at(self.abar, t)) / (1 - self._at(self.abar, t))

    def p_sample(self, logits: Tensor, x_t: Tensor, t: Tensor, u: Tensor, generator: torch.Generator) -> Tensor:
        reveal = torch.rand(x_t.shape, generator=generator, device=x_t.device) < self._reveal_probability(t, u)
        on = torch.rand(x_t.shape, generator=generator, device=x_t.device) < torch.sigmoid(logits)
        if len(self.groups):
            reveal, codes = self.groups.shared(reveal), self.groups.codes
            on[:, codes] = self.groups.draw(
                self.groups.probability(logits[:, codes], x_t[:, codes] == HIDDEN), generator
            )
        return torch.where((x_t == HIDDEN) & reveal, on.to(torch.uint8), x_t)

    def posterior_kl(self, logits: Tensor, x_start: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        # Only hidden codes are uncertain, and they are revealed with probability 1/t: a cross-entropy weighted by 1/t.
        nll = F.softplus(torch.where(x_start == PRESENT, -logits, logits))  # softplus(l) - x_0 * l would cancel
        nll = self.groups.with_nll(nll * (x_t == HIDDEN), logits, x_start, x_t == HIDDEN)
        return nll * self._reveal_probability(t, t - 1).to(logits.dtype)

    def prior_kl(self, x_start: Tensor) -> Tensor:
        return torch.zeros(len(x_start), dtype=torch.float64, device=x_start.device)  # x_T is all hidden: abar_T = 0

    def evidence(self, x_t: Tensor, t: Tensor) -> Tensor:
        return torch.tensor([-CERTAIN, CERTAIN, 0.0], device=x_t.device)[x_t.long()]


def _log_ratio(p: Tensor, q: Tensor, difference: Tensor) -> Tensor:
    """log(p / q) where p = q + difference: exact both for p close to q and for p close to 0."""
    close = difference > -0.5 * q
    return torch.where(close, torch.log1p(torch.where(close, difference / q, 0.0)), torch.log(p / q))


NOISES: tuple[type[Noise], ...] = (UniformNoise, MarginalNoise, AbsorbingNoise)


def noise_named(name: str) -> type[Noise]:
    """The noise class of that name."""
    for noise in NOISES:
        if noise.name == name:
            return noise
    raise ConfigError(f"unknown noise '{name}'; known: {', '.join(noise.name for noise in NOISES)}")
