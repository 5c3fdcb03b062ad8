"""The simulated visits of benchmarks.shapes have the structure that they are there for."""

from functools import cache

import numpy as np

from benchmarks._structured import DRUGS_WITHOUT_DIAGNOSIS, Visits
from ehr.groups import find_groups
from ehr.records import Records
from worker.ingestion.rules import find_rules

VISITS = Visits(20_000)


@cache
def drawn() -> Records:
    return VISITS.draw(0)


def test_visits_have_the_size_that_is_promised() -> None:
    assert len(VISITS.vocabulary) == len(set(VISITS.vocabulary)) == drawn().n_codes >= 2_000
    assert len(drawn()) == 20_000 and 14 < drawn().sizes().mean() < 18


def test_specialty_sex_and_age_are_found_as_groups() -> None:
    groups = find_groups(drawn(), VISITS.vocabulary)
    found = {group.name: (group.rule, len(group.codes)) for group in groups.groups}
    assert found == {"SPECIALTY:*": ("exactly one", 15), "SEX:*": ("exactly one", 2), "AGE:*": ("exactly one", 10)}


def test_diagnoses_of_one_sex_are_found_as_rules() -> None:
    rules = find_rules(drawn(), VISITS.vocabulary, find_groups(drawn(), VISITS.vocabulary))
    implied = {(VISITS.vocabulary[code], VISITS.vocabulary[other]) for code, other in rules.implies}
    assert {("ICD10CM:N400", "SEX:M"), ("ICD10CM:N800", "SEX:F"), ("SPECIALTY:GYNAECOLOGY", "SEX:F")} <= implied


def test_drugs_come_with_their_diagnoses() -> None:
    links, of_all, seldom = VISITS.world.drugs, drawn().counts(), []
    diagnoses = np.repeat(np.arange(VISITS.diagnoses), np.diff(links.first))
    assert set(np.bincount(links.others, minlength=VISITS.drugs)) == {1, 2, 3}
    for drug in np.argsort(-of_all[VISITS.starts["drugs"] :][: VISITS.drugs])[:20]:
        its = VISITS.starts["diagnoses"] + diagnoses[links.others == drug]
        has = drawn().having_any([VISITS.starts["drugs"] + drug])
        diagnosed = drawn().having_any(its)
        assert has[diagnosed].mean() > 50 * has[~diagnosed].mean()
        seldom.append(1 - diagnosed[has].mean())
    assert 0 < np.mean(seldom) < 2 * DRUGS_WITHOUT_DIAGNOSIS


def test_diagnoses_depend_on_each_other() -> None:
    start, links = VISITS.starts["diagnoses"], VISITS.world.comorbidity
    commonest = int(np.argmax(drawn().counts()[start:][: VISITS.diagnoses]))
    brought = slice(links.first[commonest], links.first[commonest + 1])
    partner = start + links.others[brought][links.chance[brought].argmax()]
    has, with_it = drawn().having_any([partner]), drawn().having_any([start + commonest])
    assert has[with_it].mean() > 3 * has[~with_it].mean()
    same_category = [f"ICD10CM:I20{kind}" for kind in range(4)]
    assert drawn().number_of(VISITS.vocabulary.index(code) for code in same_category).max() == 1


def test_there_is_a_long_tail() -> None:
    counts = drawn().counts()
    assert (counts < len(drawn()) / 1_000).mean() > 0.2 and (counts == 0).mean() < 0.05


def test_a_seed_gives_its_visits() -> None:
    first, again, other = (VISITS.draw(seed, 500) for seed in (3, 3, 4))
    assert np.array_equal(first.indices, again.indices) and np.array_equal(first.indptr, again.indptr)
    assert not np.array_equal(first.indices, other.indices)
