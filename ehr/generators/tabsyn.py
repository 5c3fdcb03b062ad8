"""TabSyn: Gaussian diffusion on the latents of a transformer autoencoder."""

from pydantic import Field

from ehr.generators.baseline import BaselineConfig
from ehr.generators.bounds import LARGEST_BATCH, MOST_CALLS, MOST_EPOCHS, MOST_LAYERS, WIDEST
from ehr.generators.spec import GeneratorSpec


class TabSynConfig(BaselineConfig):
    """TabSyn (Zhang et al. 2024): the defaults of its code."""

    epochs: int = Field(
        14_000, ge=2, le=MOST_EPOCHS, description="4,000 for the autoencoder, then 10,000 for the diffusion"
    )
    batch_size: int = Field(4096, ge=2, le=LARGEST_BATCH)
    learning_rate: float = Field(1e-3, gt=0, le=1, description="at the start of each phase; falls linearly to 0")
    autoencoder_share: float = Field(2 / 7, gt=0, lt=1, description="of the steps, first")
    token_width: int = Field(4, ge=1, le=256)
    layers: int = Field(2, ge=1, le=MOST_LAYERS, description="of each of the three transformers")
    factor: int = Field(32, ge=1, le=1024, description="how much wider than a token the feed-forward layers are")
    beta_max: float = Field(1e-2, gt=0, le=1e6, description="weight of the autoencoder's KL at the start")
    beta_min: float = Field(1e-5, gt=0, le=1e6, description="and at the end")
    width: int = Field(
        1024, ge=2, le=WIDEST, multiple_of=2, description="of the denoiser, whose middle layers are twice as wide"
    )
    sampling_steps: int = Field(
        50, ge=1, le=MOST_CALLS, description="Heun steps; all but the last take two network calls"
    )


TABSYN = GeneratorSpec(
    name="tabsyn",
    description="Gaussian diffusion on an autoencoder's latents, for at most 200 codes (Zhang et al. 2024)",
    implementation="worker.engine.generators.baselines.tabsyn:TabSyn",
    settings=TabSynConfig,
    methods=("rejection",),
    most_codes=200,
)
