"""Settings by rule: what `auto` trains with, from the shape of the data alone.

Every rule is here. They start from the preset `best`, which was found on about 100,000 records, and say what changes
for more records or fewer. The number of records is taken in whole doublings: settings are shown to people who may not
know how many patients there are. How long a step takes is timed (worker/tasks/pace.py).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ehr.generators.d3pm import D3PMConfig

AT_HOME = 100_000  # records that `best` was found with
NARROW = 256  # width of a network for few records, or for little time
RECORDS_PER_CODE = 12  # with fewer, a network soon knows them by heart,
LEAST_EPOCHS = 0.4  # and is trained for a smaller share of the epochs, but not for less than this


@dataclass(frozen=True)
class Shape:
    """What data looks like."""

    records: int  # to learn from
    codes: int  # in the vocabulary

    @property
    def doublings(self) -> int:
        """Of the records, from those that `best` was found with: -1 is half as many."""
        return int(min(max(round(math.log2(max(self.records, 1) / AT_HOME)), -6), 5))

    @property
    def about(self) -> int:
        """The number of records that the rules know of."""
        return int(AT_HOME * 2.0**self.doublings)


def settings_for(best: "D3PMConfig", shape: Shape) -> "D3PMConfig":
    """The settings for data of this shape."""
    return narrowed(_for_records(best, shape)) if shape.doublings <= -3 else _for_records(best, shape)


def _for_records(best: "D3PMConfig", shape: Shape) -> "D3PMConfig":
    """Twice the records are passed over less often, by the root of two; fewer of them not more often, and less often
    where they have to tell of many codes: they would be known by heart. Of few records more is left out at a time, for
    the same reason."""
    told = min(max(shape.about / max(shape.codes, 1) / RECORDS_PER_CODE, LEAST_EPOCHS), 1.0)
    epochs = round(best.training.epochs * told * 2 ** (-max(shape.doublings, 0) / 2))
    return _trained(_left_out(best, 2 ** (-shape.doublings / 8)), epochs)


def shortened(config: "D3PMConfig", epochs: int) -> "D3PMConfig":
    """The same for fewer epochs, where time is short: what is seen less often is less in danger to be learned by
    heart."""
    return _trained(_left_out(config, max(epochs / config.training.epochs, 0.25) ** 0.5), epochs)


def narrowed(config: "D3PMConfig") -> "D3PMConfig":
    """The same with a narrower network, which is faster and learns more in its first epochs."""
    if config.denoiser.kind != "sparse" or config.denoiser.width <= NARROW:
        return config
    return config.model_copy(update={"denoiser": config.denoiser.model_copy(update={"width": NARROW})})


def _left_out(config: "D3PMConfig", factor: float) -> "D3PMConfig":
    """With so many times the dropout."""
    denoiser = config.denoiser
    if denoiser.kind != "sparse":
        return config
    rates = {"dropout": min(denoiser.dropout * factor, 0.4), "input_dropout": min(denoiser.input_dropout * factor, 0.3)}
    rounded = {name: float(f"{rate:.2g}") for name, rate in rates.items()}
    return config.model_copy(update={"denoiser": denoiser.model_copy(update=rounded)})


def _trained(config: "D3PMConfig", epochs: int) -> "D3PMConfig":
    """For so many epochs, with some twenty looks at the held-out records; four without a better one end it."""
    every = max(round(epochs / 20), 1)
    schedule = {"epochs": epochs, "evaluate_every": every, "patience": 4 * every}
    return config.model_copy(update={"training": config.training.model_copy(update=schedule)})
