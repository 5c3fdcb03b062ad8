"""What the settings of the published generators share."""

from typing import Literal, Self

from pydantic import Field

from ehr.generators.bounds import LARGEST_BATCH, MOST_EPOCHS, WIDEST
from ehr.generators.config import Config

Binarise = Literal["round", "bernoulli"]
BINARISE = "how probabilities become codes: `round` at 0.5 as published, or drawn, which keeps rare codes"


class BaselineConfig(Config):
    """What every baseline's training needs; each adds its own."""

    epochs: int = Field(100, ge=1, le=MOST_EPOCHS, description="passes through the training records")
    batch_size: int = Field(256, ge=2, le=LARGEST_BATCH)
    learning_rate: float = Field(1e-3, gt=0, le=1)
    ema_decay: float | None = Field(None, ge=0, lt=1, description="averages the weights; None keeps the last ones")
    checkpoint_every: int | None = Field(
        None, ge=1, le=10_000_000, description="steps between checkpoints besides every epoch's end"
    )

    def with_checkpoints(self, every: int) -> Self:
        return self if self.checkpoint_every is not None else self.model_copy(update={"checkpoint_every": every})


class WganConfig(BaselineConfig):
    """A generator against a Wasserstein critic; an epoch passes the critic every record once."""

    critic_steps: int = Field(2, ge=1, le=100, description="critic steps for each step of the generator")
    penalty: float = Field(10.0, ge=0, le=1e6, description="lambda: weight of the gradient penalty")
    weight_decay: float = Field(0.0, ge=0, le=100, description="L2 regularisation, in the gradient")
    noise_width: int = Field(128, ge=1, le=WIDEST)
    binarise: Binarise = Field("round", description=BINARISE)
