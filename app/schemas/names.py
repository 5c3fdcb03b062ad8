"""Names of generators and presets, as fields of requests."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ehr.generators import generator_names, history_generator_names, preset_names


# Names are asked for when they are needed: a generator that is added is accepted, and in the schema.
def _among(what: str, names: Callable[[], Sequence[str]]) -> AfterValidator:
    def known(name: str) -> str:
        if name not in names():
            raise ValueError(f"unknown {what}; known: {', '.join(map(repr, names()))}")
        return name

    return AfterValidator(known)


def _enum(names: Callable[[], Sequence[str]]) -> Any:
    return Field(json_schema_extra=lambda schema: schema.update(enum=list(names())))


def _all_generators() -> Sequence[str]:
    return (*generator_names(), *history_generator_names())


GeneratorName = Annotated[str, _among("generator", _all_generators), _enum(_all_generators)]
Preset = Annotated[str, _among("preset", preset_names), _enum(preset_names)]
