"""Everything the engine raises on purpose. No HTTP here: the edge maps these to answers."""


class EngineError(Exception):
    """The root: catch this to catch every deliberate error of the engine."""


class DataError(EngineError, ValueError):
    """The records cannot be used: empty, malformed, or a code outside the vocabulary."""


class ConfigError(EngineError, ValueError):
    """A setting is outside what is allowed; the message says what is."""


class ConditionError(EngineError, ValueError):
    """A condition contradicts itself, names codes that are not in the vocabulary, or is too rare to be met."""


class StateError(EngineError, ValueError):
    """A saved state does not belong to this generator or was made by another version."""


class TrainingError(EngineError, RuntimeError):
    """Training cannot go on, for example because the loss is no longer a number."""


class TrainingStopped(EngineError):
    """The caller asked training to stop; the last checkpoint holds everything done so far."""
