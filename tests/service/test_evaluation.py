"""From a cohort to its report: what is measured, what is told, and what withholds a cohort."""

from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest

from ehr.conditions import Condition
from ehr.errors import DataError, JobCancelledError, UnknownCodeError
from ehr.records import Records
from ehr.report_schema import report_schema
from ehr.reports import Asked, Report
from ehr.vocabulary import Vocabulary
from tests.reporting import copies, real_sets, report_on, small_report, subject, vocabulary
from worker.engine.metrics import FIDELITY
from worker.engine.metrics.attacks import AttackResult
from worker.engine.metrics.privacy import PRIVACY
from worker.engine.metrics.utility import NO_MORE_REAL
from worker.evaluation import ReportPlan, labels_in, privacy
from worker.evaluation.utility import GUIDED, UNGUIDED
from worker.evaluation.verdicts import overall_verdict, privacy_verdict
from worker.tasks.evaluate import translated


@pytest.mark.parametrize("conditioned", [False, True])
def test_a_report_follows_its_schema(conditioned: bool) -> None:
    body = small_report(conditioned).model_dump(mode="json")
    jsonschema.Draft202012Validator.check_schema(report_schema())
    jsonschema.validate(body, report_schema(), cls=jsonschema.Draft202012Validator)
    assert Report.model_validate(body) == small_report(conditioned)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body | {"surprise": 1}, report_schema())


def test_every_metric_is_in_the_report_with_its_yardsticks() -> None:
    report = small_report()
    assert list(report.fidelity.metrics) == [*(m.name for m in FIDELITY), "held_out_elbo"]
    assert list(report.privacy.metrics) == [m.name for m in PRIVACY]
    assert {m.label for m in report.utility.metrics.values()} == {"ICD10CM:E11"}
    for family, roles in (
        ("fidelity", {"value", "floor", "independent"}),
        ("utility", {"value", "real", "shortfall"}),
        ("privacy", {"attack", "control", "baseline", "gain"}),
    ):
        for name, metric in report.families[family].metrics.items():
            assert set(metric.figures) == roles, name
            assert metric.meaning and metric.verdict is not None, name
            for figure in metric.figures.values():
                assert (figure.value is None) == (figure.absent is not None)
                if figure.value is not None:
                    assert figure.low is not None and figure.high is not None
                    assert figure.low <= figure.value <= figure.high
    assert set(report.seconds) >= {m.name for m in (*FIDELITY, *PRIVACY)} | {"utility", "augmentation"}


def test_independent_codes_are_found_out() -> None:
    report = small_report()
    assert report.fidelity.verdict is not None and report.fidelity.verdict.level == "fail"
    assert report.utility.verdict is not None and report.utility.verdict.level == "fail"
    assert report.privacy.verdict is not None and report.privacy.verdict.level == "good"
    assert (
        report.verdict.level == "fail"
        and "Fidelity: " in report.verdict.reason
        and "Utility: " in report.verdict.reason
    )
    assert "learns nothing more from this cohort than from data about other people" in report.privacy.verdict.reason


def test_a_conditioned_cohort_is_compared_with_patients_who_have_it() -> None:
    report = small_report(conditioned=True)
    assert report.conditional is not None and report.slice_privacy is not None
    assert report.conditional.metrics["attainment"].figures["value"].value == 1
    assert "unconditional" in report.conditional.metrics["slice_prevalence_l1"].figures
    assert "satisfy the condition" in report.fidelity.against
    assert list(report.augmentation[0].arms) == ["real", "real + real", UNGUIDED, GUIDED]
    told = report.augmentation[0]
    assert all((areas["auroc"].value is None) == (arm == "real + real") for arm, areas in told.arms.items())
    assert told.arms["real + real"]["auroc"].absent == NO_MORE_REAL
    assert (told.real_records, told.added) == (4000, {UNGUIDED: 1500, GUIDED: 1500})
    (asked,) = (bar for bar in report.pictures.guided if bar.asked)
    assert asked.code == "ICD10CM:E11" and asked.guided == 1 and asked.description == "Type 2 diabetes mellitus"
    assert asked.real is not None and asked.unconditional is not None and asked.unconditional < 0.5
    for metric in PRIVACY:
        attack = report.slice_privacy.metrics[metric.name]
        # 1 in 100 of so few people cannot be told apart
        untold = metric.name == "mia_tpr_at_fpr"
        assert (attack.figures["gain"].value is None) == untold
        assert (attack.verdict is None) == (metric.name == "mia_tpr_at_fpr")
    assert {f"slice {m.name}" for m in PRIVACY} <= set(report.seconds)


def no_utility(**changes: Any) -> dict[str, Any]:
    return {"labels": []} | changes


def test_copies_fail_on_privacy_whatever_their_fidelity() -> None:
    report = report_on(subject(copies(1500), **no_utility()), np.random.default_rng(0))
    verdict = privacy_verdict(report.families)
    assert verdict is not None and verdict.level == "fail"
    assert report.fidelity.verdict is not None and report.fidelity.verdict.level == "good"
    assert report.verdict.level == "fail" and report.verdict.reason.startswith("Privacy:")


def test_records_of_other_people_pass_as_a_whole() -> None:
    report = report_on(subject(real_sets()["others"]), np.random.default_rng(0))
    assert report.verdict.level == "good", report.verdict
    assert "privacy" in report.verdict.reason


