"""The implementations of the generators in `ehr.generators.GENERATORS`, imported when they are needed."""

from importlib import import_module
from typing import TYPE_CHECKING

from ehr.generators import generator_spec, history_generator_spec
from worker.engine.generators.protocol import FitRequest, Generator, SampleRequest, State

if TYPE_CHECKING:
    from worker.engine.histories.protocol import HistoryGenerator

__all__ = [
    "FitRequest",
    "Generator",
    "SampleRequest",
    "State",
    "from_state",
    "generator_named",
    "history_generator_named",
]


def generator_named(name: str) -> type[Generator]:
    """The generator class of that name; ConfigError if there is none."""
    module, _, attribute = generator_spec(name).implementation.partition(":")
    found: type[Generator] = getattr(import_module(module), attribute)
    return found


def history_generator_named(name: str) -> "type[HistoryGenerator]":
    """The same for generators of histories."""
    module, _, attribute = history_generator_spec(name).implementation.partition(":")
    found: type[HistoryGenerator] = getattr(import_module(module), attribute)
    return found


def from_state(state: State) -> Generator:
    """The generator a state belongs to, ready to sample."""
    return generator_named(str(state.config.get("generator"))).from_state(state)
