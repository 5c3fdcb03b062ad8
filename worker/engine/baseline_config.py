"""The settings of the published generators, with the published values as defaults. Imports no mathematics."""

from typing import Literal

from pydantic import Field

from worker.engine.config import Config

Binarise = Literal["round", "bernoulli"]
BINARISE = "how probabilities become codes: `round` at 0.5 as published, or drawn, which keeps rare codes"


class BaselineConfig(Config):
    """What every baseline's training needs; each adds its own."""

    epochs: int = Field(100, ge=1, description="passes through the training records")
    batch_size: int = Field(256, ge=2)
    learning_rate: float = Field(1e-3, gt=0)
    ema_decay: float | None = Field(None, ge=0, lt=1, description="averages the weights; None keeps the last ones")
    checkpoint_every: int | None = Field(None, ge=1, description="steps between checkpoints besides every epoch's end")


class WganConfig(BaselineConfig):
    """A generator against a Wasserstein critic; an epoch passes the critic every record once."""

    critic_steps: int = Field(2, ge=1, description="critic steps for each step of the generator")
    penalty: float = Field(10.0, ge=0, description="lambda: weight of the gradient penalty")
    weight_decay: float = Field(0.0, ge=0, description="L2 regularisation, in the gradient")
    noise_width: int = Field(128, ge=1)
    binarise: Binarise = Field("round", description=BINARISE)


class MedWganConfig(WganConfig):
    """Baowaly et al. 2019. Its 100 epochs of pretraining and 1,000 of two critic passes are 2,100 passes here."""

    epochs: int = Field(2100, ge=1, description="passes through the training records")
    batch_size: int = Field(1000, ge=2)
    weight_decay: float = Field(1e-3, ge=0, description="L2 regularisation, in the gradient")
    layers: int = Field(2, ge=1, description="hidden layers of the generator, as wide as its noise and the embedding")
    critic_widths: tuple[int, ...] = Field((256, 128), min_length=1)
    pretrain_share: float = Field(1 / 21, gt=0, lt=1, description="of the steps: for the autoencoder alone, first")
    pretrain_batch_size: int = Field(100, ge=1)


class EmrWganConfig(WganConfig):
    """Zhang et al. 2020. Its 500 epochs of two critic passes are 1,000 passes here."""

    epochs: int = Field(1000, ge=1, description="passes through the training records")
    batch_size: int = Field(2000, ge=2)
    learning_rate: float = Field(1e-4, gt=0)
    weight_decay: float = Field(1e-5, ge=0, description="L2 regularisation, in the gradient")
    width: int = Field(384, ge=1)
    layers: int = Field(6, ge=1, description="of the generator and of the critic each")


# generator -> its settings
BASELINE_CONFIGS: dict[str, type[BaselineConfig]] = {
    "med-wgan": MedWganConfig,
    "emr-wgan": EmrWganConfig,
}
