"""A simulated population whose every probability is known exactly: demo data and the oracle of the tests."""

from worker.engine.population.latent_states import simulated_population
from worker.engine.population.simulate import SimulatedPopulation

__all__ = ["SimulatedPopulation", "simulated_population"]
