"""TabDDPM: multinomial diffusion with a plain MLP."""

from pydantic import Field

from ehr.generators.baseline import BaselineConfig
from ehr.generators.bounds import LARGEST_BATCH, MOST_CALLS, MOST_EPOCHS, MOST_LAYERS, WIDEST, Width
from ehr.generators.spec import GeneratorSpec


class TabDDPMConfig(BaselineConfig):
    """TabDDPM (Kotelnikov et al. 2023): the defaults of its code, with the network and the steps of its tuned runs."""

    epochs: int = Field(
        750, ge=1, le=MOST_EPOCHS, description="30,000 steps, as published, where there are 40,000 records"
    )
    batch_size: int = Field(1024, ge=2, le=LARGEST_BATCH)
    learning_rate: float = Field(2e-3, gt=0, le=1, description="at the start; falls linearly to 0")
    weight_decay: float = Field(1e-4, ge=0, le=100)
    ema_decay: float | None = Field(0.999, ge=0, lt=1)
    timesteps: int = Field(1000, ge=1, le=MOST_CALLS, description="T")
    width: int = Field(
        128, ge=2, le=WIDEST, multiple_of=2, description="of the projected record and the time embedding"
    )
    layers: tuple[Width, ...] = Field((512, 1024, 1024, 1024, 1024, 512), min_length=1, max_length=MOST_LAYERS)


TABDDPM = GeneratorSpec(
    name="tabddpm",
    description="multinomial diffusion with a plain MLP (Kotelnikov et al. 2023)",
    implementation="worker.engine.generators.baselines.tabddpm:TabDDPM",
    settings=TabDDPMConfig,
    methods=("rejection",),
    most_calls=lambda settings: settings.get("timesteps"),
)
