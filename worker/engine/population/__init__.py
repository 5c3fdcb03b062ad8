"""A simulated population whose every probability is known exactly: demo data and the oracle of the tests."""

from worker.engine.population.simulate import SimulatedPopulation, simulated_population

__all__ = ["SimulatedPopulation", "simulated_population"]
