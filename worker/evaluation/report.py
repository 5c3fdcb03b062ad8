"""The report on a cohort: what is measured, in which order, and what comes of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np

from ehr.records import Records
from ehr.reports import AugmentationReport, FamilyReport, Pictures, Report
from worker.engine.generators import SampleRequest
from worker.engine.metrics.measurement import Plan
from worker.evaluation.conditional import conditional_plan
from worker.evaluation.courses import codes_in
from worker.evaluation.fidelity import fidelity_plan
from worker.evaluation.pictures import pictures_and_tables
from worker.evaluation.plan import FamilyPlan, Metrics
from worker.evaluation.plausible import plausible_plan
from worker.evaluation.privacy import privacy_plan, slice_privacy_plan
from worker.evaluation.subject import Stopwatch, Subject, Watch
from worker.evaluation.time import time_plan
from worker.evaluation.utility import utility_plan
from worker.evaluation.verdicts import overall_verdict

UNCONDITIONAL_RECORDS = 5000  # drawn beside a conditioned cohort


@dataclass(frozen=True)
class ReportPlan:
    """Everything that will be measured of a subject, in order."""

    subject: Subject
    unconditional: Callable[[], Records | None]  # records of the same model without the condition
    drawing: Plan[Metrics]  # of those, if there are any
    families: Mapping[str, FamilyPlan]
    augmentation: list[AugmentationReport]  # filled by steps of the utility family

    @classmethod
    def of(cls, subject: Subject, rng: np.random.Generator) -> "ReportPlan":
        fidelity_rng, utility_rng, conditional_rng, privacy_rng, slice_rng, unconditional_rng, *others = rng.spawn(8)
        plausible_rng, time_rng = others
        augmentation: list[AugmentationReport] = []
        generator = None if subject.condition is None else subject.generator

        @cache
        def unconditional() -> Records | None:
            n = min(len(subject.cohort), UNCONDITIONAL_RECORDS)
            seed = int(unconditional_rng.integers(2**62))
            return None if generator is None else generator.sample(SampleRequest(n=n, seed=seed))

        def draw() -> Metrics:
            unconditional()
            return {}

        planned = {
            "fidelity": fidelity_plan(subject, fidelity_rng),
            "conditional": conditional_plan(subject, unconditional, conditional_rng),
            "privacy": privacy_plan(subject, privacy_rng),
            "slice_privacy": slice_privacy_plan(subject, slice_rng),
            "plausible": plausible_plan(subject, plausible_rng),
            "time": time_plan(subject, time_rng),
            "utility": utility_plan(subject, unconditional, utility_rng, augmentation),
        }
        families = {name: family for name, family in planned.items() if family is not None}
        drawing = [] if generator is None else [("unconditional records", draw)]
        return cls(subject, unconditional, drawing, families, augmentation)

    @property
    def steps(self) -> Plan[Metrics]:
        """All measurements; the pictures come after them."""
        return [*self.drawing, *(step for family in self.families.values() for step in family.steps)]

    def carry_out(self, watch: Watch = lambda name, done: None) -> Report:
        """Measure everything and write the report; can be done once."""
        subject, clock = self.subject, Stopwatch(watch)
        for name, draw in self.drawing:
            clock.begin(name)
            draw()
        clock.end()
        families = {name: family.carry_out(clock) for name, family in self.families.items()}
        clock.begin("pictures")
        pictures, tables = pictures_and_tables(subject, self.unconditional())
        clock.end()
        return Report(
            **subject.ids,
            own_data=subject.own_data,
            records=len(subject.cohort),
            codes=len(subject.vocabulary),
            codes_left_out=subject.codes_left_out,
            sampling=subject.sampling,
            condition=subject.asked,
            history=None if subject.over_time is None else subject.over_time.asked,
            targets=list(subject.targets),
            verdict=overall_verdict(families, subject.audit),
            **families,
            audit=subject.audit,
            augmentation=self.augmentation,
            pictures=pictures,
            drill_down=tables,
            names=names_of(subject, pictures, families.values()),
            seconds={name: round(seconds, 3) for name, seconds in clock.seconds.items()},
        )


def names_of(subject: Subject, pictures: Pictures, families: Iterable[FamilyReport]) -> dict[str, str]:
    """What the codes are called that the report shows and that have no place for it where they stand."""
    wanted = subject.asked
    asked = [] if wanted is None else [*wanted.all_of, *chain(*wanted.any_of), *wanted.none_of]
    targets = chain(*(target.codes for target in subject.targets))
    metrics = (metric for family in families for metric in family.metrics.values())
    notable = chain(*(each.codes for metric in metrics for each in metric.notable))
    courses = [] if pictures.courses is None else codes_in(pictures.courses)
    shown = [*notable, *(point.code for point in pictures.prevalence), *courses]
    if subject.over_time is not None and subject.over_time.asked is not None:
        asked = [*asked, *subject.over_time.asked.condition.patterns]
    codes = dict.fromkeys([*asked, *targets, *(label.name for label in subject.label_list), *shown])
    named = {code: subject.vocabulary.name_of(code) for code in codes}
    return {code: name for code, name in named.items() if name is not None}
