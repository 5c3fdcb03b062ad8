"""What leaves of lab values: it rests on eleven patients everywhere, and gives the distribution back."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from ehr.disclosure import SMALLEST_SHOWN
from ehr.labs import PARTS, LabCurve, first_number
from tests.formats.labs import KINDS, cohort_of, drawn, measured
from worker.ingestion.lab_curves import decile_of, learned, quantiles

kinds = st.sampled_from(sorted(KINDS))


def by_cut_points(part: int, curve: LabCurve) -> tuple[float, float]:
    """Where a part lies by its cut points alone; an outer one has the number next to its own."""
    scale = 10.0**curve.decimals
    step = max(1 / scale, float(np.spacing(np.float32(np.abs(curve.cuts).max()))))
    cuts = [first_number(cut, scale) for cut in curve.cuts]
    low = first_number(cuts[0] - step, scale) if part == 0 else cuts[part - 1]
    return low, first_number(cuts[-1] + step, scale) if part == PARTS - 1 else cuts[part]


@settings(max_examples=60, deadline=None)
@given(kind=kinds, n=st.integers(110, 700), seed=st.integers(0, 99), most_times=st.sampled_from((1, 4)))
def test_every_cell_holds_eleven_patients(kind: str, n: int, seed: int, most_times: int) -> None:
    """However often patients have the lab. A part that too few have says what its cut points say."""
    lab = measured(kind, n, seed, most_times)
    curve = lab.curve
    part_of = decile_of(lab.values, curve.cuts)
    for part, knots in enumerate(curve.knots):
        values, patients = lab.values[part_of == part], lab.patients[part_of == part]
        if len(np.unique(patients)) < SMALLEST_SHOWN:
            assert knots == () or knots == by_cut_points(part, curve)
            continue
        inner = np.array(knots[1:-1], dtype=np.float32)
        cell = np.searchsorted(inner, values, side="right")
        holders = [len(np.unique(patients[cell == i])) for i in range(len(inner) + 1)]
        assert min(holders) >= SMALLEST_SHOWN
        assert len(curve.shares[part]) == max(len(knots) - 1, 0)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS.keys() - {"long tails", "billions", "billionths"})),
    n=st.integers(110, 900),
    seed=st.integers(0, 99),
    lowest=st.integers(0, 10),
    highest=st.integers(0, 10),
)
def test_how_far_out_the_ten_outermost_patients_lie_changes_nothing(
    kind: str, n: int, seed: int, lowest: int, highest: int
) -> None:
    """On either side. So no extreme leaves, and neither does that of a small group."""
    lab = measured(kind, n, seed)
    order = np.argsort(lab.values)

    def moved_by(far: float) -> LabCurve:
        moved = lab.values.copy()
        moved[order[:lowest]] -= np.float32(far)
        moved[order[n - highest :]] += np.float32(far)
        return learned(moved, lab.patients)

    assert moved_by(1e3) == moved_by(2e6) == moved_by(1e30)


@pytest.mark.parametrize("kind", ["normal", "skewed"])
def test_ten_patients_move_no_cut_point_past_the_knots_beside_it(kind: str) -> None:
    lab, rng = measured(kind, 660), np.random.default_rng(1)
    knots = sorted({knot for part in lab.curve.knots for knot in part})
    for _ in range(40):
        moved = lab.values.copy()
        moved[rng.choice(len(moved), 10, replace=False)] = rng.choice(lab.values) * rng.choice([-1e6, 0, 1, 1e6])
        for before, after in zip(lab.curve.cuts, learned(moved, lab.patients).cuts, strict=True):
            place = int(np.argmin(np.abs(np.array(knots) - before)))
            assert knots[place - 1] <= after <= knots[place + 1]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_numbers_read_as_their_decile_and_are_distributed_as_in_the_source(kind: str) -> None:
    lab = measured(kind, 4_000)
    curve = lab.curve
    part = decile_of(lab.values, curve.cuts)
    numbers = drawn(cohort_of(part, curve)).astype(np.float32)
    assert (decile_of(numbers, curve.cuts) == part).all()
    assert ks_2samp(lab.values, numbers).statistic < 0.02
    assert numbers.min() > lab.values.min() or (lab.values == lab.values.min()).sum() >= SMALLEST_SHOWN
    assert numbers.max() < lab.values.max() or (lab.values == lab.values.max()).sum() >= SMALLEST_SHOWN


@settings(max_examples=40, deadline=None)
@given(kind=kinds, n=st.integers(110, 400), seed=st.integers(0, 99), scale=st.integers(-6, 9))
def test_numbers_read_as_their_decile_at_any_scale(kind: str, n: int, seed: int, scale: int) -> None:
    lab = measured(kind, n, seed)
    values = (lab.values * 10.0**scale).astype(np.float32)
    curve = learned(values, lab.patients)
    part = np.repeat(np.arange(PARTS), 40)
    numbers = drawn(cohort_of(part, curve))
    there = ~np.isnan(numbers)
    assert (decile_of(numbers[there].astype(np.float32), curve.cuts) == part[there]).all()
    assert there[np.isin(part, decile_of(values, curve.cuts))].all()  # a part that has a value has numbers


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_curve_ascends_and_has_the_cut_points_in_it(kind: str) -> None:
    curve = measured(kind, 3_000).curve
    every = [knot for part in curve.knots for knot in part]
    assert every == sorted(every)
    assert all(a < b for part in curve.knots for a, b in pairwise(part))
    assert {first_number(cut, 10.0**curve.decimals) for cut in curve.cuts} <= set(every)
    assert all(share > 0 for part in curve.shares for share in part)


def test_cut_points_count_patients_and_not_their_values() -> None:
    """Somebody who is measured a thousand times would otherwise be nine cut points alone."""
    once, often = np.arange(200, dtype=np.float32), np.linspace(1_000, 1_100, 5_000, dtype=np.float32)
    patients = np.concatenate([np.arange(200), np.full(5_000, 200)])
    assert max(learned(np.concatenate([once, often]), patients).cuts) < 200


def test_quantiles_of_equal_weights_are_those_of_numpy() -> None:
    values = np.sort(np.random.default_rng(0).normal(size=37))
    shares = np.arange(1, 10) / 10
    assert quantiles(values, np.full(37, 0.25), shares) == pytest.approx(np.quantile(values, shares))


@pytest.mark.parametrize(("decimals", "factor"), [(0, 1.0), (1, 0.1), (2, 0.01)])
def test_decimals_are_those_of_the_source_and_of_eleven_patients(decimals: int, factor: float) -> None:
    values = (np.round(np.random.default_rng(0).normal(400, 90, 500)) * factor).astype(np.float32)
    assert learned(values, np.arange(500)).decimals == decimals
    for patients, wanted in ((10, decimals), (11, decimals + 2)):
        finer = values.copy()
        finer[:patients] = np.round(finer[:patients], decimals) + 0.01 * factor
        assert learned(finer, np.arange(500)).decimals == wanted
    numbers = drawn(cohort_of(np.arange(5_000) % PARTS, learned(values, np.arange(500))))
    assert (np.round(numbers, decimals) == numbers).all()


def test_with_cut_points_alone_inner_deciles_are_even_and_outer_ones_have_no_number() -> None:
    """As of data that was stored before there were curves."""
    curve = LabCurve.between([1.0, 2.0, 2.0, 3.0, 4.5, 5.0, 6.0, 7.0, 8.0])
    part = np.arange(50_000) % PARTS
    numbers = drawn(cohort_of(part, curve))
    there = ~np.isnan(numbers)
    assert set(part[there]) == {1, 3, 4, 6, 7, 8}  # and none where no number lies between two cut points
    assert (decile_of(numbers[there].astype(np.float32), curve.cuts) == part[there]).all()
    assert set(numbers[part == 8]) == {7.0} and set(numbers[part == 4]) == {3.0, 4.0}


def test_a_draw_depends_on_seed_record_and_code_alone() -> None:
    curve = measured("skewed", 2_000).curve
    part = np.random.default_rng(0).integers(0, PARTS, 5_000)
    numbers = drawn(cohort_of(part, curve))
    assert (drawn(cohort_of(part, curve, block_records=7)) == numbers).all()
    assert (drawn(cohort_of(part, curve, seed=1)) != numbers).mean() > 0.99
    other = np.where(np.arange(5_000) % 2, part, 0)
    assert (drawn(cohort_of(other, curve)) == numbers)[other == part].all()
