"""medWGAN: a Wasserstein GAN behind an autoencoder."""

from pydantic import Field

from ehr.generators.baseline import WganConfig
from ehr.generators.bounds import LARGEST_BATCH, MOST_EPOCHS, MOST_LAYERS, Width
from ehr.generators.spec import GeneratorSpec


class MedWganConfig(WganConfig):
    """Baowaly et al. 2019. Its 100 epochs of pretraining and 1,000 of two critic passes are 2,100 passes here."""

    epochs: int = Field(2100, ge=1, le=MOST_EPOCHS, description="passes through the training records")
    batch_size: int = Field(1000, ge=2, le=LARGEST_BATCH)
    weight_decay: float = Field(1e-3, ge=0, le=100, description="L2 regularisation, in the gradient")
    layers: int = Field(
        2, ge=1, le=MOST_LAYERS, description="hidden layers of the generator, as wide as its noise and the embedding"
    )
    critic_widths: tuple[Width, ...] = Field((256, 128), min_length=1, max_length=MOST_LAYERS)
    pretrain_share: float = Field(1 / 21, gt=0, lt=1, description="of the steps: for the autoencoder alone, first")
    pretrain_batch_size: int = Field(100, ge=1, le=LARGEST_BATCH)


MED_WGAN = GeneratorSpec(
    name="med-wgan",
    description="a Wasserstein GAN behind an autoencoder (Baowaly et al. 2019)",
    implementation="worker.engine.generators.baselines.med_wgan:MedWgan",
    settings=MedWganConfig,
    methods=("rejection",),
    most_calls=lambda settings: 1,
)
