"""From the tables of courses to a process: which states there are, how they follow each other, what each shows."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np

from ehr.codes.names import names_for
from ehr.codes.systems import AGE, SEX
from ehr.histories import Histories
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from worker.engine.population import catalogue, courses
from worker.engine.population.catalogue import AGES, EFFECTS, SEXES, Code
from worker.engine.population.courses import DISEASES, Step
from worker.engine.population.histories import Floats, SimulatedHistories

BASE_SHARE = 0.5  # of the catalogue's rates, which are those of a year, falls on one visit
RAREST_CODE = 0.4  # per cent; codes outside every disease that are rarer are left out
HIGHEST_PROBABILITY = 0.97
LASTING_START, LASTING_ONSET = 2.0, 0.1  # of the catalogue's rate


def simulate_histories(n: int, seed: int) -> tuple[Histories, Vocabulary]:
    """`n` simulated patients with 10 to 30 visits each, and their vocabulary. 50,000 take four seconds of a core."""
    process = simulated_histories()
    return process.sample(n, np.random.default_rng(seed)), process.vocabulary


@cache
def simulated_histories() -> SimulatedHistories:
    """The process of the tables: 192 states for each sex and age, built in less than a second."""
    groups = [(sex, age) for sex in SEXES for age in range(len(AGES))]
    stages = list(product(*(range(len(steps) + 1) for steps in DISEASES)))  # (S,) of how far each disease has come
    active = [
        [step.condition for steps, stage in zip(DISEASES, each, strict=True) for step in steps[:stage]]
        for each in stages
    ]
    states, lasting, drugs, screenings = _codes()
    base = np.array([[_rate(code, sex, age) for code in states] for sex, age in groups]) * BASE_SHARE
    own = np.array([[_rate(code, sex, age) for code in lasting] for sex, age in groups])
    kinds = np.array([_kinds(conditions) for conditions in active])
    position = {code.code: i for i, code in enumerate((*states, *lasting))}
    triggers = np.zeros((len(drugs), len(position)), dtype=bool)
    for row, treatment in enumerate(courses.TREATMENTS):
        triggers[row, [position[code] for code in treatment.after]] = True
    static = (*(f"{SEX}:{sex}" for sex in SEXES), *(f"{AGE}:{age}" for age in AGES))
    clinical = (*states, *lasting, *drugs, *screenings)
    named = [
        (f"{'RXNORM' if code in catalogue.DRUGS else 'ICD10CM'}:{code.code}", code.description) for code in clinical
    ]
    codes = (*static, *courses.VISITS, *(code for code, _ in named))
    weights = np.array([catalogue.POPULATION[sex][age] for sex, age in groups])
    return SimulatedHistories(
        vocabulary=Vocabulary(codes, names_for(codes, dict(named))),
        group_weights=weights / weights.sum(),
        static=Records.from_sets([(SEXES.index(sex), len(SEXES) + age) for sex, age in groups], len(codes)),
        start=np.array([[_start(stage, age) for stage in stages] for _, age in groups]),
        move=np.array([_moves(stages, active, age) for _, age in groups]),
        kinds=kinds,
        present=_present(states, base, active),
        gaps=_gaps(active),
        end=_ends(active),
        lasting_start=np.minimum(own * LASTING_START, 0.5),
        lasting_onset=own * LASTING_ONSET,
        lasting_seen=np.array(list(courses.LASTING.values())) / 100,
        triggers=triggers,
        drug_start=np.array([treatment.percent for treatment in courses.TREATMENTS]) / 100,
        drug_continued=courses.CONTINUED / 100,
        screening_every=np.array([screening.every for screening in courses.SCREENINGS]),
        screening_done=np.array([_screenings(sex, age) for sex, age in groups]) / 100,
        outpatient=courses.OUTPATIENT,
    )


def _codes() -> tuple[list[Code], list[Code], list[Code], list[Code]]:
    """Rows of the catalogue: codes that follow the state, lasting disorders, drugs after diagnoses, screenings."""
    diagnoses = {code.code: code for code in catalogue.DIAGNOSES}
    drugs = {drug.description: drug for drug in catalogue.DRUGS}
    lasting = [diagnoses[code] for code in courses.LASTING]
    screenings = [diagnoses[screening.code] for screening in courses.SCREENINGS]
    caused = {name for steps in DISEASES for step in steps for name in EFFECTS[step.condition]}
    states = [
        code
        for code in catalogue.DIAGNOSES
        if code not in lasting and code not in screenings and (code.code in caused or code.rate >= RAREST_CODE)
    ]
    treatments = [drugs[treatment.drug] for treatment in courses.TREATMENTS]
    return [*states, *(drugs[name] for name in courses.SHORT_COURSES)], lasting, treatments, screenings


def _rate(code: Code, sex: str, age: int) -> float:
    return code.rate / 100 * catalogue.PROFILES[code.profile][age] * (sex in code.sexes)


def _conditions(stages: Sequence[int]) -> list[str]:
    """What a patient has in whom the diseases have come so far."""
    return [step.condition for steps, stage in zip(DISEASES, stages, strict=True) for step in steps[:stage]]


def _screenings(sex: str, age: int) -> list[float]:
    """Per cent of outpatient visits at which each screening is done when it is due."""
    return [s.percent if age >= (s.women_from if sex == "F" else s.men_from) else 0.0 for s in courses.SCREENINGS]


def _start(stages: Sequence[int], age: int) -> float:
    """P(this state at the first visit)."""
    p = 1.0
    for steps, stage in zip(DISEASES, stages, strict=True):
        for step in steps[:stage]:
            p *= step.start[age] / 100
        if stage < len(steps):
            p *= 1 - steps[stage].start[age] / 100
    return p


def _moves(stages: Sequence[tuple[int, ...]], active: Sequence[Sequence[str]], age: int) -> Floats:
    """P(state at the next visit | state), (S, S): each disease makes one step at most, by itself."""
    move = np.ones((len(stages), 1))
    for disease, steps in enumerate(DISEASES):
        one = np.zeros((len(stages), len(steps) + 1))
        for row, (stage, conditions) in enumerate(zip(stages, active, strict=True)):
            at = stage[disease]
            onward = _hazard(steps[at], conditions, age) if at < len(steps) else 0.0
            back = steps[at - 1].back / 100 if at else 0.0
            one[row, at] = 1 - onward - back
            if onward:
                one[row, at + 1] = onward
            if back:
                one[row, at - 1] = back
        move = (move[:, :, None] * one[:, None, :]).reshape(len(stages), -1)
    return move


def _hazard(step: Step, conditions: Sequence[str], age: int) -> float:
    factor = math.prod(step.faster.get(condition, 1.0) for condition in conditions)
    return min(step.hazard[age] / 100 * factor, 0.5)


def _kinds(conditions: Sequence[str]) -> list[float]:
    inpatient = courses.INPATIENT_PERCENT + sum(courses.BURDENS[name].inpatient for name in conditions)
    return [(100 - inpatient - courses.EMERGENCY_PERCENT) / 100, inpatient / 100, courses.EMERGENCY_PERCENT / 100]


def _present(states: Sequence[Code], base: Floats, active: Sequence[Sequence[str]]) -> Floats:
    """P(code at a visit | group, state, kind), (G, S, K, A): noisy-or of the conditions, times the kind's factor."""
    position = {name: i for i, code in enumerate(states) for name in (code.code, code.description)}
    absent = np.ones((len(active), len(states)))
    for row, conditions in enumerate(active):
        for condition in conditions:
            for name, percent in EFFECTS[condition].items():
                if name in position:
                    absent[row, position[name]] *= 1 - percent / 100
    possible = np.array([[_possible(code, sex, age) for code in states] for sex in SEXES for age in range(len(AGES))])
    p = (1 - (1 - base)[:, None] * absent) * possible[:, None]  # (G, S, A)
    factor = np.array([courses.BY_VISIT.get(code.code, (1.0, 1.0, 1.0)) for code in states]).T  # (K, A)
    present: Floats = np.minimum(p[:, :, None] * factor, HIGHEST_PROBABILITY)
    return present


