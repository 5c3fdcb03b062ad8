"""A first-order Markov chain over visits: the yardstick that knows the last visit and nothing before it."""

from ehr.generators.spec import GeneratorSpec

MARKOV = GeneratorSpec(
    name="markov",
    description="patients over time whose every code depends on whether it was there at the last visit",
    implementation="worker.engine.generators.markov:MarkovGenerator",
    settings=None,
    methods=(),
)
