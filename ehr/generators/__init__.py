"""The generators there are. A new one is files of its own and a line in GENERATORS."""

from ehr.errors import ConfigError
from ehr.generators.d3pm import D3PM
from ehr.generators.ehrdiff import EHRDIFF
from ehr.generators.emr_wgan import EMR_WGAN
from ehr.generators.halo import HALO
from ehr.generators.independent import INDEPENDENT
from ehr.generators.markov import MARKOV
from ehr.generators.med_wgan import MED_WGAN
from ehr.generators.spec import AUTO, GeneratorSpec, ResolvedSettings
from ehr.generators.tabddpm import TABDDPM
from ehr.generators.tabsyn import TABSYN
from ehr.generators.visits import VISITS

__all__ = [
    "CHUNK",
    "DEFAULT_GENERATOR",
    "DEFAULT_HISTORY_GENERATOR",
    "GENERATORS",
    "HISTORY_GENERATORS",
    "GeneratorSpec",
    "ResolvedSettings",
    "generator_names",
    "generator_spec",
    "history_generator_names",
    "history_generator_spec",
    "preset_names",
    "spec_named",
]

# Rows are drawn in chunks of this size, each with its own seed, so that a cohort does not depend on how its
# production is divided among calls or workers. Changing it changes every cohort.
CHUNK = 1024

GENERATORS: tuple[GeneratorSpec, ...] = (D3PM, INDEPENDENT, MED_WGAN, EMR_WGAN, TABDDPM, EHRDIFF, TABSYN)
# Those that learn from patients over time (ehr/histories.py); their classes keep another contract.
HISTORY_GENERATORS: tuple[GeneratorSpec, ...] = (VISITS, MARKOV, HALO)


DEFAULT_GENERATOR = GENERATORS[0].name
DEFAULT_HISTORY_GENERATOR = HISTORY_GENERATORS[0].name


def generator_names() -> tuple[str, ...]:
    """In the order of GENERATORS."""
    return tuple(spec.name for spec in GENERATORS)


def history_generator_names() -> tuple[str, ...]:
    """In the order of HISTORY_GENERATORS."""
    return tuple(spec.name for spec in HISTORY_GENERATORS)


def preset_names() -> tuple[str, ...]:
    """`auto`, and the presets of all generators."""
    return (AUTO, *dict.fromkeys(name for spec in GENERATORS for name in spec.presets))


def generator_spec(name: str) -> GeneratorSpec:
    """The generator of that name; ConfigError if there is none."""
    return _named(name, GENERATORS)


def history_generator_spec(name: str) -> GeneratorSpec:
    """The generator of histories of that name; ConfigError if there is none."""
    return _named(name, HISTORY_GENERATORS)


def spec_named(name: str) -> GeneratorSpec:
    """The generator of that name, of records or of histories; ConfigError if there is none."""
    return _named(name, (*GENERATORS, *HISTORY_GENERATORS))


def _named(name: str, specs: tuple[GeneratorSpec, ...]) -> GeneratorSpec:
    for spec in specs:
        if spec.name == name:
            return spec
    raise ConfigError(f"unknown generator '{name}'; known: {', '.join(spec.name for spec in specs)}")
