"""What is measured, in which order: the order of a report, its progress and its number of measurements are one list."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ehr.errors import JobInterruptedError
from ehr.reports import FamilyReport, MetricReport, Verdict
from worker.engine.metrics.measurement import Measured, Plan
from worker.evaluation.subject import Stopwatch
from worker.evaluation.verdicts import family_verdict

Metrics = dict[str, MetricReport]  # what a measurement adds to its family


def reported(plan: Plan[Measured], public: Callable[[Measured], MetricReport], prefix: str = "") -> Plan[Metrics]:
    """The same plan, each measurement giving what may be reported of it."""

    def measured(name: str, measure: Callable[[], Measured]) -> Metrics:
        return {name: public(measure())}

    return [(prefix + name, partial(measured, name, measure)) for name, measure in plan]


@dataclass(frozen=True)
class FamilyPlan:
    """The measurements of a family, what they say together, and what is said if one of them crashes."""

    conclude: Callable[[Metrics], FamilyReport]
    steps: Plan[Metrics] = ()
    on_crash: Callable[[Exception], FamilyReport] | None = None

    @classmethod
    def absent(cls, against: str, reason: str, verdict: Verdict | None = None) -> "FamilyPlan":
        """Nothing is measured."""
        return cls(lambda _: FamilyReport(against=against, absent=reason, verdict=verdict))

    @classmethod
    def measuring(cls, against: str, steps: Plan[Metrics]) -> "FamilyPlan":
        """The worst metric decides."""

        def conclude(metrics: Metrics) -> FamilyReport:
            return FamilyReport(against=against, metrics=metrics, verdict=family_verdict(metrics.values()))

        return cls(conclude, steps)

    def carry_out(self, clock: Stopwatch) -> FamilyReport:
        """Take every step."""
        metrics: Metrics = {}
        try:
            for name, measure in self.steps:
                clock.begin(name)
                metrics |= measure()
        except JobInterruptedError:
            raise
        except Exception as error:
            if self.on_crash is None:
                raise
            return self.on_crash(error)
        finally:
            clock.end()
        return self.conclude(metrics)
