"""EHRDiff: Gaussian diffusion on records as real vectors."""

from pydantic import Field

from ehr.generators.baseline import BINARISE, BaselineConfig, Binarise
from ehr.generators.bounds import LARGEST_BATCH, MOST_CALLS, MOST_EPOCHS, MOST_LAYERS, WIDEST, Width
from ehr.generators.spec import GeneratorSpec


class EHRDiffConfig(BaselineConfig):
    """EHRDiff (Yuan et al. 2023): its configuration for MIMIC."""

    epochs: int = Field(5000, ge=1, le=MOST_EPOCHS)
    batch_size: int = Field(1024, ge=2, le=LARGEST_BATCH)
    learning_rate: float = Field(3e-4, gt=0, le=1, description="after the warm-up; falls to 0 along a cosine")
    warmup_steps: int = Field(20_000, ge=0, le=1_000_000, description="but no more than a tenth of all steps")
    ema_decay: float | None = Field(0.999, ge=0, lt=1)
    layers: tuple[Width, ...] = Field((1024, 384, 384, 384, 1024), min_length=1, max_length=MOST_LAYERS)
    time_width: int = Field(384, ge=1, le=WIDEST)
    sigma_data: float = Field(0.14, gt=0, le=1e6, description="deviation of the data, for EDM's preconditioning")
    sigma_min: float = Field(0.02, gt=0, le=1e6)
    sigma_max: float = Field(80.0, gt=0, le=1e6)
    sampling_steps: int = Field(
        32, ge=1, le=MOST_CALLS, description="Heun steps; all but the last take two network calls"
    )
    binarise: Binarise = Field("round", description=BINARISE)


EHRDIFF = GeneratorSpec(
    name="ehrdiff",
    description="Gaussian diffusion on records as real vectors (Yuan et al. 2023)",
    implementation="worker.engine.generators.baselines.ehrdiff:EHRDiff",
    settings=EHRDiffConfig,
    methods=("rejection",),
)
