"""What is measured, in which order: the order of a report, its progress and its number of measurements are one list."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ehr.errors import JobCancelledError, LeaseLostError
from ehr.reports import FamilyReport, MetricReport, Verdict
from worker.engine.metrics.measurement import Measured, Plan
from worker.evaluation.subject import Stopwatch
from worker.evaluation.verdicts import family_verdict

Metrics = dict[str, MetricReport]


@dataclass(frozen=True)
class Step:
    """One measurement: its name in the progress and in `seconds`, and what it adds to the metrics of its family."""

    name: str
    measure: Callable[[], Metrics]


def steps_of(plan: Plan[Measured], public: Callable[[Measured], MetricReport], prefix: str = "") -> list[Step]:
    """A step for each measurement of the plan; `public` turns its outcome into what may be reported."""

    def measured(name: str, measure: Callable[[], Measured]) -> Metrics:
        return {name: public(measure())}

    return [Step(prefix + name, partial(measured, name, measure)) for name, measure in plan]


@dataclass(frozen=True)
class FamilyPlan:
    """The measurements of a family, what they say together, and what is said if one of them crashes."""

    conclude: Callable[[Metrics], FamilyReport]
    steps: Sequence[Step] = ()
    on_crash: Callable[[Exception], FamilyReport] | None = None

    @classmethod
    def absent(cls, against: str, reason: str, verdict: Verdict | None = None) -> "FamilyPlan":
        """Nothing is measured."""
        return cls(lambda _: FamilyReport(against=against, absent=reason, verdict=verdict))

    @classmethod
    def measuring(cls, against: str, steps: Sequence[Step]) -> "FamilyPlan":
        """The worst metric decides."""

        def conclude(metrics: Metrics) -> FamilyReport:
            return FamilyReport(against=against, metrics=metrics, verdict=family_verdict(metrics.values()))

        return cls(conclude, steps)

    def carry_out(self, clock: Stopwatch) -> FamilyReport:
        """Take every step."""
        metrics: Metrics = {}
        try:
            for step in self.steps:
                clock.begin(step.name)
                metrics |= step.measure()
        except (JobCancelledError, LeaseLostError):
            raise
        except Exception as error:
            if self.on_crash is None:
                raise
            return self.on_crash(error)
        finally:
            clock.end()
        return self.conclude(metrics)
