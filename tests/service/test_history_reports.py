"""Reports on patients over time: the family `time`, conditions over time, pictures, and what others may read."""

import html
import re
from dataclasses import replace
from functools import cache

import jsonschema
import numpy as np
import pytest

from app.pages import report_page
from app.shareable import shareable_report
from ehr.disclosure import SMALLEST_SHOWN
from ehr.groups import Groups
from ehr.histories import Histories
from ehr.history_conditions import AskedHistoryCondition, AskedOrder
from ehr.report_schema import report_schema
from ehr.reports import AskedOverTime, FamilyReport, Report
from ehr.rules import NO_PAIRS, Rules
from ehr.shareable import CohortDescription
from tests.api.test_reports import at
from tests.reporting import IDS, small_report
from worker.engine.metrics.time import TIME
from worker.engine.metrics.time.yardsticks import all_visits, shuffled
from worker.engine.population import simulate_histories
from worker.evaluation import Subject, courses
from worker.evaluation import time as time_family
from worker.evaluation.conditional import conditional_plan
from worker.evaluation.courses import CourseTally, courses_beside
from worker.evaluation.description import Tally
from worker.evaluation.fidelity import fidelity_plan
from worker.evaluation.pictures import pictures_and_tables
from worker.evaluation.plan import FamilyPlan
from worker.evaluation.plausible import plausible_plan
from worker.evaluation.privacy import privacy_plan, slice_privacy_plan
from worker.evaluation.subject import OverTime, Stopwatch
from worker.evaluation.time import looked_at, time_plan

ASKED = AskedHistoryCondition(before=[AskedOrder(first="ICD10CM:E11*", then="ICD10CM:N18*")])


@cache
def sets() -> dict[str, Histories]:
    whole = simulate_histories(1_300, 5)[0]
    ends = np.split(np.arange(1_300), [400, 500, 900])
    return dict(zip(("train", "holdout", "test", "others"), (whole.take(rows) for rows in ends), strict=True))


VOCABULARY = simulate_histories(1, 0)[1]


def subject(cohort: Histories, asked: AskedHistoryCondition | None = None, **changes: object) -> Subject:
    real = {name: sets()[name] for name in ("train", "holdout", "test")}
    said = None if asked is None else AskedOverTime(condition=asked, support_in_training=77)
    found = OverTime(cohort, **real, asked=said, condition=None if asked is None else asked.resolve(VOCABULARY))
    records = {name: each.ever() for name, each in real.items()}
    return replace(Subject(cohort.ever(), VOCABULARY, **records, ids=IDS, over_time=found), **changes)  # type: ignore[arg-type]


def measured(plan: FamilyPlan | None, *names: str) -> FamilyReport:
    """All of the plan, or the named steps: a whole family takes seconds."""
    assert plan is not None
    chosen = replace(plan, steps=[step for step in plan.steps if not names or step[0] in names])
    return chosen.carry_out(Stopwatch(lambda name, done: None))


@cache
def real_time() -> FamilyReport:
    """Real patients as the cohort: nothing can be better. A hundred of each are enough to be measured."""
    few = {name: sets()[name].take(range(100)) for name in ("others", "train", "holdout", "test")}
    made = OverTime(few["others"], few["train"], few["holdout"], few["test"])
    return measured(time_plan(replace(subject(few["others"]), over_time=made), np.random.default_rng(0)))


def test_every_metric_of_time_stands_beside_its_yardsticks() -> None:
    family = real_time()
    assert list(family.metrics) == [metric.name for metric in TIME] and family.absent is None
    for metric in family.metrics.values():
        assert set(metric.figures) == {"value", "floor", "markov", "shuffled"} and metric.title and metric.meaning
        assert metric.verdict is None or metric.verdict.level != "fail", metric.name
    assert "5,000 random patients" in family.against


