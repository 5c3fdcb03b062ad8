"""Models that are slow to train are kept in a folder, and a second run starts from them."""

import json
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file, save_file

from worker.engine.generators import Generator, State, from_state


def kept_model(name: str, folder: Path | None, train: Callable[[], Generator]) -> Generator:
    """The model an earlier run left in `folder`, or a new one, which is left there."""
    if folder is None:
        return train()
    weights, config = folder / f"{name}.safetensors", folder / f"{name}.json"
    if config.exists():
        return from_state(State(load_file(weights), json.loads(config.read_text())))
    model = train()
    state = model.state()
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in state.tensors.items()}, weights)
    config.write_text(json.dumps(state.config))  # last: what has a config is whole
    return model