def _possible(code: Code, sex: str, age: int) -> bool:
    return sex in code.sexes and catalogue.PROFILES[code.profile][age] > 0


def _gaps(active: Sequence[Sequence[str]]) -> Floats:
    """P(days to the next visit | state, kind of this one), (S, K, D)."""
    days = np.zeros((len(courses.GAP_PERCENT), courses.GAP_DAYS[-1][1] + 1))
    for row, shares in zip(days, courses.GAP_PERCENT, strict=True):
        for (first, last), share in zip(courses.GAP_DAYS, shares, strict=True):
            row[first : last + 1] = share / 100 / (last - first + 1)
    points = np.array([sum(courses.BURDENS[name].points for name in conditions) for conditions in active])
    more = np.zeros(len(courses.VISITS), np.int64)
    more[courses.INPATIENT] = courses.INPATIENT_POINTS
    return days[np.minimum(points[:, None] + more, len(days) - 1)]


def _ends(active: Sequence[Sequence[str]]) -> Floats:
    """P(no visit after so many), (M + 1, G, S): nobody leaves before the fewest, nobody stays beyond the most."""
    deaths = np.array([sum(courses.BURDENS[name].death for name in conditions) for conditions in active])
    by_age = courses.LEAVING_PERCENT + np.array(courses.DEATH_PERCENT * len(SEXES))
    end = np.zeros((courses.MOST_VISITS + 1, len(by_age), len(active)))
    end[courses.FEWEST_VISITS :] = (by_age[:, None] + deaths) / 100
    end[courses.MOST_VISITS] = 1
    return end