def test_shuffled_visits_are_found_out() -> None:
    cohort = shuffled(sets()["others"], np.random.default_rng(1))
    family = measured(time_plan(subject(cohort), np.random.default_rng(0)), "visits_ks", "recurrence")
    assert family.verdict is not None and family.verdict.level == "fail"
    levels = {name: metric.verdict.level for name, metric in family.metrics.items() if metric.verdict is not None}
    assert levels["visits_ks"] != "fail" and levels["recurrence"] == "fail"


def test_records_without_time_have_no_such_family() -> None:
    assert time_plan(replace(subject(sets()["others"]), over_time=None), np.random.default_rng(0)) is None
    assert small_report().time is None and "time" not in small_report().model_dump(mode="json")


def test_what_is_measured_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By patients, and by pairs of codes for whoever has thousands of visits."""
    monkeypatch.setattr(time_family, "MOST_PATIENTS", 300)
    assert len(looked_at(sets()["train"], np.random.default_rng(0))) == 300
    monkeypatch.setattr(time_family, "MOST_PAIRS", 200_000)
    assert 20 <= len(looked_at(sets()["train"], np.random.default_rng(0))) < 200


def test_patients_with_one_visit_are_measured_as_far_as_they_can_be() -> None:
    rows = sets()["others"].offsets[:-1]
    once = Histories(
        sets()["others"].visits.take(rows), np.arange(401), np.zeros(400, np.int32), sets()["others"].static
    )
    made = subject(once)
    found = replace(made, over_time=OverTime(once, once, once, once))
    family = measured(time_plan(found, np.random.default_rng(0)), "gap_ks", "r2_code_visit")
    assert family.metrics["gap_ks"].figures["value"].absent == "nobody has a second visit"
    assert family.metrics["r2_code_visit"].figures["value"].value == 1


# --- conditions over time ---


def test_a_conditioned_cohort_is_compared_with_patients_who_are_so() -> None:
    everyone = sets()["others"]
    condition = ASKED.resolve(VOCABULARY)
    cohort = everyone.take(np.flatnonzero(condition.satisfied_by(everyone)))
    made = subject(cohort, ASKED)
    assert made.is_conditioned and len(made.inside("cohort")) == len(cohort)
    assert len(made.inside("test")) == int(condition.satisfied_by(sets()["test"]).sum()) < SMALLEST_FOR_SLICE
    rng = np.random.default_rng(0)
    for plan in (time_plan(made, rng), fidelity_plan(made, rng)):
        family = measured(plan)  # there are not enough of them: said, and not compared with everyone instead
        assert family.metrics == {} and "satisfy the condition" in (family.absent or "")
    conditional = measured(conditional_plan(made, lambda: None, rng))
    assert conditional.metrics["attainment"].figures["value"].value == 1
    mixed = subject(everyone, ASKED)
    share = measured(conditional_plan(mixed, lambda: None, rng)).metrics["attainment"].figures["value"].value
    assert share == len(cohort) / len(everyone)


SMALLEST_FOR_SLICE = 200


def test_with_enough_such_patients_courses_are_compared() -> None:
    asked = AskedHistoryCondition(fewest_visits=15)
    condition = asked.resolve(VOCABULARY)
    cohort = sets()["others"].take(np.flatnonzero(condition.satisfied_by(sets()["others"])))
    family = measured(time_plan(subject(cohort, asked), np.random.default_rng(0)), "visits_ks")
    assert family.absent is None and "who satisfy the condition" in family.against
    visits = family.metrics["visits_ks"]
    assert visits.verdict is not None and visits.verdict.level != "fail"
    everyone = measured(time_plan(subject(cohort), np.random.default_rng(0)), "visits_ks").metrics["visits_ks"]
    assert everyone.verdict is not None and everyone.verdict.level == "fail"  # which would be wrong to say of it


def test_rules_are_held_against_visits_with_who_their_patient_is() -> None:
    """Men who are delivered, at one visit each; unless that is what was asked for."""
    others = sets()["others"]
    man, code = VOCABULARY.positions["SEX:M"], int(others.visits.indices[0])
    groups = Groups(len(VOCABULARY), ())
    rules = Rules(groups, np.array([[man, code]]), NO_PAIRS, NO_PAIRS)
    broken = others.visits_with_static()
    share = float((broken.having_any([man]) & broken.having_any([code])).mean())
    made = subject(others, rules=rules, groups=groups)
    family = measured(plausible_plan(made, np.random.default_rng(0)), "rules_broken")
    assert family.metrics["rules_broken"].figures["value"].value == pytest.approx(share) and share > 0
    asked = AskedHistoryCondition.model_validate({"start": {"all_of": ["SEX:M"]}, "ever": [VOCABULARY.codes[code]]})
    asked_for = measured(plausible_plan(subject(others, asked, rules=rules), np.random.default_rng(0)), "rules_broken")
    assert asked_for.metrics["rules_broken"].figures["value"].value == 0


# --- attacks ---


def test_attacks_see_all_visits_of_a_patient() -> None:
    made = subject(sets()["train"])
    assert made.attacked("cohort").n_codes == 5 * len(VOCABULARY)
    assert np.array_equal(made.attacked("test").indices, all_visits(sets()["test"]).indices)
    privacy = measured(privacy_plan(made, np.random.default_rng(0)), "exact_matches")
    assert privacy.verdict is not None and privacy.verdict.level == "fail"  # the cohort is the training patients
    conditioned = subject(sets()["train"], AskedHistoryCondition(fewest_visits=15))
    inside = conditioned.attacked("train", in_slice=True)
    assert len(inside) == int((sets()["train"].visit_counts() >= 15).sum()) < len(sets()["train"])
    assert slice_privacy_plan(conditioned, np.random.default_rng(0)) is not None


# --- pictures ---


@cache
def courses_of_others() -> courses.CoursesBeside:
    return courses_beside(sets()["others"], sets()["test"], VOCABULARY)


def test_pictures_are_of_the_patients() -> None:
    shown, cohort = courses_of_others(), sets()["others"]
    assert len(shown.timelines) == 6 and shown.timelines[0].days == cohort.days()[: cohort.offsets[1]].tolist()
    first = shown.timelines[0]
    assert first.visits == cohort.visit_counts()[0] and 1 <= len(first.codes) <= 6
    code = first.codes[0]
    at_visits = np.flatnonzero(cohort.take([0]).visits.having_any([VOCABULARY.positions[code.code]]))
    assert code.days == [first.days[i] for i in at_visits] and not code.code.startswith("VISIT:")
    for bins in (shown.gaps, shown.visits):
        assert sum(each.real for each in bins) == pytest.approx(1) == pytest.approx(sum(b.synthetic for b in bins))
    assert 1 <= len(shown.onsets) <= 4
    for onset in shown.onsets:
        shares = [point.real for point in onset.points]
        assert shares == sorted(shares) and 0 < shares[0] <= shares[-1] <= 1
    assert len(shown.ages) == 4
    for each in shown.ages:
        assert each.code.startswith("ICD10CM:")
        ages, shares = [point.age for point in each.points], [point.real for point in each.points]
        assert ages == sorted(ages) and shares == sorted(shares) and shares[-1] <= 1
        having = int(sets()["test"].ever().having_any([VOCABULARY.positions[each.code]]).sum())
        steps = np.diff([0, *(round(share * having) for share in shares), having])
        assert ((steps >= SMALLEST_SHOWN) | (steps == 0)).all()


def test_no_bin_is_about_few_real_patients() -> None:
    """A real patient with a gap of ten years is in a bin with at least ten others."""
    real = sets()["test"]
    gaps = real.gaps.copy()
    gaps[real.offsets[0] + 1] = 3_650
    odd = Histories(real.visits, real.offsets, gaps, real.static)
    shown = courses_beside(sets()["others"], odd, VOCABULARY)
    for each in shown.gaps:
        within = (gaps >= each.first) & (gaps <= (each.last or 10**6))
        assert len(set(odd.patients()[within].tolist())) >= SMALLEST_SHOWN
    assert shown.gaps[-1].last is None
    few = courses_beside(sets()["others"], real.take(range(50)), VOCABULARY)
    assert few.timelines and not few.gaps and not few.visits and not few.onsets and not few.ages


def over_time_report(evil: str = "ICD10CM:E11") -> Report:
    """A whole report whose other families are those of another cohort."""
    drawn = courses_of_others()
    timelines = [each.model_copy(update={"static": [evil]}) for each in drawn.timelines]
    shown = drawn.model_copy(update={"timelines": timelines})
    said = AskedOverTime(condition=AskedHistoryCondition(ever=[evil], fewest_visits=3))
    pictures = small_report().pictures.model_copy(update={"courses": shown})
    return small_report().model_copy(update={"time": real_time(), "pictures": pictures, "history": said})


def test_the_report_follows_its_schema_and_its_page_shows_it() -> None:
    report = over_time_report()
    body = report.model_dump(mode="json")
    jsonschema.validate(body, report_schema(), cls=jsonschema.Draft202012Validator)
    assert Report.model_validate(body) == report and "time" in report.families
    page = report_page(report)
    assert "Time: do patients&#39; courses look real?" in page and "visits shuffled" in page
    assert "ever ICD10CM:E11" in page and "at least 3 visits" in page and "Synthetic patients" in page
    assert page.count("<svg") >= small_report_pictures() + 1 + 2 + len(courses_of_others().onsets) + 4
    assert "Age at onset of" in page
    for path, value in re.findall(r'<data data-path="([^"]+)" value="([^"]+)">', page):
        assert at(body, html.unescape(path)) == float(value)
    assert "pictures.courses.gaps.0.real" in page
    assert "<script" not in report_page(over_time_report("<script>alert(1)</script>"))


def small_report_pictures() -> int:
    return report_page(small_report()).count("<svg")


# --- what everyone may read ---


def test_a_description_is_made_block_by_block_of_synthetic_patients_alone() -> None:
    cohort = sets()["others"]
    whole, in_parts = CourseTally(VOCABULARY), CourseTally(VOCABULARY)
    whole.add(cohort)
    for rows in np.array_split(np.arange(len(cohort)), 3):
        in_parts.add(cohort.take(rows))
    described = whole.described()
    assert described == in_parts.described()
    assert described.visits_per_patient == pytest.approx(cohort.visit_counts().mean())
    assert sum(each.synthetic for each in described.gaps) == pytest.approx(1)
    assert "real" not in described.model_dump_json()
    tally = Tally(VOCABULARY)
    tally.add(cohort.ever())
    side = tally.described(None).model_copy(update={"courses": described})
    ids = {name: IDS[name] for name in ("cohort_id", "model_id", "dataset_id")}
    description = CohortDescription(**ids, records=len(cohort), codes=len(VOCABULARY), history=ASKED, synthetic=side)
    report = shareable_report(description, {})
    body = report.model_dump(mode="json")
    jsonschema.validate(body, report_schema(), cls=jsonschema.Draft202012Validator)
    page = report_page(report)
    assert "Visits per patient" in page and "ICD10CM:E11* before ICD10CM:N18*" in page
    assert "Synthetic patients." in page and "synthetic.courses.gaps.0.synthetic" in page


def test_pictures_of_a_report_come_with_its_tables() -> None:
    images, tables = pictures_and_tables(subject(sets()["others"]), None)
    assert images.courses is not None and images.courses.gaps and tables.most_off
    images, _ = pictures_and_tables(subject(sets()["others"], ASKED), None)
    assert images.courses is not None and images.courses.timelines and not images.courses.gaps
    assert {bar.code for bar in images.guided} <= {
        c for c in VOCABULARY.codes if c[:11] in ("ICD10CM:E11", "ICD10CM:N18")
    }


def test_a_cohort_without_patients_has_no_courses() -> None:
    nobody = sets()["others"].take([])
    assert courses_beside(nobody, sets()["test"], VOCABULARY).timelines == []
    assert CourseTally(VOCABULARY).described().gaps == []
