"""Histories by masked diffusion within a visit, visit after visit: its settings."""

from typing import Self

from pydantic import Field

from ehr.generators.bounds import MOST_CALLS, WIDEST
from ehr.generators.config import Config
from ehr.generators.d3pm import SparseConfig, TrainingConfig
from ehr.generators.spec import DEALT, GeneratorSpec


class VisitsConfig(Config):
    """A whole model of histories: the network of a visit, the memory of earlier ones, and its training."""

    timesteps: int = Field(1000, ge=1, le=MOST_CALLS, description="T")
    denoiser: SparseConfig = Field(default_factory=lambda: SparseConfig(width=256, blocks=2, dropout=0.1))
    state: int = Field(128, ge=1, le=WIDEST, description="units of the recurrent summary of earlier visits")
    steps: int = Field(20, ge=1, le=MOST_CALLS, description="network calls for a visit when histories are drawn")
    most_visits: int = Field(
        256, ge=1, le=10_000, description="visits of a patient that are learned from; later ones are left out"
    )
    calibration_rounds: int = Field(
        6, ge=0, le=100, description="in which patients are drawn after training to correct how often things happen"
    )
    training: TrainingConfig = Field(
        default_factory=lambda: TrainingConfig(
            epochs=16, learning_rate=3e-3, weight_decay=0.1, pairwise_decay=1.0, evaluate_every=2, patience=4
        ),
        description="an epoch sees every visit once; batch_size counts visits",
    )

    def with_checkpoints(self, every: int) -> Self:
        if self.training.checkpoint_every is not None:
            return self
        return self.model_copy(update={"training": self.training.model_copy(update={"checkpoint_every": every})})


VISITS = GeneratorSpec(
    name="visits",
    description="patients over time: discrete diffusion within a visit, visit after visit",
    implementation="worker.engine.generators.visits:VisitsGenerator",
    settings=VisitsConfig,
    is_calibrated=True,
    most_calls=lambda settings: settings.get("timesteps"),
    samplings=lambda settings, method: (DEALT,),
)
