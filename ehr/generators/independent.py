"""Every code drawn by itself with its prevalence: the yardstick."""

from ehr.generators.spec import GeneratorSpec

INDEPENDENT = GeneratorSpec(
    name="independent",
    description="ignores how codes occur together: a yardstick",
    implementation="worker.engine.generators.independent:IndependentGenerator",
    settings=None,
)
