"""How good `auto` is on data that nobody has tuned for: simulated records of three shapes, against unseen ones.

python -m benchmarks.shapes [--only NAME ...] [--seeds K] [--work DIR] [--json FILE] [--quick] [--max-minutes M]

A clinic and a hospital, whose codes go together by a few hidden themes, and visits with strong structure. Each is
trained on with the settings that `auto` would choose and the groups, rules and families that the service would find.
With --work the trained models are kept there and a second run starts from them.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._harness import Figures, console, options, progress_bar, show
from benchmarks._quality import (
    RECORDS,
    Unseen,
    fidelity_to,
    in_short,
    measure_unseen,
    or_nan,
    times_the_floor,
    with_interval,
)
from benchmarks._shapes import DataShape
from benchmarks._slices import SliceOutcome, measure_slices, slices
from benchmarks._structured import Visits
from benchmarks._trained import request_of, trained
from benchmarks.auto import REFERENCE_RECORDS, REFERENCE_SECONDS
from ehr.generators.auto import Shape
from ehr.generators.d3pm import D3PM
from ehr.records import Records
from worker.contract import TrainPayload
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.metrics import Measurement, Result
from worker.tasks.decide import Reference, decided

SHAPES: dict[str, DataShape | Visits] = {
    "clinic": DataShape(40_000, 250, 5),
    "hospital": DataShape(40_000, 900, 9),
    "visits": Visits(60_000),
}
QUICK: dict[str, DataShape | Visits] = {
    "clinic": DataShape(1_000, 30, 4),
    "hospital": DataShape(1_000, 60, 6),
    "visits": Visits(1_200, services=30, diagnoses=60, drugs=45, symptoms=15, rare=30),
}
QUICK_RECORDS, QUICK_EPOCHS = 600, 2
SMALLEST_SLICE, QUICK_SLICE = 500, 60  # real records; with fewer, a ratio of distances is mostly chance
# Seeds of the records that are learned from, that cohorts are compared with, and that slices are.
LEARNED, UNSEEN, SLICED = 0, 1, 2
NOT_JUDGED = "codes_missing"
# The floor of MMD is about 0, so nothing can be told in multiples of it.
BY_INTERVAL = "mmd"


@dataclass(frozen=True)
class Data:
    """Records of one world: some to learn from, and others."""

    name: str
    codes: Sequence[str]
    train: Records
    test: Records
    sliced: Records  # as many as there are of both, as a slice of real data is taken from all there is

    @classmethod
    def of(cls, name: str, shape: DataShape | Visits, unseen: int) -> "Data":
        train, test = shape.draw(LEARNED), shape.draw(UNSEEN, unseen)
        # names without a meaning, in which no group or family can be seen
        codes = shape.vocabulary if isinstance(shape, Visits) else tuple(f"LOCAL:{n}" for n in range(shape.codes))
        return cls(name, codes, train, test, shape.draw(SLICED, len(train) + len(test)))


@dataclass(frozen=True)
class Outcome:
    """What was measured of one training."""

    fidelity: Mapping[str, Result]
    unseen: Unseen
    slices: Sequence[SliceOutcome]
    seconds: float

    @property
    def worst(self) -> tuple[float, str]:
        """The largest times-the-floor of the metrics that are judged by it, and which it is."""
        judged = {name: each for name, each in self.fidelity.items() if name not in (NOT_JUDGED, BY_INTERVAL)}
        times = [(times_the_floor(each), name) for name, each in judged.items()]
        return max((each for each in times if not math.isnan(each[0])), default=(math.nan, ""))

    @property
    def cmd_ratio(self) -> float:
        return times_the_floor(self.fidelity["cmd"])

    @property
    def excess(self) -> float:
        return float(self.unseen.excess.mean())

    @property
    def slice_ratio(self) -> float:
        """The worst exact slice's distance over its floor."""
        return max((_distance(each) / each.floor for each in self.slices), default=math.nan)

    @property
    def mmd_place(self) -> str:
        """Where the MMD lies beside the floor's interval."""
        ours, floor = self.fidelity[BY_INTERVAL].value.value, self.fidelity[BY_INTERVAL].floor
        if ours is None or floor.low is None or floor.high is None:
            return "-"
        return "below" if ours < floor.low else "above" if ours > floor.high else "inside"


