"""The loss over fixed random masks, a white box: records the network was trained on surprise it less."""

import numpy as np

from ehr.records import Records
from worker.engine.audit.attack import AucLimits, AuditAttack, AuditedModel, Variant
from worker.engine.audit.effort import affordable, operations
from worker.engine.audit.people import FEWEST_PEOPLE, MOST_PEOPLE
from worker.engine.audit.separation import Scores
from worker.engine.generators.protocol import RecordLosses
from worker.engine.metrics.measurement import Words

BATCH = 128
DRAWS = 2  # masks at each rate


def measure(model: AuditedModel, rng: np.random.Generator) -> list[Variant]:
    """Everyone, and people with a rare code."""
    losses, sets, seed = model.generator.record_losses(), model.sets, int(rng.integers(2**31))
    each = 0 if losses is None else operations(lambda: losses(sets.train.take([0]), seed, DRAWS))
    most = affordable(2 * each, FEWEST_PEOPLE, MOST_PEOPLE)
    rare = sets.with_rarest_code(sets.rare_below, rng, most=most)
    asked = {"": (sets.people(rng, most), False), "people with a rare code": ((rare.members, rare.others), True)}
    variants = []
    for name, ((members, others), of_rare) in asked.items():
        if losses is None:
            variants.append(Variant.missing(name, "the generator cannot tell how likely a record is", of_rare))
        elif min(len(members), len(others)) < FEWEST_PEOPLE:
            variants.append(Variant.missing(name, "there are too few such people", of_rare))
        else:
            variants.append(Variant(name, *scores(losses, members, others, seed)))
    return variants


def scores(losses: RecordLosses, members: Records, others: Records, seed: int) -> tuple[Scores, Scores]:
    """Minus the loss, summed over all masks."""
    found: tuple[list[Scores], list[Scores]] = ([], [])
    for start in range(0, max(len(members), len(others)), BATCH):
        for records, each in zip((members, others), found, strict=True):
            rows = np.arange(start, min(start + BATCH, len(records)))
            if len(rows):
                each.append(-losses(records.take(rows), seed + start, DRAWS).sum(1))
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
