"""EMR-WGAN: a Wasserstein GAN on the codes themselves."""

from pydantic import Field

from ehr.generators.baseline import WganConfig
from ehr.generators.bounds import LARGEST_BATCH, MOST_EPOCHS, MOST_LAYERS, WIDEST
from ehr.generators.spec import GeneratorSpec


class EmrWganConfig(WganConfig):
    """Zhang et al. 2020. Its 500 epochs of two critic passes are 1,000 passes here."""

    epochs: int = Field(1000, ge=1, le=MOST_EPOCHS, description="passes through the training records")
    batch_size: int = Field(2000, ge=2, le=LARGEST_BATCH)
    learning_rate: float = Field(1e-4, gt=0, le=1)
    weight_decay: float = Field(1e-5, ge=0, le=100, description="L2 regularisation, in the gradient")
    width: int = Field(384, ge=1, le=WIDEST)
    layers: int = Field(6, ge=1, le=MOST_LAYERS, description="of the generator and of the critic each")


EMR_WGAN = GeneratorSpec(
    name="emr-wgan",
    description="a Wasserstein GAN on the codes themselves (Zhang et al. 2020)",
    implementation="worker.engine.generators.baselines.emr_wgan:EmrWgan",
    settings=EmrWganConfig,
    methods=("rejection",),
    most_calls=lambda settings: 1,
)
