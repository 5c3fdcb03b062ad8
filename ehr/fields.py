"""Kinds of values that requests share."""

import math
import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, Field

DEEPEST_SETTING = 6
MOST_SETTINGS = 200
LARGEST_INTEGER = 2**63 - 1


def _plain(value: str) -> str:
    # NUL and lone surrogates cannot be stored in every database; other control characters cannot be meant
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise ValueError("must not contain control characters")
    return value


def _plain_settings(value: dict[str, Any]) -> dict[str, Any]:
    """Settings are plain JSON of a sane size; what they mean is for the generator to say."""
    seen = 0
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        seen += 1
        if depth > DEEPEST_SETTING or seen > MOST_SETTINGS:
            raise ValueError(f"settings hold at most {MOST_SETTINGS} values, nested {DEEPEST_SETTING} deep")
        if isinstance(item, dict):
            waiting += [(key, depth) for key in item] + [(child, depth + 1) for child in item.values()]
        elif isinstance(item, list):
            waiting += [(child, depth + 1) for child in item]
        elif isinstance(item, str):
            if len(item) > 200:
                raise ValueError("a setting's name or text has at most 200 characters")
            _plain(item)
        elif isinstance(item, float) and not math.isfinite(item):
            raise ValueError("numbers must be finite")
        elif isinstance(item, int) and abs(item) > LARGEST_INTEGER:
            raise ValueError("integers must fit 64 bits")
    return value


PlainText = Annotated[str, AfterValidator(_plain)]
Name = Annotated[PlainText, Field(min_length=1, max_length=200)]
Code = Annotated[PlainText, Field(min_length=1, max_length=200, examples=["ICD10CM:E84"])]
Seed = Annotated[int, Field(ge=0, le=LARGEST_INTEGER, strict=True)]
SettingsDict = Annotated[dict[str, Any], AfterValidator(_plain_settings)]
