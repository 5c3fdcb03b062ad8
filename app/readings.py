"""What the codes of a request were read as. A job carries them as the model's vocabulary writes them, so that two
spellings of one request are one request; what was asked is kept beside that."""

from dataclasses import dataclass
from typing import Any

from app.schemas.requests import GenerateRequest
from ehr.conditions import AskedCondition, AskedTarget
from ehr.history_conditions import AskedHistoryCondition
from ehr.vocabulary import Reading, Vocabulary


@dataclass(frozen=True)
class Readings:
    """A request in the vocabulary's own spelling. `as_asked`: its codes as they were sent, None if that is the same."""

    conditions: AskedCondition
    targets: list[AskedTarget]
    history: AskedHistoryCondition
    as_asked: dict[str, Any] | None
    notes: list[str]


def readings_of(vocabulary: Vocabulary, body: GenerateRequest) -> Readings:
    """UnknownCodeError if a code means nothing or several things."""
    conditions = vocabulary.as_written(body.conditions)
    targets = [AskedTarget(codes=vocabulary.as_written_each(t.codes), share=t.share) for t in body.targets]
    history = body.history.as_written(vocabulary)
    if conditions == body.conditions and targets == body.targets and history == body.history:
        return Readings(conditions, targets, history, None, [])
    over_time = set() if history == body.history else {"history"}
    asked = body.model_dump(mode="json", include={"conditions", "targets", *over_time})
    patterns = [*body.conditions.patterns, *(code for target in body.targets for code in target.codes)]
    patterns += body.history.patterns
    read = [vocabulary.read(pattern) for pattern in dict.fromkeys(patterns)]
    notes = [_note(vocabulary, each) for each in read if each.meant != each.asked]
    return Readings(conditions, targets, history, asked, notes)


def _note(vocabulary: Vocabulary, reading: Reading) -> str:
    name = vocabulary.name_of(reading.meant)
    return f"'{reading.asked}' was read as '{reading.meant}'{f' ({name})' if name else ''}"