def test_a_crash_of_the_attacks_is_a_failed_privacy_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> AttackResult:
        raise KeyError("a patient's code")

    crashing = replace(PRIVACY[2], measure=crash)
    monkeypatch.setattr("worker.engine.metrics.privacy.PRIVACY", (*PRIVACY[:2], crashing, *PRIVACY[3:]))
    report = report_on(subject(real_sets()["others"], **no_utility()), np.random.default_rng(0))
    assert report.privacy.verdict is not None and report.privacy.verdict.level == "fail" and not report.privacy.metrics
    assert report.privacy.absent == "an unexpected KeyError"  # and not its words, which may quote data
    assert report.fidelity.metrics


def test_cancelling_is_no_crash() -> None:
    def cancelled(name: str, _: int) -> None:
        if name == "mir":
            raise JobCancelledError("stop")

    with pytest.raises(JobCancelledError):
        report_on(subject(real_sets()["others"], **no_utility()), np.random.default_rng(0), cancelled)


def test_data_that_must_not_be_attacked_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("attacked")

    monkeypatch.setattr(privacy, "plan_attacks", never)
    for changes, level in (({"attack": False}, "caution"), ({"own_data": False}, None)):
        report = report_on(subject(real_sets()["others"], **no_utility(), **changes), np.random.default_rng(0))
        assert report.privacy.absent is not None and not report.privacy.metrics
        verdict = privacy_verdict(report.families)
        assert (verdict.level if verdict is not None else None) == level
        assert level is not None or "privacy is not judged" in report.verdict.reason


def test_an_attack_that_could_not_be_run_is_no_good_news() -> None:
    """A careful attacker who is wrong about 1 in 100 cannot be played with 60 people who were not in the training."""
    few = real_sets()["holdout"].take(np.arange(60))
    report = report_on(subject(real_sets()["others"], **no_utility(), holdout=few), np.random.default_rng(0))
    assert report.privacy.metrics["mia_tpr_at_fpr"].verdict is None
    assert report.privacy.verdict is not None and report.privacy.verdict.level != "good"


def test_patients_too_few_to_be_attacked_alone_are_no_good_news() -> None:
    rare = vocabulary().positions["ICD10CM:E84"]
    condition = Condition.of(len(vocabulary()), all_of=[rare])
    cohort = real_sets()["others"].to_dense()
    cohort[:, rare] = 1
    asked = Asked(all_of=["ICD10CM:E84"])
    made = subject(Records.from_dense(cohort), **no_utility(), condition=condition, asked=asked)
    report = report_on(made, np.random.default_rng(0))
    assert report.slice_privacy is not None and report.slice_privacy.verdict is not None
    assert report.slice_privacy.verdict.level == "caution" and "too few" in report.slice_privacy.verdict.reason


def test_without_test_records_what_needs_them_is_absent_with_its_reason() -> None:
    none = real_sets()["test"].take(np.arange(0))
    report = report_on(subject(real_sets()["others"], **no_utility(), test=none), np.random.default_rng(0))
    elbo = report.fidelity.metrics["held_out_elbo"].figures["value"]
    assert elbo.value is None and elbo.absent == "there are fewer than 2 test records"


def test_progress_counts_to_the_announced_number() -> None:
    told: list[tuple[str, int]] = []
    made = subject(real_sets()["others"], **no_utility(labels=["ICD10CM:E84"]))  # too rare to be learned
    plan = ReportPlan.of(made, np.random.default_rng(0))
    plan.carry_out(lambda name, done: told.append((name, done)))
    assert [done for _, done in told] == list(range(len(told)))
    assert [name for name, _ in told] == [*(name for name, _ in plan.steps), "pictures"]  # which come after


def test_a_report_is_a_function_of_its_seed() -> None:
    made = subject(real_sets()["others"].take(np.arange(300)), **no_utility())
    a, b = (report_on(made, np.random.default_rng(7)) for _ in range(2))
    assert a.model_copy(update={"seconds": {}}) == b.model_copy(update={"seconds": {}})


def test_default_labels_are_those_the_data_has() -> None:
    names = [label.name for label in labels_in(vocabulary())]
    assert "diabetes" in names and "osteoarthritis" in names
    nine = Vocabulary(("ICD9DX:25000", "ICD9DX:25001", "ICD9DX:4019", "ICD9PX:250"))
    assert [(label.name, label.codes) for label in labels_in(nine)] == [("diabetes", (0, 1))]
    assert labels_in(Vocabulary(("LOINC:1",))) == []
    assert labels_in(nine, ["ICD9DX:250*"])[0].codes == (0, 1)
    with pytest.raises(UnknownCodeError):
        labels_in(nine, ["ICD9DX:999"])


def test_another_vocabulary() -> None:
    cohort = Records.from_sets([{0, 1}, {2}, set()], 3)
    moved, left_out = translated(cohort, Vocabulary(("A:x", "A:y", "A:z")), Vocabulary(("A:z", "A:x")))
    assert [set(moved.indices[moved.indptr[i] : moved.indptr[i + 1]]) for i in range(3)] == [{1}, {0}, set()]
    assert left_out == 1
    with pytest.raises(DataError, match="no code in common"):
        translated(cohort, Vocabulary(("A:x", "A:y", "A:z")), Vocabulary(("B:x",)))


def test_the_worst_family_is_named() -> None:
    families = small_report().families
    like = families["fidelity"].model_copy(update={"verdict": families["privacy"].verdict})
    assert overall_verdict({"privacy": families["privacy"], "fidelity": like}).level == "good"
    # that nobody is betrayed and all have the code does not make them like real patients
    assert overall_verdict({"privacy": families["privacy"]}).level == "caution"
    absent = families["privacy"].model_copy(update={"verdict": None})
    assert overall_verdict({"privacy": absent}).level == "caution"
