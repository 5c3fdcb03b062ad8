"""The loss over fixed random masks, a white box: records the network was trained on surprise it less."""

import time

import numpy as np

from ehr.records import Records
from worker.engine.audit.attack import AucLimits, AuditAttack, AuditedModel, Variant
from worker.engine.audit.people import FEWEST_PEOPLE
from worker.engine.audit.separation import Scores
from worker.engine.generators.protocol import RecordLosses
from worker.engine.metrics.measurement import Words

BATCH = 128
DRAWS = 2  # masks at each rate


def measure(model: AuditedModel, rng: np.random.Generator) -> list[Variant]:
    """Everyone, and people with a rare code."""
    losses = model.generator.record_losses()
    rare = model.sets.with_rarest_code(model.sets.rare_below, rng)
    asked = {"": (model.sets.people(rng), False), "people with a rare code": ((rare.members, rare.others), True)}
    seed = int(rng.integers(2**31))
    variants = []
    for name, ((members, others), of_rare) in asked.items():
        if losses is None:
            variants.append(Variant.missing(name, "the generator cannot tell how likely a record is", of_rare))
        elif min(len(members), len(others)) < FEWEST_PEOPLE:
            variants.append(Variant.missing(name, "there are too few such people", of_rare))
        else:
            variants.append(Variant(name, *scores(losses, members, others, seed, model.seconds / len(asked))))
    return variants


def scores(
    losses: RecordLosses, members: Records, others: Records, seed: int, seconds: float = np.inf
) -> tuple[Scores, Scores]:
    """Minus the loss, summed over all masks, of as many people as there is time for."""
    ends = time.monotonic() + seconds
    found: tuple[list[Scores], list[Scores]] = ([], [])
    for start in range(0, max(len(members), len(others)), BATCH):
        for records, each in zip((members, others), found, strict=True):
            rows = np.arange(start, min(start + BATCH, len(records)))
            if len(rows):
                each.append(-losses(records.take(rows), seed + start, DRAWS).sum(1))
        if time.monotonic() > ends and start >= FEWEST_PEOPLE:
            break
    return np.concatenate(found[0]), np.concatenate(found[1])


MASK_LOSS = AuditAttack(
    name="mask_loss",
    title="Loss under masks, with the weights",
    limits=AucLimits(caution=0.54, fail=0.58, unsure=0.66),
    words=Words(
        good="Not even the model's weights tell training patients from other people.",
        caution="Whoever has the model's weights can tell training patients from other people a little.",
        fail="Whoever has the model's weights can tell training patients from other people.",
        unsure="There are too few people to rule out that the model's weights tell training patients from others.",
        advice="Train with more records or fewer passes over them, and do not give the weights away.",
    ),
    measure=measure,
)
