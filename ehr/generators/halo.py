"""HALO: a language model of visits whose codes are drawn one after the other, and its settings."""

from typing import Self

from pydantic import Field, model_validator

from ehr.generators.baseline import BaselineConfig
from ehr.generators.bounds import LARGEST_BATCH, MOST_EPOCHS, MOST_LAYERS, WIDEST
from ehr.generators.spec import GeneratorSpec


class HaloConfig(BaselineConfig):
    """HALO (Theodorou et al. 2023) in a size that a CPU can train; published are 12 blocks of 768 with 12 heads."""

    epochs: int = Field(50, ge=1, le=MOST_EPOCHS, description="passes through the training patients")
    batch_size: int = Field(48, ge=1, le=LARGEST_BATCH, description="patients")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="1e-4 was published, for the large network")
    width: int = Field(192, ge=2, le=WIDEST, description="of the state of a visit")
    layers: int = Field(3, ge=1, le=MOST_LAYERS, description="blocks of the transformer over visits")
    heads: int = Field(6, ge=1, le=256)
    most_visits: int = Field(
        256, ge=1, le=10_000, description="visits of a patient that are learned from; later ones are left out"
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, not {self.width} with {self.heads} heads")
        return self


HALO = GeneratorSpec(
    name="halo",
    description="patients over time by a language model of visits and codes (Theodorou et al. 2023)",
    implementation="worker.engine.generators.halo:HaloGenerator",
    settings=HaloConfig,
    methods=(),
)
