"""No number that a training can be asked for is without an upper bound, and the bound is named."""

from collections.abc import Iterator
from typing import Any

import pytest

from ehr.errors import ConfigError, RequestError
from ehr.generators import GENERATORS, HISTORY_GENERATORS, spec_named

CONFIGS = [spec for spec in (*GENERATORS, *HISTORY_GENERATORS) if spec.settings is not None]


def numbers(schema: dict[str, Any], root: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number of a JSON schema, with where it stands."""
    if "$ref" in schema:
        yield from numbers(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, path)
    if schema.get("type") in ("integer", "number"):
        yield path, schema
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *filter(None, [schema.get("items")])):
        yield from numbers(each, root, path)
    for name, each in schema.get("properties", {}).items():
        yield from numbers(each, root, f"{path}.{name}".strip("."))


@pytest.mark.parametrize("spec", CONFIGS, ids=lambda spec: spec.name)
def test_every_number_has_an_upper_bound(spec: Any) -> None:
    schema = spec.settings.model_json_schema()
    found = dict(numbers(schema, schema))
    assert len(found) > 5
    assert [path for path, each in found.items() if not {"maximum", "exclusiveMaximum"} & each.keys()] == []


@pytest.mark.parametrize(
    ("generator", "settings", "named"),
    [
        ("d3pm", {"training": {"epochs": 10**9}}, "epochs: Input should be less than or equal to 100000"),
        ("d3pm", {"denoiser": {"width": 10**6}}, "width: Input should be less than or equal to 16384"),
        ("d3pm", {"timesteps": 10**6}, "timesteps: Input should be less than or equal to 10000"),
        ("ehrdiff", {"layers": [10**6]}, "layers.0: Input should be less than or equal to 16384"),
        ("tabddpm", {"layers": [8] * 65}, "layers: Tuple should have at most 64 items"),
        ("halo", {"epochs": 10**9}, "epochs: Input should be less than or equal to 100000"),
        ("visits", {"training": {"epochs": 10**9}}, "epochs: Input should be less than or equal to 100000"),
        ("emr-wgan", {"batch_size": 10**7}, "batch_size: Input should be less than or equal to 65536"),
    ],
)
def test_the_bound_is_named(generator: str, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError, match=r"settings: ") as refused:
        spec_named(generator).check(None, settings)
    assert named in str(refused.value)


def test_presets_and_defaults_pass() -> None:
    for spec in CONFIGS:
        assert spec.settings is not None
        for name, preset in spec.presets.items():
            spec.check(name, preset.model_dump())
        try:
            spec.settings()
        except ConfigError as error:
            pytest.fail(f"{spec.name}: {error}")
