"""What the service must know of a generator without importing its mathematics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ehr.errors import ConfigError, RequestError
from ehr.generators.auto import Shape
from ehr.generators.config import Config, merged

AUTO = "auto"  # the preset that follows a rule from the shape of the data
# How the records of a cohort come to be: `dealt` is a stratified sample, whose numbers of rare codes, sizes and kinds
# of records hardly vary from cohort to cohort; `independent` draws every record by itself.
DEALT, INDEPENDENTLY = "dealt", "independent"


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
    # what `auto` means for data of that shape; needed where there are presets
    rule: Callable[[Shape], Config] | None = None
    # settings of a model -> the most network calls it can make for a record; None if there is no limit
    most_calls: Callable[[Mapping[str, Any]], int | None] = lambda settings: None
    # (its settings, GPUs there are) -> how many processes should share a training; None: one must do it alone
    processes: Callable[[Any, int], int] | None = None
    is_calibrated: bool = False  # whether something is drawn after training to correct what was learned
    streams: bool = False  # whether it can learn from records that are not all in memory (ehr.streams)
    most_codes: int | None = None  # the largest vocabulary it can learn; None: any
    # (settings of a model, how conditions are met or None) -> how its records can be drawn; the first is `auto`
    samplings: Callable[[Mapping[str, Any], str | None], tuple[str, ...]] = lambda settings, method: (INDEPENDENTLY,)

    def sampling(self, asked: str, settings: Mapping[str, Any], method: str | None) -> str:
        """How the records of a cohort will be drawn; ConfigError if a model with these settings cannot."""
        offered = self.samplings(settings, method)
        if asked not in (AUTO, *offered):
            known = ", ".join(f"'{name}'" for name in (AUTO, *offered))
            how = "" if method is None else f" under a condition that is met by '{method}'"
            raise ConfigError(f"sampling: this '{self.name}' model does not offer '{asked}'{how}; known: {known}")
        return offered[0] if asked == AUTO else asked

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

    def follows_rule(self, preset: str | None) -> bool:
        """Whether this preset is settings by rule."""
        return self.rule is not None and preset in (None, AUTO)

    def resolve(self, preset: str | None, changes: Mapping[str, Any], shape: Shape) -> ResolvedSettings:
        """The settings for data of this shape; ConfigError if something is wrong with them."""
        if self.rule is None or not self.follows_rule(preset):
            return self._resolved(preset if self.presets else None, changes)
        reason = f"by rule, for about {shape.about:,} records with {shape.codes:,} codes"
        return self.changed(self.rule(shape), changes, AUTO, reason)

    def changed(
        self, config: Config, changes: Mapping[str, Any], preset: str | None = None, reason: str | None = None
    ) -> ResolvedSettings:
        """The settings with changes to them."""
        assert self.settings is not None
        values = merged(config.model_dump(), changes)
        return ResolvedSettings(values, self.settings(**values), preset, reason)

    def _resolved(self, preset: str | None, changes: Mapping[str, Any]) -> ResolvedSettings:
        if self.settings is None:
            return ResolvedSettings(dict(changes), None)
        if preset is None:
            config = self.settings(**dict(changes))
            return ResolvedSettings(config.model_dump(), config)
        if preset not in self.presets:
            raise ConfigError(f"unknown preset '{preset}'; known: {', '.join(self.presets)}")
        return self.changed(self.presets[preset], changes, preset)
