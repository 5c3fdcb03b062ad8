"""EHR-D3PM: every setting with its range, the presets, and which of them suits which data."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ehr.generators.auto import settings_for
from ehr.generators.bounds import LARGEST_BATCH, MOST_CALLS, MOST_EPOCHS, MOST_LAYERS, WIDEST
from ehr.generators.config import Config
from ehr.generators.spec import DEALT, INDEPENDENTLY, GeneratorSpec


class LinformerConfig(Config):
    """The paper's denoiser; the defaults are its MIMIC size."""

    kind: Literal["linformer"] = "linformer"
    width: int = Field(256, ge=2, le=WIDEST, description="hidden dimension D")
    layers: int = Field(5, ge=1, le=MOST_LAYERS, description="transformer blocks L")
    heads: int = Field(8, ge=1, le=256)
    projection: int = Field(128, ge=1, le=WIDEST, description="Linformer's k")
    recompute: bool | None = Field(
        None,
        description="keep the input of each block only, and compute the rest again for gradients: a third more time, a "
        "fraction of the memory; None: where a few records would not fit otherwise",
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"width must be even and a multiple of heads, not {self.width} with {self.heads} heads")
        return self


class SparseConfig(Config):
    """Our denoiser, whose cost follows the codes a record has."""

    kind: Literal["sparse"] = "sparse"
    width: int = Field(512, ge=2, le=WIDEST, multiple_of=2)
    blocks: int = Field(3, ge=0, le=MOST_LAYERS)
    common_codes: int = Field(
        256, ge=1, le=100_000, description="how many of the most common codes report their known absence"
    )
    pairwise: bool = Field(True, description="the skip from present codes to logits, a weight for each pair")
    pairwise_codes: int = Field(
        4096, ge=1, le=100_000, description="how many of the most common codes have such weights; see decisions/0102"
    )
    size_first: bool = Field(True, description="treat the number of codes as a variable that is revealed first")
    dropout: float = Field(0.15, ge=0, lt=1)
    input_dropout: float = Field(0.1, ge=0, lt=1)


class TrainingConfig(Config):
    """How weights are found."""

    epochs: int = Field(40, ge=1, le=MOST_EPOCHS)
    batch_size: int | None = Field(
        None,
        ge=1,
        le=LARGEST_BATCH,
        description="records in a step; None is 512, or fewer where an epoch would have less than 50 steps",
    )
    micro_batch: int | None = Field(
        None,
        ge=1,
        le=LARGEST_BATCH,
        description="records whose gradients are taken at a time and added up to those of the batch; None: what fits "
        "into 2 GiB (6 GiB on a GPU) with `linformer`, the whole batch otherwise",
    )
    learning_rate: float = Field(2e-3, gt=0, le=1)
    schedule: Literal["cosine", "exponential"] = "cosine"
    warmup_steps: int = Field(200, ge=0, le=1_000_000, description="steps of linear warm-up before the cosine")
    decay_per_epoch: float = Field(0.99, gt=0, le=1, description="ExponentialLR's gamma")
    settle_share: float = Field(
        0.08, ge=0, lt=1, description="last part of the epochs, without dropout and at a low rate; see decisions/0012"
    )
    weight_decay: float = Field(0.2, ge=0, le=100)
    pairwise_decay: float = Field(
        3.0, ge=0, le=1000, description="weight decay of the N x N skip where AdamW trains it"
    )
    pairwise_prior: float | None = Field(
        60.0,
        gt=0,
        le=1e6,
        description="patients that the prior of a link in the N x N skip, which is none, counts as; None: AdamW trains "
        "it, with pairwise_decay; see decisions/0087",
    )
    second_moment_decay: float = Field(0.999, gt=0, lt=1, description="AdamW's beta 2; see docs/decisions/0008")
    gradient_clip: float | None = Field(10.0, gt=0, le=1e6, description="largest gradient norm; None for no clipping")
    ema_decay: float = Field(0.999, ge=0, lt=1)
    auxiliary_weight: float = Field(
        0.0, ge=0, le=1000, description="weight of the cross-entropy on x_0 beside the ELBO"
    )
    context_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="records of a batch that are also shown as a condition shows them (absorbing noise)",
    )
    restrain_rare: bool = Field(
        True,
        description="restrain what the few patients of rare codes have taught the sparse denoiser, as far as held-out "
        "records allow; see decisions/0055",
    )
    time_sampling: Literal["importance", "power"] = Field(
        "power", description="how t is drawn: p(t) proportional to t^-1/2, or by the size of its loss so far"
    )
    patience: int | None = Field(
        9, ge=1, le=MOST_EPOCHS, description="epochs without a better held-out ELBO before stopping"
    )
    evaluate_every: int = Field(3, ge=1, le=MOST_EPOCHS, description="epochs between held-out evaluations")
    holdout_draws: int = Field(2, ge=1, le=1000, description="times drawn for each held-out record in an evaluation")
    holdout_records: int = Field(10_000, ge=1, le=10_000_000, description="held-out records used for early stopping")
    checkpoint_every: int | None = Field(
        None, ge=1, le=10_000_000, description="steps between checkpoints besides every epoch's end"
    )


