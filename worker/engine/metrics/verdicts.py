"""From measurements to `good`, `caution` or `fail`: the rules that several metrics share.

A rule never looks at a bare number. It compares with a yardstick that was measured in the same way, and it takes the
noise of both into account: what lies within the noise of the yardstick is good.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from worker.engine.metrics.measurement import Level, Measurement, Rule, Verdict

Direction = Literal["higher", "lower"]
LEVELS: tuple[Level, ...] = ("good", "caution", "fail")  # from best to worst
# how far from the floor to codes drawn independently a value may lie and still be good
GOOD_SHARE = 0.5
FAIL_SHARE = 0.9  # nearly all of the way is no better than all of it


def worst(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """The worst verdict; of several equally bad ones the first. None if there is none."""
    found = [verdict for verdict in verdicts if verdict is not None]
    return max(found, key=lambda verdict: LEVELS.index(verdict.level), default=None)


def excess(value: Measurement, yardstick: Measurement, direction: Direction) -> float:
    """How much worse the value is than the yardstick; below 0 if it is better."""
    assert value.value is not None and yardstick.value is not None
    difference = value.value - yardstick.value
    return difference if direction == "lower" else -difference


def overlap(a: Measurement, b: Measurement) -> bool:
    """Whether the two intervals have a point in common."""
    assert a.low is not None and a.high is not None and b.low is not None and b.high is not None
    return a.low <= b.high and b.low <= a.high


def between_yardsticks(
    direction: Direction, good_within: float, fail_beyond: float, worse: str = "independent"
) -> Rule:
    """For fidelity: how far has the value come from the `worse` yardstick towards the floor?

    Where that yardstick is clearly worse than the floor, the way between the two is the scale: half of it is good,
    nearly all of it fails. A metric of single codes cannot tell independent codes from real ones; there the distance to
    the floor counts, `good_within` and `fail_beyond`.
    """

    def rule(measured: Mapping[str, Measurement]) -> Level | None:
        value, floor, bad = measured["value"], measured["floor"], measured[worse]
        if value.absent is not None or floor.absent is not None:
            return None
        over = excess(value, floor, direction)
        if over <= good_within or overlap(value, floor):
            return "good"
        if bad.absent is None and not overlap(bad, floor):
            scale = excess(bad, floor, direction)
            if scale > good_within:
                return "good" if over <= GOOD_SHARE * scale else "caution" if over < FAIL_SHARE * scale else "fail"
        return "caution" if over <= fail_beyond else "fail"

    return rule


def near_yardstick(yardstick: str, direction: Direction, good_within: float, fail_beyond: float) -> Rule:
    """How far is the value from one yardstick?"""

    def rule(measured: Mapping[str, Measurement]) -> Level | None:
        value, beside = measured["value"], measured[yardstick]
        if value.absent is not None or beside.absent is not None:
            return None
        over = excess(value, beside, direction)
        if over <= good_within or overlap(value, beside):
            return "good"
        return "caution" if over <= fail_beyond else "fail"

    return rule


def by_gain(caution_above: float, fail_above: float, unsure_above: float) -> Rule:
    """For attacks: the risk is what an attacker gains over the control, and only what is beyond noise counts.

    `caution_above` and `fail_above` are limits for the lower end of the gain's interval. A higher end above
    `unsure_above` means that there are too few records to rule a risk out, which is not good either.
    """

    def rule(measured: Mapping[str, Measurement]) -> Level | None:
        gain = measured["gain"]
        if gain.low is None or gain.high is None:
            return None
        if gain.low > fail_above:
            return "fail"
        return "caution" if gain.low > caution_above or gain.high > unsure_above else "good"

    return rule


def at_least(good: float, caution: float) -> Rule:
    """For shares that should be high."""

    def rule(measured: Mapping[str, Measurement]) -> Level | None:
        value = measured["value"].value
        return None if value is None else "good" if value >= good else "caution" if value >= caution else "fail"

    return rule
