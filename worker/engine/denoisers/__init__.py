"""Networks behind one interface, `logits = denoiser(x_t, t)`. A new one is a file, a config, a line in build."""

from torch import Tensor

from ehr.generators.d3pm import LinformerConfig, SparseConfig
from worker.engine.denoisers.base import UNKNOWN_SIZE, Denoiser, Reading
from worker.engine.denoisers.linformer import LinformerDenoiser
from worker.engine.denoisers.sparse import SparseDenoiser
from worker.engine.noise import Noise

__all__ = ["UNKNOWN_SIZE", "Denoiser", "LinformerDenoiser", "Reading", "SparseDenoiser", "build_denoiser"]


def build_denoiser(config: LinformerConfig | SparseConfig, noise: Noise, prevalence: Tensor, sizes: Tensor) -> Denoiser:
    """The network that `config` describes, for codes of this prevalence (N,) and records of these sizes."""
    if isinstance(config, LinformerConfig):
        return LinformerDenoiser(noise, prevalence, config)
    return SparseDenoiser(noise, prevalence, sizes, config)
