"""What the settings of a training mean: a preset with changes. Imports no mathematics: the API refuses wrong settings
before a job is made of them."""

from dataclasses import dataclass
from typing import Any

from ehr.errors import ConfigError, RequestError
from ehr.generators.baselines import BASELINE_CONFIGS, BaselineConfig, WganConfig
from ehr.generators.d3pm import PRESETS, D3PMConfig, automatic_preset, preset

AUTO = "auto"
PRESET_NAMES = (AUTO, *PRESETS)
BASELINE_NAMES = tuple(BASELINE_CONFIGS)


@dataclass(frozen=True)
class ChosenPreset:
    """A preset, and why it was taken if the service chose."""

    name: str
    reason: str | None = None


def chosen_preset(name: str | None, records: int, codes: int, on_gpu: bool) -> ChosenPreset:
    """The preset that was asked for, or the one for data of this size on this device."""
    if name is not None and name != AUTO:
        return ChosenPreset(name)
    return ChosenPreset(*automatic_preset(records, codes, on_gpu))


def resolved_settings(preset_name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The preset with the request's changes."""
    return merged(preset(preset_name).model_dump(), changes)


def baseline_settings(generator: str, changes: dict[str, Any]) -> dict[str, Any]:
    """A published generator's own settings with the request's changes; ConfigError if it would refuse them."""
    return BASELINE_CONFIGS[generator](**changes).model_dump()


def most_calls(generator: str, settings: dict[str, Any]) -> int | None:
    """The most network calls a model with these settings can make for a record; None if there is no limit."""
    if issubclass(BASELINE_CONFIGS.get(generator, BaselineConfig), WganConfig):
        return 1
    return settings.get("timesteps")


def check_settings(generator: str, preset_name: str | None, changes: dict[str, Any]) -> None:
    """RequestError if the generator would refuse these settings."""
    try:
        if generator in BASELINE_CONFIGS:
            if preset_name not in (None, AUTO):
                raise RequestError(f"preset: '{generator}' has one only, its published settings: leave it out")
            baseline_settings(generator, changes)
        elif generator == "d3pm":
            # Which preset `auto` takes depends on the data; what may be changed does not depend on the preset.
            D3PMConfig(**resolved_settings("fast" if preset_name in (None, AUTO) else str(preset_name), changes))
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
