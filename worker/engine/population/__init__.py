"""Simulated populations whose every probability is known exactly: demo data and the oracle of the tests."""

from worker.engine.population.histories import Predictions, SimulatedHistories
from worker.engine.population.history_states import simulate_histories, simulated_histories
from worker.engine.population.latent_states import simulated_population
from worker.engine.population.simulate import SimulatedPopulation

__all__ = [
    "Predictions",
    "SimulatedHistories",
    "SimulatedPopulation",
    "simulate_histories",
    "simulated_histories",
    "simulated_population",
]