def settings_of(data: Data, quick: bool, minutes: float | None) -> tuple[dict[str, Any], float]:
    """What `auto` chooses, and for how many seconds it may learn from records."""
    changes: dict[str, dict[str, int]] = {"training": {"epochs": QUICK_EPOCHS}} if quick and not minutes else {}
    learned = request_of(data.train, data.codes, {})
    settings = D3PM.resolve(None, changes, Shape(len(learned.records), len(data.codes)))
    if minutes is None:
        return settings.values, math.inf
    payload = TrainPayload(model_id="m", name="m", dataset_id="d", settings=changes, max_minutes=minutes)
    reference = Reference(REFERENCE_RECORDS, 1.0 if quick else REFERENCE_SECONDS)
    decision = decided(payload, settings, lambda config: replace(learned, settings=config), reference)
    return decision.settings.values, decision.most_seconds or math.inf


def measure(data: Data, generator: D3PMGenerator, seconds: float, seed: int, quick: bool) -> Outcome:
    """Everything about one training."""
    n, label = min(QUICK_RECORDS if quick else RECORDS, len(data.test)), f"{data.name} {seed}"
    least, found = QUICK_SLICE if quick else SMALLEST_SLICE, list[SliceOutcome]()
    chosen = [
        each
        for each in slices(data.sliced, list(data.codes))
        if each.condition.satisfied_by(data.sliced).sum() >= least
    ]
    with progress_bar(f"slices {label}") as advance:
        for each in measure_slices(generator, chosen, data.sliced, quick):
            found.append(each)
            advance(len(found), len(chosen))
    results = fidelity_to(generator, data.train, data.test, n, label, seed)
    return Outcome(results, measure_unseen(generator, data.train, data.test, quick), found, seconds)


# ---- what is shown


def _distance(outcome: SliceOutcome) -> float:
    return or_nan(outcome.ways["exact"].l1)


def _spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """The mean, and the least and most of several."""
    if len(values) == 1:
        return form(values[0])
    return f"{form(float(np.mean(values)))} ({form(min(values))} to {form(max(values))})"


