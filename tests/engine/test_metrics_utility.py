"""Utility: areas against scikit-learn, the classifier as metrics.md defines it, and what it is compared with."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from ehr.records import Records
from tests.reporting import real_sets, vocabulary
from worker.engine.independent import independent_records
from worker.engine.metrics import classifier
from worker.engine.metrics.auprc import AUPRC, auprc
from worker.engine.metrics.auroc import auroc
from worker.engine.metrics.classifier import SETTINGS, TREES, Label, trained_scores
from worker.engine.metrics.ranking import Ranking
from worker.engine.metrics.utility import (
    AUGMENTED,
    NO_MORE_REAL,
    UTILITY,
    Fit,
    augment_label,
    measurable,
    predict_label,
)


@pytest.fixture(scope="module")
def diabetes() -> Label:
    return Label("diabetes", (vocabulary().positions["ICD10CM:E11"],))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_areas_are_sklearns(ties: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.random(400) < 0.2
    scores = truth + rng.normal(size=400)
    if ties:
        scores = np.round(scores, 0)
    ranking = Ranking.of(truth, scores)
    again = rng.integers(0, 400, 320)  # a bootstrap has some records twice and others not at all
    for rows in (np.arange(400), again):
        curve = ranking.curve(rows)
        assert auroc(curve) == pytest.approx(roc_auc_score(truth[rows], scores[rows]))
        assert auprc(curve) == pytest.approx(average_precision_score(truth[rows], scores[rows]))


def test_the_classifier_is_the_one_metrics_md_defines() -> None:
    wanted = {"learning_rate": 0.05, "max_depth": 10, "lambda_l1": 0.5, "lambda_l2": 0.5}
    assert {name: SETTINGS[name] for name in wanted} == wanted and TREES == 1000
    assert SETTINGS["scale_pos_weight"] == 1 and SETTINGS["min_data_in_bin"] == 128


def test_the_classifier_learns_from_the_other_codes_only() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.random(3000) < 0.4
    noise = rng.random((3000, 5)) < 0.3
    x = np.column_stack([hidden, hidden ^ (rng.random(3000) < 0.1), noise])  # code 1 is code 0 with errors
    train, test = Records.from_dense(x[:2000]), Records.from_dense(x[2000:])
    alone = trained_scores(train, test, Label("0", (0,)))
    truth = hidden[2000:]
    assert 0.85 < roc_auc_score(truth, alone) < 0.95  # 1 would mean that the label itself was a feature
    without = trained_scores(train, test, Label("0 or 1", (0, 1)))
    assert abs(roc_auc_score(truth | x[2000:, 1], without) - 0.5) < 0.1  # its codes are all gone: nothing to learn from


def test_leaving_out_codes_too_rare_for_a_leaf_changes_no_score(
    monkeypatch: pytest.MonkeyPatch, diabetes: Label
) -> None:
    real = real_sets()
    monkeypatch.setattr(classifier, "TREES", 100)
    fast = trained_scores(real["train"], real["test"], diabetes)
    assert len(classifier.usable_codes(real["train"])) < len(vocabulary())
    monkeypatch.setattr(classifier, "usable_codes", lambda train: np.arange(train.n_codes))
    assert np.array_equal(fast, trained_scores(real["train"], real["test"], diabetes))


def test_real_records_are_as_good_as_real_and_independent_ones_worse(diabetes: Label) -> None:
    real = real_sets()
    rng = np.random.default_rng(0)
    other_real = predict_label(diabetes, real["others"], real["test"], real["train"], rng)
    for metric in UTILITY:
        verdict = other_real.verdict(metric)
        assert verdict is not None and verdict.level == "good" and "diabetes" in verdict.reason
    independent = independent_records(real["train"].prevalence(), 2000, rng)
    worse = predict_label(diabetes, independent, real["test"], real["train"], rng)
    value, reference = worse.measured["auroc"]["value"], worse.measured["auroc"]["real"]
    assert value.value is not None and reference.value is not None and value.high is not None
    assert value.high < reference.value and value.value < 0.6  # there is nothing to learn from
    verdict = worse.verdict(UTILITY[0])
    assert verdict is not None and verdict.level == "fail"


def _as_good_as_told(real: float, synthetic: float) -> Fit:
    """A stand-in for the classifier: how well it separates the classes depends on whether the first record has code 1.
    Two that are equally good are the same."""

    def fit(train: Records, test: Records, label: Label) -> NDArray[np.float64]:
        strength = synthetic if train.to_dense(np.uint8)[0, 1] else real
        noise = np.random.default_rng(int(10 * strength)).normal(size=len(test))
        return noise + strength * label.of(test)

    return fit


@pytest.mark.parametrize(
    ("patients", "real", "synthetic", "auprc", "words"),
    [
        (20_000, 1.5, 1.5, "good", "about as well as"),
        (20_000, 1.5, 1.3, "caution", "somewhat"),
        (20_000, 1.5, 0.4, "fail", "much"),
        (150, 1.5, 0.9, "caution", "too few"),  # far below, and the test records cannot tell whether it is chance
        (150, 1.5, 1.5, "good", "about as well as"),  # the same scores: nothing can be lost however few they are
    ],
)
def test_the_verdict_is_on_the_difference(patients: int, real: float, synthetic: float, auprc: str, words: str) -> None:
    rng = np.random.default_rng(0)
    test = Records.from_dense(rng.random((patients, 2)) < 0.1)
    half = np.arange(200) % 2
    train = Records.from_dense(np.column_stack([half, np.zeros(200)]).astype(np.uint8))
    synth = Records.from_dense(np.column_stack([half, np.ones(200)]).astype(np.uint8))
    result = predict_label(Label("gout", (0,)), synth, test, train, rng, _as_good_as_told(real, synthetic))
    verdict = result.verdict(AUPRC)
    assert verdict is not None and verdict.level == auprc and words in verdict.reason and "gout" in verdict.reason
    measured = result.measured["auprc"]
    shortfall, value, reference = (measured[role] for role in ("shortfall", "value", "real"))
    assert shortfall.value is not None and value.value is not None and reference.value is not None
    assert shortfall.value == pytest.approx(reference.value - value.value)


def test_a_disease_that_real_records_do_not_teach_is_not_judged() -> None:
    rng = np.random.default_rng(0)
    test = Records.from_dense(rng.random((500, 2)) < 0.2)
    train = Records.from_dense((np.arange(400).reshape(200, 2) // 2 % 2).astype(np.uint8))
    result = predict_label(Label("gout", (0,)), train, test, train, rng, _as_good_as_told(0.0, 0.0))
    assert [result.verdict(metric) for metric in UTILITY] == [None, None]
    assert "no better than chance" in (result.measured["auprc"]["shortfall"].note or "")


def _by_size(train: Records, test: Records, label: Label) -> NDArray[np.float64]:
    """A stand-in for the classifier that tells how many records it was given."""
    seen.append(len(train))
    return np.arange(len(test), dtype=np.float64)


seen: list[int] = []


def test_augmentation_adds_as_many_records_to_the_same_real_ones(diabetes: Label) -> None:
    real = real_sets()
    seen.clear()
    train = Records.concatenate([real["train"], real["train"], real["train"]])
    arms = {"synthetic": Records.concatenate([real["others"]] * 4), "guided": None}
    result = augment_label(diabetes, train, real["test"], arms, np.random.default_rng(0), _by_size)
    assert sorted(seen) == [AUGMENTED, 2 * AUGMENTED, 2 * AUGMENTED]
    assert (result.start, result.added) == (AUGMENTED, {"real + real": AUGMENTED, "synthetic": AUGMENTED})
    assert list(result.arms) == ["real", "real + real", "synthetic", "guided"]
    assert result.arms["guided"]["auroc"].absent is not None and result.arms["real"]["auroc"].absent is None


def test_augmentation_adds_no_real_records_where_there_are_none(diabetes: Label) -> None:
    """A small training set is used up by what every arm starts from: the same model twice is no comparison."""
    real = real_sets()
    arms = {"synthetic": real["others"]}
    result = augment_label(diabetes, real["train"], real["test"], arms, np.random.default_rng(0), _by_size)
    assert result.arms["real + real"]["auroc"].absent == NO_MORE_REAL
    assert (result.start, result.added) == (len(real["train"]), {"synthetic": len(real["others"])})


def test_one_class_is_absent_with_its_reason(diabetes: Label) -> None:
    real = real_sets()
    nobody = Records.from_sets([{0}] * 1500, len(vocabulary()))
    reason = measurable(diabetes, [nobody, real["test"]])
    assert reason is not None and "fewer than 11" in reason
    result = predict_label(diabetes, nobody, real["test"], real["train"], np.random.default_rng(0))
    assert result.measured["auroc"]["value"].absent == reason
    for metric in UTILITY:  # real records teach it: a cohort that cannot has lost it, unless it is too small to have it
        lost, tiny = (replace(result, expected=n).verdict(metric) for n in (22.0, 21.9))
        assert lost is not None and lost.level == "fail" and diabetes.name in lost.reason
        assert tiny is not None and tiny.level == "caution"
    untaught = {"auroc": {role: result.measured["auroc"]["value"] for role in ("value", "real", "shortfall")}}
    assert replace(result, measured=untaught).verdict(UTILITY[0]) is None


def test_a_machine_without_openmp_is_told_so(monkeypatch: pytest.MonkeyPatch, diabetes: Label) -> None:
    import builtins

    plain_import = builtins.__import__

    def broken(name: str, *args: object, **kwargs: object) -> object:
        if name == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file")
        return plain_import(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(classifier.ClassifierError, match="libgomp1"):
        trained_scores(real_sets()["train"], real_sets()["test"], diabetes)