class D3PMConfig(Config):
    """A whole model: its noise, its network and its training."""

    noise: Literal["uniform", "marginal", "absorbing"] = "absorbing"
    timesteps: int = Field(1000, ge=1, le=MOST_CALLS, description="T")
    denoiser: LinformerConfig | SparseConfig = Field(default_factory=SparseConfig, discriminator="kind")
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    drawing_width: int | None = Field(
        128,
        ge=2,
        le=WIDEST,
        multiple_of=2,
        description="width of the network that is kept and draws: a narrower one learns from the trained one to say "
        "what it says (sparse denoiser, absorbing noise); None, or not narrower: the trained one; see decisions/0138",
    )
    calibration_rounds: int = Field(
        4,
        ge=0,
        le=20,
        description="how often records are drawn after training to see whether codes and pairs of codes are as common "
        "in them as in training records, the last time codes alone (sparse denoiser, absorbing noise); see "
        "decisions/0135",
    )

    @property
    def kept_denoiser(self) -> LinformerConfig | SparseConfig:
        """The network that is kept, which may be narrower than the one that learns from records."""
        network, width = self.denoiser, self.drawing_width
        if isinstance(network, LinformerConfig) or self.noise != "absorbing" or width is None or width >= network.width:
            return network
        return network.model_copy(update={"width": width})

    @property
    def is_narrowed(self) -> bool:
        return self.kept_denoiser.width < self.denoiser.width

    def with_checkpoints(self, every: int) -> Self:
        if self.training.checkpoint_every is not None:
            return self
        if isinstance(self.denoiser, LinformerConfig):  # whose steps take as long as hundreds of ours
            every = 1
        return self.model_copy(update={"training": self.training.model_copy(update={"checkpoint_every": every})})


def as_kept(config: D3PMConfig) -> dict[str, Any]:
    """Settings as a stored model has them: of the network that is kept, so that earlier versions can read them, too."""
    kept = config.model_copy(update={"denoiser": config.kept_denoiser})
    return kept.model_dump(exclude={"drawing_width"})


def as_stored(settings: Mapping[str, Any], n_codes: int) -> dict[str, Any]:
    """Settings of a stored model as they were meant: before there were `pairwise_codes`, every pair had its weight."""
    denoiser = settings["denoiser"]
    if denoiser.get("kind") == "sparse":
        denoiser = {"pairwise_codes": n_codes, **denoiser}
    return {**settings, "denoiser": denoiser}


_PAPER_OPTIMISER: dict[str, Any] = {
    "learning_rate": 1e-4,
    "weight_decay": 1e-5,
    "schedule": "exponential",
    "decay_per_epoch": 0.99,
    "settle_share": 0.0,
    "restrain_rare": False,
    "time_sampling": "importance",
    "evaluate_every": 1,
    "patience": None,
}

PRESETS: dict[str, D3PMConfig] = {
    "fast": D3PMConfig(),
    # Three times the epochs, and more of everything that keeps a network from learning records by heart.
    "best": D3PMConfig(
        denoiser=SparseConfig(dropout=0.25, input_dropout=0.15),
        training=TrainingConfig(
            epochs=120, weight_decay=0.3, pairwise_decay=4.0, ema_decay=0.9995, evaluate_every=4, patience=16
        ),
    ),
    "paper-mimic": D3PMConfig(
        noise="uniform",
        timesteps=500,
        denoiser=LinformerConfig(width=256, layers=5, heads=8, projection=128),
        training=TrainingConfig(epochs=100, batch_size=256, **_PAPER_OPTIMISER),
    ),
    "paper-large": D3PMConfig(
        noise="uniform",
        timesteps=500,
        denoiser=LinformerConfig(width=512, layers=8, heads=8, projection=128),
        training=TrainingConfig(epochs=40, batch_size=512, **_PAPER_OPTIMISER),
    ),
}


def samplings(settings: Mapping[str, Any], method: str | None) -> tuple[str, ...]:
    """Noise that does not reveal meets conditions exactly by weighing records against each other: they belong
    together."""
    weighed = method == "exact" and settings.get("noise") in ("uniform", "marginal")
    return (DEALT,) if weighed else (DEALT, INDEPENDENTLY)


D3PM = GeneratorSpec(
    name="d3pm",
    description="discrete diffusion over medical codes, which meets conditions exactly",
    implementation="worker.engine.generators.d3pm:D3PMGenerator",
    settings=D3PMConfig,
    is_calibrated=True,
    methods=("exact", "langevin"),
    presets=PRESETS,
    rule=lambda shape: settings_for(PRESETS["best"], shape),
    most_calls=lambda settings: settings.get("timesteps"),
    samplings=samplings,
    streams=True,
    # a step of the sparse network is over before several GPUs have told each other of it
    processes=lambda settings, gpus: gpus if isinstance(settings.denoiser, LinformerConfig) else 1,
)
