"""The settings of the published generators, with the published values as defaults. Imports no mathematics."""

from typing import Literal

from pydantic import Field, PositiveInt

from ehr.generators.d3pm import Config

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


class TabDDPMConfig(BaselineConfig):
    """TabDDPM (Kotelnikov et al. 2023): the defaults of its code, with the network and the steps of its tuned runs."""

    epochs: int = Field(750, ge=1, description="30,000 steps, as published, where there are 40,000 records")
    batch_size: int = Field(1024, ge=2)
    learning_rate: float = Field(2e-3, gt=0, description="at the start; falls linearly to 0")
    weight_decay: float = Field(1e-4, ge=0)
    ema_decay: float | None = Field(0.999, ge=0, lt=1)
    timesteps: int = Field(1000, ge=1, description="T")
    width: int = Field(128, ge=2, multiple_of=2, description="of the projected record and the time embedding")
    layers: tuple[PositiveInt, ...] = Field((512, 1024, 1024, 1024, 1024, 512), min_length=1)


class EHRDiffConfig(BaselineConfig):
    """EHRDiff (Yuan et al. 2023): its configuration for MIMIC."""

    epochs: int = Field(5000, ge=1)
    batch_size: int = Field(1024, ge=2)
    learning_rate: float = Field(3e-4, gt=0, description="after the warm-up; falls to 0 along a cosine")
    warmup_steps: int = Field(20_000, ge=0, description="but no more than a tenth of all steps")
    ema_decay: float | None = Field(0.999, ge=0, lt=1)
    layers: tuple[PositiveInt, ...] = Field((1024, 384, 384, 384, 1024), min_length=1)
    time_width: int = Field(384, ge=1)
    sigma_data: float = Field(0.14, gt=0, description="deviation of the data, for EDM's preconditioning")
    sigma_min: float = Field(0.02, gt=0)
    sigma_max: float = Field(80.0, gt=0)
    sampling_steps: int = Field(32, ge=1, description="Heun steps; all but the last take two network calls")
    binarise: Binarise = Field("round", description=BINARISE)


class TabSynConfig(BaselineConfig):
    """TabSyn (Zhang et al. 2024): the defaults of its code."""

    epochs: int = Field(14_000, ge=2, description="4,000 for the autoencoder, then 10,000 for the diffusion")
    batch_size: int = Field(4096, ge=2)
    learning_rate: float = Field(1e-3, gt=0, description="at the start of each phase; falls linearly to 0")
    autoencoder_share: float = Field(2 / 7, gt=0, lt=1, description="of the steps, first")
    token_width: int = Field(4, ge=1)
    layers: int = Field(2, ge=1, description="of each of the three transformers")
    factor: int = Field(32, ge=1, description="how much wider than a token the feed-forward layers are")
    beta_max: float = Field(1e-2, gt=0, description="weight of the autoencoder's KL at the start")
    beta_min: float = Field(1e-5, gt=0, description="and at the end")
    width: int = Field(1024, ge=2, multiple_of=2, description="of the denoiser, whose middle layers are twice as wide")
    sampling_steps: int = Field(50, ge=1, description="Heun steps; all but the last take two network calls")


# generator -> its settings
BASELINE_CONFIGS: dict[str, type[BaselineConfig]] = {
    "med-wgan": MedWganConfig,
    "emr-wgan": EmrWganConfig,
    "tabddpm": TabDDPMConfig,
    "ehrdiff": EHRDiffConfig,
    "tabsyn": TabSynConfig,
}
