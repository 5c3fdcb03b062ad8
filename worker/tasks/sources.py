"""What a cohort is drawn from: a model, and what is asked of its records or histories."""

from dataclasses import dataclass, replace
from typing import Any

from ehr.conditions import Condition, Target
from ehr.generators import CHUNK
from ehr.history_conditions import AskedHistoryCondition, HistoryCondition
from ehr.history_targets import HistoryTarget, resolve_targets
from model_store.bundles import Bundle
from model_store.cohorts import pack_history_part, pack_part
from model_store.repositories import PartClaim
from model_store.tables import Model
from worker.contract import GeneratePayload
from worker.engine.generators import Generator, SampleRequest
from worker.engine.generators.protocol import EffectiveSize, SampleProgress
from worker.engine.histories.protocol import HistoryGenerator, HistoryRequest
from worker.runtime import Runtime
from worker.tasks.loading import model_of, resolved


@dataclass(frozen=True)
class Source:
    """A model and what to draw from it."""

    row: Model
    bundle: Bundle
    generator: Generator
    payload: GeneratePayload
    condition: Condition | None
    targets: tuple[Target, ...]

    def draw(self, part: PartClaim, on_progress: SampleProgress) -> bytes:
        """A part as it is stored. A part is whole chunks, and a chunk is the same whoever draws it."""
        size = EffectiveSize()
        request = replace(self._request(part.n_records, part.first_record // CHUNK), effective_size=size)
        records = self.generator.sample(request, on_progress)
        return pack_part(part.first_record, records, self.bundle.vocabulary, size.of(len(records)))

    def resolved(self) -> dict[str, Any]:
        """What the generator made of what was left to it."""
        request = self._request(self.payload.n)
        method = self.generator.method_of(request) if request.asks_for_something else None
        sampling = self.generator.sampling_of(request)
        return {"method": method, "steps": self.generator.steps_of(request), "sampling": sampling}

    def _request(self, n: int, first_chunk: int = 0) -> SampleRequest:
        return SampleRequest(
            n=n,
            seed=self.payload.seed,
            condition=self.condition,
            targets=self.targets,
            method=self.payload.method,
            strength=self.payload.strength,
            steps=self.payload.steps,
            sampling=self.payload.sampling,
            first_chunk=first_chunk,
        )


@dataclass(frozen=True)
class HistorySource:
    """A model of histories and what to draw from it."""

    row: Model
    bundle: Bundle
    generator: HistoryGenerator
    payload: GeneratePayload
    condition: HistoryCondition | None
    targets: tuple[HistoryTarget, ...]

    def draw(self, part: PartClaim, on_progress: SampleProgress) -> bytes:
        """The same, for patients over time."""
        size = EffectiveSize()
        request = HistoryRequest(
            n=part.n_records,
            seed=self.payload.seed,
            condition=self.condition,
            targets=self.targets,
            steps=self.payload.steps,
            first_chunk=part.first_record // CHUNK,
            effective_size=size,
        )
        histories = self.generator.sample(request, on_progress)
        return pack_history_part(part.first_record, histories, self.bundle.vocabulary, size.of(len(histories)))

    def resolved(self) -> dict[str, Any]:
        method = None if self.condition is None and not self.targets else "exact"
        sampling = self.generator.spec.sampling(self.payload.sampling, {}, method)
        return {"method": method, "steps": self.payload.steps, "sampling": sampling}


def source_of(runtime: Runtime, owner: str, payload: dict[str, Any]) -> Source | HistorySource:
    checked = GeneratePayload.model_validate(payload)
    row, bundle, generator = model_of(runtime, owner, checked.model_id)
    if isinstance(generator, HistoryGenerator):
        condition = (checked.history or AskedHistoryCondition()).resolve(bundle.vocabulary)
        targets = resolve_targets(bundle.vocabulary, condition, checked.targets)
        return HistorySource(row, bundle, generator, checked, None if condition.is_empty else condition, targets)
    return Source(row, bundle, generator, checked, *resolved(checked, bundle.vocabulary))
