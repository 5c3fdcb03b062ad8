"""Conditions on histories: are they met, and are the patients those whom chance would have brought?"""

from collections.abc import Iterator

import numpy as np

from benchmarks._harness import Figures, console, progress_bar, show, timed
from benchmarks._histories import Patients
from ehr.conditions import Condition
from ehr.histories import Histories
from ehr.history_conditions import HistoryCondition
from ehr.records import indptr_of
from worker.engine.generators.protocol import EffectiveSize
from worker.engine.generators.visits import VisitsGenerator
from worker.engine.histories.protocol import HistoryRequest
from worker.engine.population import simulated_histories


def conditions(data: Patients) -> Iterator[tuple[str, HistoryCondition]]:
    """Ten, by how common codes are in the data."""
    n, train = len(data.vocabulary), data.train
    ever = np.bincount(train.visits.indices, minlength=n) / len(train.visits)
    common = [int(code) for code in np.argsort(-ever, kind="stable") if ever[code] < 0.3][:40]
    rare = [int(code) for code in np.argsort(ever, kind="stable") if ever[code] > 2e-4][:5]
    a, b, c, d = common[5], common[12], common[20], common[30]
    counts = train.visit_counts()
    typical, several = max(int(np.median(counts)), 2), train.take(np.flatnonzero(counts >= 3)[:1])
    prompt = Histories(several.visits.take([0, 1]), indptr_of(np.array([2])), several.gaps[:2], several.static)
    static = int(np.argmax(train.static.prevalence()))
    days = int(np.median(train.days()[train.offsets[1:] - 1][counts > 1]))
    yield "ever a common code", HistoryCondition(n, ever=(frozenset([a]),))
    yield "ever a rare code", HistoryCondition(n, ever=(frozenset([rare[0]]),))
    yield (
        "ever two codes, never a third",
        HistoryCondition(n, ever=(frozenset([a]), frozenset([b, c])), never=frozenset([d])),
    )
    yield "never a common code", HistoryCondition(n, never=frozenset([a]))
    yield "one code before another", HistoryCondition(n, before=((frozenset([a]), frozenset([b])),))
    yield "a code at visit 2", HistoryCondition(n, at_visit=((2, Condition.of(n, [a])),))
    yield f"{typical} visits", HistoryCondition(n, visits=(typical, typical))
    yield f"{days // 2} to {days} days", HistoryCondition(n, days=(days // 2, days))
    yield "who they are", HistoryCondition(n, start=Condition.of(n, [static]))
    yield "two given visits", HistoryCondition(n, prompt=prompt)


def attainment(model: VisitsGenerator, data: Patients, patients: int, figures: Figures, steps: int | None) -> None:
    """The share of patients who are what was asked for, and how far their codes are from real ones; `steps`: network
    calls for a visit."""
    rows, least = [], 1.0
    asked = list(conditions(data))
    with progress_bar("conditions") as advance:
        for number, (name, condition) in enumerate(asked):
            worth = EffectiveSize()
            request = HistoryRequest(patients, number, condition, steps=steps, effective_size=worth)
            with timed() as seconds:
                drawn = model.sample(request)
            met = float(condition.satisfied_by(drawn).mean())
            least = min(least, met)
            real = data.train.take(np.flatnonzero(condition.satisfied_by(data.train)))
            distances = _distances(drawn, real, data.train) if len(real) >= 200 else ["", "", ""]
            rows.append([name, f"{met:.1%}", f"{worth.effective:.0f}", f"{seconds[0]:.1f}", *distances])
            advance(number + 1, len(asked))
    header = ["asked for", "met", "effective", "s", "L1 to real", "real halves", "anybody"]
    show(f"conditions, {patients} patients each; L1 of the shares of patients who ever have each code", header, rows)
    figures.add("time.attainment_min", least, "share of patients, least of all conditions")


def _distances(drawn: Histories, real: Histories, anybody: Histories) -> list[str]:
    """L1 of the ever-shares to half of the real patients: of as many drawn, real and any patients as the other half."""
    order = np.random.default_rng(0).permutation(len(real))
    half, rest = real.take(order[: len(order) // 2]), real.take(order[len(order) // 2 :])
    size = min(len(half), len(drawn))
    others = anybody.take(np.random.default_rng(1).permutation(len(anybody))[:size])
    sets = (drawn.take(np.arange(size)), half.take(np.arange(size)), others)
    return [f"{np.abs(each.ever().prevalence() - rest.ever().prevalence()).sum():.2f}" for each in sets]


def against_exact(model: VisitsGenerator, data: Patients, patients: int, figures: Figures) -> None:
    """On the simulated population: P(ever Y | ever X) of conditioned patients beside the exact one."""
    process = simulated_histories()
    weights, (_, states, *_) = process.group_weights, process.blocks
    code = max(range(states.start, states.stop), key=lambda each: "E11" in data.vocabulary.codes[each])
    condition = HistoryCondition(len(data.vocabulary), ever=(frozenset([code]),))
    drawn = model.sample(HistoryRequest(patients, seed=11, condition=condition))
    real = process.sample(20 * patients, np.random.default_rng(5))
    real = real.take(np.flatnonzero(condition.satisfied_by(real))[:patients])
    others = [each for each in range(states.start, states.stop) if each != code]
    probability = float(weights @ process.ever_probability(code))
    exact = np.array([weights @ process.ever_both_probability(code, each) for each in others]) / probability
    errors = {
        name: float(np.abs(each.ever().prevalence()[others] - exact).mean())
        for name, each in (("model", drawn), ("real", real), ("anybody", data.train))
    }
    console.print(
        f"P(ever Y | ever {data.vocabulary.codes[code]}) of {len(drawn)} patients, mean absolute error over "
        f"{len(others)} codes: {errors['model']:.4f}; {len(real)} real ones {errors['real']:.4f}; "
        f"anybody {errors['anybody']:.4f}"
    )
    figures.add("time.ever_mae", errors["model"], f"P(ever Y | ever X); {errors['real']:.4f} with real patients")