def _times(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _told(measured: Sequence[Measurement]) -> str:
    """One with its interval, several with their spread; the reason why there is none."""
    if measured[0].absent is not None:
        return measured[0].absent
    if len(measured) == 1:
        return with_interval(measured[0])
    return _spread([or_nan(each.value) for each in measured], in_short)


def _judged(name: str, outcomes: Sequence[Outcome]) -> str:
    if name == NOT_JUDGED:
        return "not judged"
    if name == BY_INTERVAL:
        return f"{', '.join(each.mmd_place for each in outcomes)} the floor's interval"
    return _spread([times_the_floor(each.fidelity[name]) for each in outcomes], _times)


def show_shape(title: str, outcomes: Sequence[Outcome]) -> None:
    """Every metric beside its floor."""
    rows = []
    for name in outcomes[0].fidelity:
        of_metric = [each.fidelity[name] for each in outcomes]
        # the floor is the same for every seed: nothing that was trained is in it
        rows.append(
            [name, _told([each.value for each in of_metric]), _told([of_metric[0].floor]), _judged(name, outcomes)]
        )
    ours, real = ([float(each.unseen.told[:, side].mean()) for each in outcomes] for side in (0, 1))
    more = f"{_spread([each.excess for each in outcomes], '{:+.4f}'.format)} more"
    rows.append(["distinguisher", _spread(ours, in_short), in_short(float(np.mean(real))), more])
    for number, one in enumerate(outcomes[0].slices):
        distances = [_distance(each.slices[number]) for each in outcomes]
        ratios = [distance / one.floor for distance in distances]
        name = f"L1 of {one.slice.name} ({one.real:,})"
        rows.append([name, _spread(distances, in_short), in_short(one.floor), _spread(ratios, _times)])
    rows.append(["nats of unseen records", _spread([each.unseen.elbo for each in outcomes], "{:.3f}".format), "", ""])
    rows.append(["seconds of training", _spread([each.seconds for each in outcomes], "{:.0f}".format), "", ""])
    show(title, ["metric", "ours", "floor", "times the floor"], rows)


def summary(measured: Mapping[str, Sequence[Outcome]]) -> None:
    """One row for each shape."""
    rows = [
        [
            name,
            _spread([each.cmd_ratio for each in outcomes], _times),
            _spread([each.worst[0] for each in outcomes], _times),
            ", ".join(dict.fromkeys(each.worst[1] for each in outcomes)),
            f"{sum(each.mmd_place == 'inside' for each in outcomes)} of {len(outcomes)}",
            _spread([each.excess for each in outcomes], "{:+.4f}".format),
            _spread([each.slice_ratio for each in outcomes], _times),
            _spread([each.unseen.elbo for each in outcomes], "{:.3f}".format),
            _spread([each.seconds for each in outcomes], "{:.0f}".format),
        ]
        for name, outcomes in measured.items()
    ]
    header = ["shape", "CMD", "worst metric", "which", "MMD inside", "told apart", "worst slice", "nats", "seconds"]
    show("times the floor, by shape", header, rows)


def add_figures(name: str, outcomes: Sequence[Outcome], figures: Figures) -> None:
    """The means over the trainings."""
    values: dict[str, tuple[Callable[[Outcome], float], str]] = {
        "cmd_ratio": (lambda each: each.cmd_ratio, "ours over floor"),
        "worst_ratio": (lambda each: each.worst[0], "times worse than the floor, the worst metric"),
        "distinguisher_excess": (lambda each: each.excess, "AUROC beyond real records"),
        "slice_l1_ratio": (lambda each: each.slice_ratio, "ours over floor, the worst slice"),
        "train_seconds": (lambda each: each.seconds, "s"),
        "elbo": (lambda each: each.unseen.elbo, "nats"),
    }
    for figure, (value, unit) in values.items():
        mean = float(np.mean([value(each) for each in outcomes]))
        figures.add(f"shapes.{name}.{figure}", mean if math.isfinite(mean) else math.nan, unit)


def _options() -> argparse.Namespace:
    parser = options(__doc__ or "")
    parser.add_argument("--only", nargs="+", choices=list(SHAPES), metavar="NAME", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="trainings of each shape")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep trained models here and start from them")
    parser.add_argument("--max-minutes", type=float, metavar="M", help="the time that each training may take")
    return parser.parse_args()


def main() -> None:
    arguments = _options()
    quick, minutes = arguments.quick, arguments.max_minutes
    work = None if quick else arguments.work  # a quick model must not be taken for a real one
    figures, measured = Figures(), dict[str, list[Outcome]]()
    for name, shape in (QUICK if quick else SHAPES).items():
        if name not in (arguments.only or SHAPES):
            continue
        data = Data.of(name, shape, QUICK_RECORDS if quick else RECORDS)
        settings, most_seconds = settings_of(data, quick, minutes)
        chosen = f"{settings['training']['epochs']} epochs, width {settings['denoiser']['width']}"
        console.print(f"training on {shape.name}: {chosen}", highlight=False)
        for seed in range(arguments.seeds):
            kept = f"shapes-{name}-{seed}" + ("" if minutes is None else f"-{minutes:g}-minutes")
            generator, took = trained(kept, settings, data.train, data.codes, work, seed, most_seconds)
            measured.setdefault(name, []).append(measure(data, generator, took.seconds, seed, quick))
        show_shape(f"{name}: {shape.name}", measured[name])
        add_figures(name, measured[name], figures)
    summary(measured)
    figures.finish(arguments.json)


if __name__ == "__main__":
    main()
