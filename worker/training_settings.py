"""What the settings of a training mean: a preset with changes. Imports no mathematics: the API refuses wrong settings
before a job is made of them."""

from typing import Any

from model_store.errors import RequestError
from worker.engine.config import PRESETS, D3PMConfig, preset
from worker.engine.errors import ConfigError

PRESET_NAMES = tuple(PRESETS)


def resolved_settings(preset_name: str | None, changes: dict[str, Any]) -> dict[str, Any]:
    """The preset with the request's changes."""
    base = {} if preset_name is None else preset(preset_name).model_dump()
    return merged(base, changes)


def check_settings(generator: str, preset_name: str | None, changes: dict[str, Any]) -> None:
    """RequestError if the generator would refuse these settings."""
    if generator != "d3pm":
        return  # it has none
    try:
        D3PMConfig(**resolved_settings(preset_name, changes))
    except ConfigError as error:
        raise RequestError(f"settings: {error}") from None


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, at any depth; a part of another kind (`denoiser.kind`) replaces the old part whole."""
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        other_kind = (
            isinstance(value, dict) and isinstance(old, dict) and value.get("kind", old.get("kind")) != old.get("kind")
        )
        if isinstance(value, dict) and isinstance(old, dict) and not other_kind:
            result[name] = merged(old, value)
        else:
            result[name] = value
    return result
