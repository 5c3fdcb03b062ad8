"""From measurements to a finding (good, caution, unsure or fail): the rules that several metrics share.

A rule never looks at a bare number. It looks at the difference to a yardstick that was measured in the same way, and at
the interval of that difference: good is a small difference when a large one can be ruled out, failed is a large one
when a small one can be ruled out. That two intervals have a point in common is no proof of anything: two noisy values
always have.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import hypot
from typing import Literal

from worker.engine.metrics.measurement import Finding, Measurement, Rule

Direction = Literal["higher", "lower"]
# how far from the floor to codes drawn independently a value may lie and still be good
GOOD_SHARE = 0.5
FAIL_SHARE = 0.9  # nearly all of the way is no better than all of it


@dataclass(frozen=True)
class Limits:
    """Of how much worse than the yardstick a value is."""

    good: float  # at most so much is good,
    sure: float  # if no more than this is possible
    fail: float  # more than this fails, if more than `good` is certain

    def finding(self, loss: Measurement) -> Finding:
        """What a measured loss says; `unsure` where the noise alone could explain it."""
        assert loss.value is not None and loss.low is not None and loss.high is not None
        if loss.value <= self.good and loss.high <= self.sure:
            return "good"
        if loss.value > self.fail and loss.low > self.good:
            return "fail"
        return "caution" if loss.value > self.good and loss.low > 0 else "unsure"


def excess(value: Measurement, yardstick: Measurement, direction: Direction) -> Measurement:
    """How much worse the value is than the yardstick (below 0 if it is better), with the interval that the noise of
    both gives. Noise that both share, such as that of one test set, would make it narrower, never wider."""
    worse, better = (value, yardstick) if direction == "lower" else (yardstick, value)
    assert worse.value is not None and worse.low is not None and worse.high is not None
    assert better.value is not None and better.low is not None and better.high is not None
    difference = worse.value - better.value
    below = hypot(worse.value - worse.low, better.high - better.value)
    above = hypot(worse.high - worse.value, better.value - better.low)
    return Measurement(difference, difference - below, difference + above)


def between_yardsticks(
    direction: Direction,
    good_within: float,
    fail_beyond: float,
    worse: str = "independent",
    *,
    needs_contrast: bool = False,
) -> Rule:
    """For fidelity: how far has the value come from the `worse` yardstick towards the floor?

    Where that yardstick is clearly worse than the floor, the way between the two is the scale: half of it is good,
    nearly all of it fails. A metric of single codes cannot tell independent codes from real ones; there the distance to
    the floor counts, `good_within` and `fail_beyond`. A metric that should tell them apart and does not
    (`needs_contrast`) has too few records to call anything good.
    """

    def rule(measured: Mapping[str, Measurement]) -> Finding | None:
        value, floor, bad = measured["value"], measured["floor"], measured[worse]
        if value.absent is not None or floor.absent is not None:
            return None
        limits = Limits(good_within, fail_beyond, fail_beyond)
        if bad.absent is None:
            scale = excess(bad, floor, direction)
            assert scale.value is not None and scale.low is not None
            fail = FAIL_SHARE * scale.value
            if scale.low > 0 and fail > good_within:
                limits = Limits(max(good_within, GOOD_SHARE * scale.value), fail, fail)
            elif needs_contrast and limits.finding(excess(value, floor, direction)) == "good":
                return "unsure"
        return limits.finding(excess(value, floor, direction))

    return rule


def near_yardstick(yardstick: str, direction: Direction, limits: Limits) -> Rule:
    """How far is the value from one yardstick?"""

    def rule(measured: Mapping[str, Measurement]) -> Finding | None:
        value, beside = measured["value"], measured[yardstick]
        if value.absent is not None or beside.absent is not None:
            return None
        return limits.finding(excess(value, beside, direction))

    return rule


def by_shortfall(limits: Callable[[Mapping[str, Measurement]], Limits]) -> Rule:
    """For utility: what is lost by training on synthetic records, measured on the same test records as what real ones
    give. Nothing can be said where real records teach no more than chance: there is nothing to lose."""

    def rule(measured: Mapping[str, Measurement]) -> Finding | None:
        shortfall, real, chance = measured["shortfall"], measured["real"], measured["chance"]
        if shortfall.absent is not None:
            return None
        assert real.low is not None and chance.value is not None
        return None if real.low <= chance.value else limits(measured).finding(shortfall)

    return rule


def by_gain(caution_above: float, fail_above: float, unsure_above: float) -> Rule:
    """For attacks: the risk is what an attacker gains over the control, and only what is beyond noise counts.

    `caution_above` and `fail_above` are limits for the lower end of the gain's interval. A higher end above
    `unsure_above` means that there are too few records to rule a risk out, which is not good either, and neither is a
    gain that is there for certain and would fail if it were as large as it looks.
    """

    def rule(measured: Mapping[str, Measurement]) -> Finding | None:
        gain = measured["gain"]
        if gain.value is None or gain.low is None or gain.high is None:
            return None
        if gain.low > caution_above:
            return "fail" if gain.low > fail_above else "caution"
        looks_large = gain.low > 0 and gain.value > fail_above
        return "unsure" if looks_large or gain.high > unsure_above else "good"

    return rule


def at_most(good: float, caution: float) -> Rule:
    """For shares that should be low."""

    def rule(measured: Mapping[str, Measurement]) -> Finding | None:
        value = measured["value"].value
        return None if value is None else "good" if value <= good else "caution" if value <= caution else "fail"

    return rule


def at_least(good: float, caution: float) -> Rule:
    """For shares that should be high."""

    def rule(measured: Mapping[str, Measurement]) -> Finding | None:
        value = measured["value"].value
        return None if value is None else "good" if value >= good else "caution" if value >= caution else "fail"

    return rule
