"""Who is compared: every generator this engine has, each with its published settings, and the records they see."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ehr.generators import generator_names, generator_spec
from ehr.generators.d3pm import PRESETS
from ehr.records import Records
from worker.engine.metrics.air import columns
from worker.engine.metrics.classifier import Label

OURS = "d3pm"
PLAIN = "d3pm plain sampler"
PAPER = "d3pm paper-mimic"
YARDSTICK = "independent"
ALL, COMMON = "all codes", "100 codes"
N_COMMON = 100
BERNOULLI = {"binarise": "bernoulli"}
CLIPPED = "ehrdiff bernoulli"


@dataclass(frozen=True)
class Contender:
    """A row of the tables."""

    name: str
    generator: str
    settings: dict[str, Any] = field(default_factory=dict)
    weights_of: str | None = None  # draws with the weights that another row has trained
    redrawn: dict[str, Any] = field(default_factory=dict)  # settings that differ from those when drawing
    plain: bool = False  # draws without the fast sampler

    @property
    def published(self) -> bool:
        """Whether it is a baseline from the literature: neither ours, nor the paper's network, nor the yardstick."""
        return self.generator not in (OURS, YARDSTICK)

    @property
    def trained_as(self) -> str:
        return self.weights_of or self.name


@dataclass(frozen=True)
class Arena:
    """The records that some contenders learn from and are tested on."""

    name: str
    train: Records
    holdout: Records
    test: Records
    labels: tuple[Label, ...]


def contenders(arena: str, quick: bool = False) -> list[Contender]:
    """The rows of an arena, ours first. The paper's network is too slow for a quick look.

    The fast sampler deals rare codes out to a cohort (docs/decisions/0010); what that alone brings is seen beside the
    plain sampler, which draws every record by itself as all the others do.
    """
    ours = Contender(OURS, OURS, PRESETS["fast"].model_dump())
    plain = Contender(PLAIN, OURS, ours.settings, weights_of=OURS, plain=True)
    paper = [] if quick else [Contender(PAPER, OURS, PRESETS["paper-mimic"].model_dump())]
    yardstick = Contender(YARDSTICK, YARDSTICK)
    names = [name for name in generator_names() if name not in (OURS, YARDSTICK)]
    # Some are for few codes: compared on the most common ones, beside ours and the yardstick on the same.
    low = [row for name in names if generator_spec(name).most_codes is not None for row in _published(name)]
    if arena == COMMON:
        return [ours, yardstick, *low] if low else []
    high = [row for name in names if generator_spec(name).most_codes is None for row in _published(name)]
    return [ours, plain, *paper, yardstick, *high]


def _published(name: str) -> list[Contender]:
    """A baseline, and the same network with its probabilities drawn instead of rounded where it would round."""
    settings = generator_spec(name).settings
    assert settings is not None
    rows = [Contender(name, name, settings().model_dump())]
    if "binarise" in settings.model_fields:
        rows.append(Contender(f"{name} bernoulli", name, rows[0].settings, weights_of=name, redrawn=BERNOULLI))
    return rows


def arenas(train: Records, holdout: Records, test: Records, labels: list[Label]) -> dict[str, Arena]:
    """All codes, and the most common ones alone with the labels that lie among them."""
    common = np.argsort(-train.prevalence(), kind="stable")[:N_COMMON]
    place = {int(code): position for position, code in enumerate(common)}
    inside = [
        Label(label.name, tuple(place[code] for code in label.codes))
        for label in labels
        if all(code in place for code in label.codes)
    ]
    cut = (columns(train, common), columns(holdout, common), columns(test, common))
    return {ALL: Arena(ALL, train, holdout, test, tuple(labels)), COMMON: Arena(COMMON, *cut, tuple(inside))}
