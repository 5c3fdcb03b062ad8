"""From the catalogue to a population: which latent states there are, how common, and what each does to the codes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from worker.engine.population import catalogue
from worker.engine.population.catalogue import AGES, CONDITIONS, CONSTELLATIONS, SEXES, Code, Trait
from worker.engine.population.simulate import Floats, SimulatedPopulation

# states are kept while their weight is above this share of the cube root of their group's weight
RARE_STATE = 5.6e-5
HIGHEST_PROBABILITY = 0.98


def simulated_population() -> SimulatedPopulation:
    """The population of the catalogue: 367 codes, a little under 4,000 states, built in half a second."""
    clinical = (*catalogue.DIAGNOSES, *catalogue.DRUGS)
    weights, people, active = _latent_states()
    base = np.array([[_base_rate(code, sex, age) for code in clinical] for sex in SEXES for age in range(len(AGES))])
    # noisy-or: P(absent) = (1 - base) * prod over the active conditions of (1 - effect)
    log_absent = np.log1p(-np.maximum(base, 0))[people] + active @ np.log1p(-_effects(clinical))
    probabilities = np.minimum(-np.expm1(log_absent), HIGHEST_PROBABILITY)
    probabilities[(base < 0)[people]] = 0
    sex, age = np.divmod(people, len(AGES))
    demographic = np.hstack([np.eye(len(SEXES))[sex], np.eye(len(AGES))[age]])
    systems = [*["ICD10CM"] * len(catalogue.DIAGNOSES), *["RXNORM"] * len(catalogue.DRUGS)]
    return SimulatedPopulation(
        vocabulary=(
            *(f"SEX:{sex}" for sex in SEXES),
            *(f"AGE:{age}" for age in AGES),
            *(f"{system}:{code.code}" for system, code in zip(systems, clinical, strict=True)),
        ),
        descriptions=(
            *(catalogue.SEX_NAMES[sex] for sex in SEXES),
            *(f"Age {age} years" for age in AGES),
            *(code.description for code in clinical),
        ),
        state_weights=weights,
        code_probabilities=np.hstack([demographic, probabilities]),
    )


def _latent_states() -> tuple[Floats, NDArray[np.int64], Floats]:
    """Weights (S,), group of sex and age (S,), and which conditions, then constellations, are active (S, L) as 0/1."""
    n = len(CONDITIONS)
    combinations = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.float64)  # (2^n, n)
    shift = combinations @ _log_odds(CONDITIONS).T  # (2^n, n), what the other conditions add to the logit of each
    from_constellation = np.vstack([_log_odds(CONSTELLATIONS), np.zeros(n)])  # the last row: no constellation
    which = np.vstack([np.eye(len(CONSTELLATIONS)), np.zeros(len(CONSTELLATIONS))])
    weights, people, active = [], [], []
    for group in range(len(SEXES) * len(AGES)):
        sex, age = divmod(group, len(AGES))
        share = np.array([(c.women, c.men)[sex][age] for c in CONSTELLATIONS]) / 100
        share = catalogue.POPULATION[SEXES[sex]][age] / 100 * np.append(share, 1 - share.sum())
        base = logit(np.array([(c.women, c.men)[sex][age] for c in CONDITIONS]) / 100)  # (n,)
        for k in np.flatnonzero(share):
            p = expit(base + from_constellation[k] + shift)  # (2^n, n)
            weight = share[k] * np.where(combinations == 1, p, 1 - p).prod(axis=1)  # (2^n,)
            # Drop the lightest states (the longest lists of conditions), but within the group: sexes, ages and rare
            # diseases keep their exact weight, and the cube root leaves the rare ones more than one state each.
            kept = np.flatnonzero(weight >= min(RARE_STATE * np.cbrt(share[k]), weight.max()))
            weights.append(weight[kept] * share[k] / weight[kept].sum())
            people.append(np.full(len(kept), group))
            active.append(np.hstack([combinations[kept], np.tile(which[k], (len(kept), 1))]))
    joined = np.concatenate(weights)
    return joined / joined.sum(), np.concatenate(people), np.vstack(active)


def _log_odds(table: Sequence[Trait]) -> Floats:
    """log odds ratio of each condition (column) for each row of the table, (rows, n)."""
    names = [condition.name for condition in CONDITIONS]
    with np.errstate(divide="ignore"):  # an odds ratio of 0 excludes the condition
        return np.log([[row.odds.get(name, 1.0) for name in names] for row in table])


def _base_rate(code: Code, sex: str, age: int) -> float:
    """The probability of a code outside every condition; -1 where sex or age make it impossible."""
    factor = catalogue.PROFILES[code.profile][age]
    return code.rate / 100 * factor if sex in code.sexes and factor > 0 else -1.0


def _effects(clinical: Sequence[Code]) -> Floats:
    """The probability that a condition, then a constellation, leaves a code, (L, N)."""
    position = {code.code: i for i, code in enumerate(clinical)}
    position |= {drug.description: position[drug.code] for drug in catalogue.DRUGS}
    effects = np.zeros((len(CONDITIONS) + len(CONSTELLATIONS), len(clinical)))
    for row, condition in enumerate((*CONDITIONS, *CONSTELLATIONS)):
        for name, percent in catalogue.EFFECTS[condition.name].items():
            effects[row, position[name]] = percent / 100
    return effects
