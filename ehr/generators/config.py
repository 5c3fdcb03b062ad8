"""What the settings of every generator have in common: frozen, JSON-ready, and refusing what they do not know."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ehr.errors import ConfigError


class Config(BaseModel):
    """Base of all settings: a wrong value raises ConfigError with the field and what is allowed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, e['loc'])) or type(self).__name__}: {e['msg']}" for e in error.errors()
            )
            raise ConfigError(problems) from None

    @classmethod
    def of(cls, values: "Config | Mapping[str, Any]") -> Self:
        """These settings themselves, or made of plain values."""
        return values if isinstance(values, cls) else cls(**dict(values))

    def with_checkpoints(self, every: int) -> Self:
        """The same with a checkpoint every so many steps, unless something else is set; weights do not depend on it."""
        return self


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, at any depth; settings of another kind (`denoiser.kind`) replace the old ones whole."""
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        if isinstance(value, dict) and isinstance(old, dict) and value.get("kind", old.get("kind")) == old.get("kind"):
            value = merged(old, value)
        result[name] = value
    return result
