"""What the service must know of a generator without importing its mathematics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ehr.errors import ConfigError, RequestError
from ehr.generators.config import Config, merged

AUTO = "auto"  # the preset that is chosen by the size of the data and the device


@dataclass(frozen=True)
class ResolvedSettings:
    """All settings of one training, and where they come from."""

    values: dict[str, Any]  # as they are stored with the model
    config: Config | None  # the same, checked; None if the generator has no settings
    preset: str | None = None
    preset_reason: str | None = None  # why that preset, if the service chose it


@dataclass(frozen=True)
class GeneratorSpec:
    """A generator's name, settings and abilities, and where its implementation is."""

    name: str
    description: str  # one line for help texts
    implementation: str  # "module:Class" of a worker.engine.generators.Generator; only workers import it
    settings: type[Config] | None  # None: it has none, and ignores a preset and settings that are given
    methods: tuple[str, ...] = ("exact",)  # how its models meet conditions; the first is what `auto` means
    presets: Mapping[str, Config] = field(default_factory=dict)
    # (records, codes, on a GPU) -> (the preset that `auto` takes, why); needed where there are presets
    choose_preset: Callable[[int, int, bool], tuple[str, str]] | None = None
    # settings of a model -> the most network calls it can make for a record; None if there is no limit
    most_calls: Callable[[Mapping[str, Any]], int | None] = lambda settings: None
    # (its settings, GPUs there are) -> how many processes should share a training; None: one must do it alone
    processes: Callable[[Any, int], int] | None = None
    streams: bool = False  # whether it can learn from records that are not all in memory (ehr.streams)
    most_codes: int | None = None  # the largest vocabulary it can learn; None: any

    def check(self, preset: str | None, changes: Mapping[str, Any]) -> None:
        """RequestError if training would refuse this preset or these changes to it."""
        if self.settings is None:
            return
        if preset not in (None, AUTO, *self.presets):
            if not self.presets:
                raise RequestError(f"preset: '{self.name}' has one only, its published settings: leave it out")
            raise RequestError(f"preset: unknown preset '{preset}'; known: {', '.join(self.presets)}")
        try:
            # Which preset `auto` takes depends on the data; what may be changed does not depend on the preset.
            self._resolved(next(iter(self.presets), None) if preset in (None, AUTO) else preset, changes)
        except ConfigError as error:
            raise RequestError(f"settings: {error}") from None

    def resolve(
        self, preset: str | None, changes: Mapping[str, Any], records: int, codes: int, on_gpu: bool
    ) -> ResolvedSettings:
        """The settings for data of this size on this device; ConfigError if something is wrong with them."""
        if self.choose_preset is None or preset not in (None, AUTO):
            return self._resolved(preset if self.presets else None, changes)
        chosen, reason = self.choose_preset(records, codes, on_gpu)
        return self._resolved(chosen, changes, reason)

    def _resolved(self, preset: str | None, changes: Mapping[str, Any], reason: str | None = None) -> ResolvedSettings:
        if self.settings is None:
            return ResolvedSettings(dict(changes), None)
        if preset is None:
            config = self.settings(**dict(changes))
            return ResolvedSettings(config.model_dump(), config)
        if preset not in self.presets:
            raise ConfigError(f"unknown preset '{preset}'; known: {', '.join(self.presets)}")
        values = merged(self.presets[preset].model_dump(), changes)
        return ResolvedSettings(values, self.settings(**values), preset, reason)
