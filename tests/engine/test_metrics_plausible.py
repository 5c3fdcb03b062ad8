"""Impossible records are counted, and a classifier tells what is synthetic only where something gives it away."""

import numpy as np
import pytest

from ehr.groups import Groups, find_groups
from ehr.records import Records
from ehr.rules import Rules
from tests.reporting import real_sets, report_on, subject, vocabulary
from worker.engine.independent import independent_records
from worker.engine.metrics.distinguisher import DISTINGUISHER, measure


def test_real_records_cannot_be_told_from_real_ones() -> None:
    real = real_sets()
    found = measure(real["others"], real["test"], real["train"], np.random.default_rng(0))
    assert found.low is not None and found.high is not None and found.low <= 0.5 <= found.high


def test_independent_codes_give_themselves_away() -> None:
    real = real_sets()
    drawn = independent_records(real["train"].prevalence(), 2_000, np.random.default_rng(0))
    found = measure(drawn, real["test"], real["train"], np.random.default_rng(0))
    assert found.low is not None and found.low > 0.6


def test_too_few_records_are_said_to_be() -> None:
    real = real_sets()
    found = measure(real["others"].take(np.arange(100)), real["test"], real["train"], np.random.default_rng(0))
    assert found.absent == "fewer than 300 records of each kind"


@pytest.mark.parametrize("impossible", [0, 40])
def test_the_report_says_how_many_records_are_impossible(impossible: int) -> None:
    codes = vocabulary().codes
    groups = find_groups(real_sets()["train"], codes)
    x = real_sets()["others"].take(np.arange(1_000)).to_dense(np.uint8)
    x[:impossible, [code for code, name in enumerate(codes) if name.startswith("SEX:")]] = 1
    report = report_on(subject(Records.from_dense(x), groups=groups, labels=[]), np.random.default_rng(1))
    assert report.plausible is not None
    broken = report.plausible.metrics["groups_broken"]
    assert broken.figures["value"].value == pytest.approx(impossible / 1_000, abs=0.01)
    assert broken.figures["floor"].value == 0
    assert broken.verdict is not None and broken.verdict.level == ("fail" if impossible else "good")
    assert report.plausible.metrics[DISTINGUISHER.name].figures["value"].value is not None
    assert (report.verdict.level == "fail") == bool(impossible)
    assert [each.codes for each in broken.notable] == ([["SEX:*"]] if impossible else [])


def test_what_breaks_a_rule_and_what_gives_records_away_is_named() -> None:
    codes = list(vocabulary().codes)
    train, others = real_sets()["train"], real_sets()["others"].take(np.arange(1_000))
    apart = Rules.of(Groups(len(codes)), excludes=[(codes.index("SEX:F"), codes.index("SEX:M"))])
    x = others.to_dense(np.uint8)
    x[:40, [codes.index("SEX:F"), codes.index("SEX:M")]] = 1
    counts = np.bincount(train.indices, minlength=len(codes))
    common = max((i for i, code in enumerate(codes) if not code.startswith(("SEX:", "AGE:"))), key=counts.__getitem__)
    x[:, common] = 0  # nobody has the commonest code: that gives them away
    subject_ = subject(Records.from_dense(x), rules=apart, labels=[])
    report = report_on(subject_, np.random.default_rng(1))
    assert report.plausible is not None
    broken, told = (report.plausible.metrics[name] for name in ("rules_broken", DISTINGUISHER.name))
    assert [(each.codes, each.note) for each in broken.notable] == [(["SEX:F", "SEX:M"], "together")]
    assert broken.notable[0].share == pytest.approx(0.04)
    assert told.notable[0].codes == [codes[common]]
    assert {"SEX:F", "SEX:M", codes[common]} <= report.names.keys()
