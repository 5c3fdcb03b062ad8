"""From stored things to the engine's and back. The owner is the job's: nobody's job can load another's data."""

import math
from typing import Any

import torch
from safetensors.torch import load, save

from ehr.conditions import Condition, Target
from ehr.errors import CorruptError
from ehr.targets import resolve_targets
from ehr.vocabulary import ResolvedCondition, Vocabulary
from model_store.bundles import Bundle, load_bundle
from model_store.datasets import StoredDataset, load_dataset
from model_store.repositories import DatasetRepository, ModelRepository
from model_store.tables import Model
from worker.contract import Conditions, GeneratePayload
from worker.engine.generators import Generator, State, from_state
from worker.runtime import Runtime


def dataset_of(runtime: Runtime, owner: str, dataset_id: str) -> StoredDataset:
    with runtime.database.read_scope() as session:
        row = DatasetRepository(session).get(owner, dataset_id)
    return load_dataset(runtime.store, row.prefix, row.manifest_hash)


def model_of(runtime: Runtime, owner: str, model_id: str) -> tuple[Model, Bundle, Generator]:
    with runtime.database.read_scope() as session:
        row = ModelRepository(session).get(owner, model_id)
    bundle = load_bundle(runtime.store, row.prefix, row.manifest_hash)
    return row, bundle, from_state(State(unpack_tensors(bundle.weights), bundle.config))


def condition_of(conditions: Conditions, vocabulary: Vocabulary) -> tuple[ResolvedCondition, Condition | None]:
    """What a person wrote, in indices; None for the engine if nothing is asked."""
    resolved = vocabulary.resolve(conditions.all_of, conditions.any_of, conditions.none_of)
    if resolved.is_empty:
        return resolved, None
    return resolved, Condition.of(len(vocabulary), resolved.all_of, resolved.any_of, resolved.none_of)


def asked_of(payload: GeneratePayload, vocabulary: Vocabulary) -> tuple[Condition | None, tuple[Target, ...]]:
    """What every record, and what shares of them, must satisfy."""
    resolved, condition = condition_of(payload.conditions, vocabulary)
    targets = resolve_targets(vocabulary, resolved, [(target.codes, target.share) for target in payload.targets])
    return condition, tuple(Target(len(vocabulary), frozenset(t.codes), t.share) for t in targets)


def pack_tensors(tensors: dict[str, torch.Tensor]) -> bytes:
    data: bytes = save({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()})
    return data


def unpack_tensors(data: bytes) -> dict[str, torch.Tensor]:
    try:
        tensors: dict[str, torch.Tensor] = load(data)
    except Exception as error:
        raise CorruptError(f"the tensors are not in safetensors format: {type(error).__name__}") from None
    return tensors


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
