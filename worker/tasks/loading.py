"""From stored things to the engine's and back. The owner is the job's: nobody's job can load another's data."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors.torch import load, save

from ehr.conditions import Condition, Target
from ehr.errors import CorruptError
from ehr.generators import history_generator_names
from ehr.vocabulary import Vocabulary
from model_store.bundles import Bundle, load_bundle
from model_store.datasets import StoredDataset, load_dataset
from model_store.manifests import DatasetManifest, stored_cdm
from model_store.repositories import DatasetRepository, ModelRepository
from model_store.tables import Model
from worker.contract import GeneratePayload
from worker.engine.generators import Generator, State, from_state, history_generator_named
from worker.engine.histories.protocol import HistoryGenerator
from worker.engine.training import resolve_device
from worker.runtime import Runtime

BLOCK = 1 << 20
KINDS = {  # names of safetensors
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def dataset_of(runtime: Runtime, owner: str, dataset_id: str) -> StoredDataset:
    with runtime.database.read_scope() as session:
        row = DatasetRepository(session).get(owner, dataset_id)
    return load_dataset(runtime.store, row.prefix, row.manifest_hash, runtime.settings.stream_bytes)


def cdm_of(runtime: Runtime, owner: str, dataset_id: str) -> bytes | None:
    """How the dataset's records stood in the CDM they came from, as it is stored; None if they came from none."""
    with runtime.database.read_scope() as session:
        row = DatasetRepository(session).get(owner, dataset_id)
    return stored_cdm(runtime.store, row.prefix, DatasetManifest.read(runtime.store, row.prefix, row.manifest_hash))


def model_of(runtime: Runtime, owner: str, model_id: str) -> tuple[Model, Bundle, Generator | HistoryGenerator]:
    """A model's row, its bundle and its generator, on the device of this worker."""
    with runtime.database.read_scope() as session:
        row = ModelRepository(session).get(owner, model_id)
    bundle = load_bundle(runtime.store, row.prefix, row.manifest_hash)
    state = State(unpack_tensors(bundle.weights), bundle.manifest.config)
    generator: Generator | HistoryGenerator
    if row.generator in history_generator_names():
        generator = history_generator_named(row.generator).from_state(state)
    else:
        generator = from_state(state)
    generator.to(resolve_device(runtime.settings.device))
    return row, bundle, generator


def resolved(payload: GeneratePayload, vocabulary: Vocabulary) -> tuple[Condition | None, tuple[Target, ...]]:
    """What every record (None: nothing), and what shares of them, must satisfy."""
    condition = vocabulary.resolve(payload.conditions)
    return None if condition.is_empty else condition, vocabulary.resolve_targets(condition, payload.targets)


def pack_tensors(tensors: dict[str, torch.Tensor]) -> bytes:
    data: bytes = save({name: _own(value.detach().cpu().contiguous()) for name, value in tensors.items()})
    return data


def tensor_blocks(tensors: Mapping[str, torch.Tensor]) -> Iterator[memoryview]:
    """The same file in blocks: a checkpoint of gigabytes is written from where it lies. `save` holds it twice more."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so that each lies on its own size
    header, end = {}, 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.nbytes
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield memoryview(len(text).to_bytes(8, "little") + text)
    for name in names:
        data = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        for start in range(0, len(data), BLOCK):
            yield data[start : start + BLOCK]


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """safetensors refuses views of a larger one; a copy of all others would be a copy of the whole network."""
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


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
