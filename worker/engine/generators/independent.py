"""Codes drawn independently with the right prevalences: the yardstick that knows marginals and nothing else."""

from typing import Self

import numpy as np
import torch
from torch import Tensor

from worker.engine.errors import DataError, StateError
from worker.engine.generators.protocol import FitRequest, SampleProgress, SampleRequest, State, sample_in_chunks
from worker.engine.records import Records


class IndependentGenerator:
    """p(x) = product of Bernoulli(prevalence). Conditions are exact: codes do not depend on each other."""

    name = "independent"

    def __init__(self, prevalence: Tensor) -> None:
        self.prevalence = prevalence.double()  # (N,)

    @classmethod
    def fit(cls, request: FitRequest) -> Self:
        if len(request.train) == 0:
            raise DataError("there is nothing to learn from: the training records are empty")
        return cls(torch.from_numpy(request.train.prevalence()))

    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        return sample_in_chunks(
            request,
            len(self.prevalence),
            lambda rows, generator: Records.from_dense(self._draw(rows, request, generator).numpy()),
            torch.device("cpu"),
            progress,
        )

    def _draw(self, rows: int, request: SampleRequest, generator: torch.Generator) -> Tensor:
        x = (torch.rand(rows, len(self.prevalence), generator=generator) < self.prevalence).to(torch.uint8)
        if request.condition is None:
            return x
        x[:, sorted(request.condition.none_of)] = 0
        x[:, sorted(request.condition.all_of)] = 1
        for group in request.condition.any_of:
            self._require_any(x, sorted(group - request.condition.none_of), generator)
        return x

    def _require_any(self, x: Tensor, codes: list[int], generator: torch.Generator) -> None:
        """Give rows without any of `codes` one, which makes them as likely as drawing until one appears.

        Given that some code of the group is present, the first one present (in a fixed order) is code k with
        probability p_k * prod over j < k of (1 - p_j), normalised; codes after it are as drawn.
        """
        missing = (x[:, codes].sum(1) == 0).nonzero()[:, 0]
        p = self.prevalence[codes].clamp(min=1e-12)
        none_before = torch.cumprod(torch.cat([torch.ones(1, dtype=p.dtype), 1 - p[:-1]]), 0)
        first = torch.multinomial(p * none_before, max(len(missing), 1), replacement=True, generator=generator)
        for row, k in zip(missing.tolist(), first.tolist(), strict=False):
            x[row, codes[k]] = 1
            after = codes[k + 1 :]
            x[row, after] = (torch.rand(len(after), generator=generator) < self.prevalence[after]).to(torch.uint8)

    def negative_log_likelihood(self, records: Records) -> float:
        """Mean exact -log p(record), nats; what a held-out ELBO is compared with."""
        p = self.prevalence.clamp(1e-6, 1 - 1e-6).numpy()
        present = np.log1p(-p).sum() + np.add.reduceat(
            np.append(np.log(p / (1 - p))[records.indices], 0.0), records.indptr[:-1]
        ) * (records.sizes() > 0)
        return float(-present.mean())

    def state(self) -> State:
        return State({"prevalence": self.prevalence}, {"generator": self.name, "version": 1})

    @classmethod
    def from_state(cls, state: State) -> Self:
        if state.config.get("generator") != cls.name or state.config.get("version") != 1:
            raise StateError(f"this is not the state of an '{cls.name}' generator, version 1: {state.config}")
        return cls(state.tensors["prevalence"])
