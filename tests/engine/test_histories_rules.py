"""Rules between codes over time: within a visit, and between who a patient is and every visit."""

from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save

from ehr.conditions import Condition
from ehr.errors import ConditionError
from ehr.groups import Group, Groups
from ehr.histories import Histories
from ehr.history_conditions import HistoryCondition
from ehr.records import Records, indptr_of
from ehr.rules import Rules
from worker.engine.generators.halo import HaloGenerator
from worker.engine.generators.markov import MarkovGenerator
from worker.engine.generators.protocol import State
from worker.engine.generators.visits import VisitsGenerator
from worker.engine.histories.protocol import HistoryFit, HistoryGenerator, HistoryRequest

# F and M are static. A birth (O) is a woman's, prostates (P) are men's; C and D are never at one visit, E comes with C
# only, and D was never seen in women.
F, M, O, P, C, D, E = range(7)  # noqa: E741
STATIC_GROUPS = Groups(7, (Group("SEX:*", (F, M), "exactly one"),))
RULES = Rules.of(STATIC_GROUPS, [(C, D), (F, D)], [(E, C)], [(O, M), (P, F)])
SETTINGS = {
    "timesteps": 20,
    "denoiser": {"width": 16, "blocks": 1},
    "state": 8,
    "steps": 6,
    "training": {"epochs": 1, "batch_size": 200},
}
HALO = {"width": 16, "heads": 2, "layers": 1, "epochs": 1}


@cache
def patients(n: int = 400) -> Histories:
    """Patients who keep the rules, at one to four visits."""
    rng = np.random.default_rng(0)
    counts, sex = rng.integers(1, 5, n), rng.integers(0, 2, n)
    visits = []
    for patient in np.repeat(np.arange(n), counts):
        own = O if sex[patient] == F else P
        codes = [code for code, p in ((own, 0.4), (C, 0.4)) if rng.random() < p]
        if C in codes:
            codes += [E] if rng.random() < 0.5 else []
        elif sex[patient] == M and rng.random() < 0.5:
            codes += [D]
        visits.append(codes)
    gaps = rng.integers(1, 50, len(visits)).astype(np.int32)
    offsets = indptr_of(counts)
    gaps[offsets[:-1]] = 0
    return Histories(Records.from_sets(visits, 7), offsets, gaps, Records.from_sets([[s] for s in sex], 7))


@cache
def model(name: str, rules: bool = True) -> HistoryGenerator:
    """A model that has hardly learned anything: what it keeps, it keeps by rule."""
    made = {"visits": (VisitsGenerator, SETTINGS), "halo": (HaloGenerator, HALO), "markov": (MarkovGenerator, {})}
    generator, settings = made[name]
    kept = RULES if rules else None
    return generator.fit(HistoryFit(patients(), None, settings, static_groups=STATIC_GROUPS, rules=kept))


def broken(histories: Histories) -> NDArray[np.bool_]:
    return RULES.broken_by(histories.visits_with_static())


def test_the_patients_keep_the_rules() -> None:
    assert not broken(patients()).any()


@pytest.mark.parametrize("name", ["visits", "halo", "markov"])
def test_no_visit_breaks_a_rule(name: str) -> None:
    drawn = model(name).sample(HistoryRequest(1500, seed=1))
    assert len(drawn) == 1500 and not broken(drawn).any()
    assert not STATIC_GROUPS.broken_by(drawn.static).any()
    assert np.all(drawn.visits.prevalence()[[O, P, C, D, E]] > 0)  # and every code is still drawn
    assert broken(model(name, rules=False).sample(HistoryRequest(1500, seed=1))).any()


ASKED = {
    "ever a birth": HistoryCondition(7, ever=(frozenset([O]),)),
    "a birth before another code": HistoryCondition(7, before=((frozenset([O]), frozenset([C])),)),
    "ever one of either sex": HistoryCondition(7, ever=(frozenset([O, P]),), never=frozenset([C])),
    "men": HistoryCondition(7, start=Condition.of(7, [M]), ever=(frozenset([D]),)),
    "at the second visit": HistoryCondition(7, at_visit=((2, Condition.of(7, [E])),)),
}


@pytest.mark.parametrize("name", ASKED)
def test_conditions_are_met_by_patients_who_keep_the_rules(name: str) -> None:
    drawn = model("visits").sample(HistoryRequest(64, seed=2, condition=ASKED[name]))
    assert ASKED[name].satisfied_by(drawn).all() and not broken(drawn).any()


def test_a_certain_rule_refuses_and_a_found_one_gives_way() -> None:
    man = Condition.of(7, [M])
    with pytest.raises(ConditionError, match="rule of the data"):
        model("visits").sample(HistoryRequest(1, condition=HistoryCondition(7, start=man, ever=(frozenset([O]),))))
    asked = HistoryCondition(7, start=Condition.of(7, [F]), ever=(frozenset([D]),))
    drawn = model("visits").sample(HistoryRequest(32, seed=3, condition=asked))
    assert asked.satisfied_by(drawn).all()
    certain = Rules.of(STATIC_GROUPS, certain=RULES.certain)
    assert not certain.broken_by(drawn.visits_with_static()).any()
    both = HistoryCondition(7, at_visit=((1, Condition.of(7, [C, D])),))
    assert both.satisfied_by(model("visits").sample(HistoryRequest(8, condition=both))).all()


@pytest.mark.parametrize("name", ["visits", "halo", "markov"])
def test_rules_are_saved_with_the_model(name: str) -> None:
    state = model(name).state()
    tensors = load(save({name: value.contiguous() for name, value in state.tensors.items()}))
    again = type(model(name)).from_state(State(tensors, state.config))
    drawn, before = (each.sample(HistoryRequest(300, seed=5)) for each in (again, model(name)))
    assert np.array_equal(drawn.visits.indices, before.visits.indices) and not broken(drawn).any()
    assert torch.equal(torch.from_numpy(drawn.offsets), torch.from_numpy(before.offsets))


@pytest.mark.parametrize("name", ["visits", "halo", "markov"])
def test_a_description_can_read_the_rules_of_codes(name: str) -> None:
    config = model(name).state().config
    told = Rules.from_json(config["visit_rules"], Groups.from_json(config["visit_groups"], range(7)))
    assert told.groups.groups == STATIC_GROUPS.groups and told.as_json() == RULES.as_json()
