"""A generator that the service has never heard of: all its mathematics, for test_new_generator.py."""

from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from ehr.generators import GeneratorSpec
from ehr.records import Records
from tests.service.test_new_generator import NEWCOMER, NewcomerConfig
from worker.engine.generators import FitRequest, Generator, SampleRequest, State
from worker.engine.generators.protocol import Chunk, SampleProgress, sample_in_chunks
from worker.engine.independent import independent_records


class Newcomer(Generator):
    """Codes by themselves, each `times` as common as in the training records."""

    spec: GeneratorSpec = NEWCOMER

    def __init__(self, prevalence: NDArray[np.float64]) -> None:
        self.prevalence = prevalence

    @classmethod
    def fit(cls, request: FitRequest) -> Self:
        times = NewcomerConfig.of(request.settings).times
        return cls(np.minimum(times * request.train.prevalence(), 1))

    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        def draw(chunk: Chunk) -> Records:
            return independent_records(self.prevalence, chunk.rows, np.random.default_rng(chunk.seed))

        return sample_in_chunks(request, len(self.prevalence), draw, progress)

    def state(self) -> State:
        return State({"prevalence": torch.from_numpy(self.prevalence)}, {"generator": self.spec.name})

    @classmethod
    def from_state(cls, state: State) -> Self:
        return cls(state.tensors["prevalence"].numpy())
