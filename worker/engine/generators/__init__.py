"""The generators this engine has. A new one is a file here and a line in GENERATORS (or in BASELINES)."""

from ehr.errors import ConfigError
from worker.engine.generators.baselines import BASELINES
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.independent import IndependentGenerator
from worker.engine.generators.protocol import FitRequest, Generator, SampleRequest, State

__all__ = ["GENERATORS", "FitRequest", "Generator", "SampleRequest", "State", "from_state", "generator_named"]

GENERATORS: tuple[type[Generator], ...] = (D3PMGenerator, IndependentGenerator, *BASELINES)


def generator_named(name: str) -> type[Generator]:
    """The generator class of that name."""
    for generator in GENERATORS:
        if generator.name == name:
            return generator
    raise ConfigError(f"unknown generator '{name}'; known: {', '.join(g.name for g in GENERATORS)}")


def from_state(state: State) -> Generator:
    """The generator a state belongs to, ready to sample."""
    return generator_named(str(state.config.get("generator"))).from_state(state)
