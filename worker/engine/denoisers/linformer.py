"""The paper's denoiser: every code is a token, attention is linear in their number (Linformer)."""

import torch
from linformer.linformer import LinformerSelfAttention
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ehr.generators.d3pm import LinformerConfig
from worker.engine.denoisers.base import Denoiser, TimeEmbedding, prior_logits
from worker.engine.noise import Noise

GIB = 1 << 30
FEWEST_ROWS = 4  # at a time; below that, blocks are computed twice rather than remembered


class TransformerBlock(nn.Module):
    """Pre-norm linear attention and a GELU MLP, each with its residual."""

    def __init__(self, n_codes: int, config: LinformerConfig) -> None:
        super().__init__()
        width = config.width
        self.attention_norm = nn.LayerNorm(width)
        self.attention = LinformerSelfAttention(width, n_codes, k=config.projection, heads=config.heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, z: Tensor) -> Tensor:
        z = z + self.attention(self.attention_norm(z))
        out: Tensor = z + self.mlp(self.mlp_norm(z))
        return out


def numbers_kept(config: LinformerConfig) -> int:
    """What a block keeps of each code for its gradient: norms, queries, keys, values, both sums and the MLP's four-fold
    width twice make about 17 D, the softmax over what keys are projected to heads x k."""
    return 17 * config.width + config.heads * config.projection


class LinformerDenoiser(Denoiser):
    """Code-state embedding + position, L blocks with time added before each, a head for each code (the paper, Fig. 6).

    Cost grows with all N codes of the vocabulary, present or not: about 9.6 GFLOP for one record and step at N = 1,000
    in the size `paper-mimic`. It is a GPU model.
    """

    name = "linformer"

    def __init__(self, noise: Noise, prevalence: Tensor, config: LinformerConfig) -> None:
        super().__init__()
        self.noise, self.config, width = noise, config, config.width
        self.state = nn.Embedding(noise.n_states, width)
        self.position = nn.Parameter(torch.randn(self.n_codes, width) * 0.02)
        self.time = TimeEmbedding(width, config.layers)
        self.blocks = nn.ModuleList(TransformerBlock(self.n_codes, config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Parameter(torch.randn(self.n_codes, width, 2) * 0.02)
        # The softmax over (absent, present) starts at each code's prevalence.
        self.head_bias = nn.Parameter(torch.stack([torch.zeros(self.n_codes), prior_logits(noise, prevalence)], dim=-1))

    def rows_per_call(self, device: torch.device) -> int:
        # The widest activation has 4 D numbers for each code; beyond 16 MB of it a CPU waits for memory.
        numbers = 2**28 if device.type == "cuda" else 2**22
        return max(1, numbers // (4 * self.n_codes * self.position.shape[1]))

    def rows_per_gradient(self, device: torch.device) -> int | None:
        return max(1, self._rows(device, self._recomputes(device)))

    def _rows(self, device: torch.device, recomputes: bool) -> int:
        """Records whose activations fit the memory that a step may take."""
        layers, kept = self.config.layers, numbers_kept(self.config)
        numbers = self.config.width * layers + 2 * kept if recomputes else kept * layers
        room = 6 * GIB if device.type == "cuda" else 2 * GIB
        return room // (4 * self.n_codes * numbers)

    def _recomputes(self, device: torch.device) -> bool:
        if self.config.recompute is not None:
            return self.config.recompute
        return self._rows(device, recomputes=False) < FEWEST_ROWS

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None = None) -> Tensor:
        recomputes = torch.is_grad_enabled() and self._recomputes(x_t.device)
        z = self.state(x_t.long()) + self.position  # (B, N, D)
        for block, time in zip(self.blocks, self.time(t).unbind(1), strict=True):
            z = z + time.unsqueeze(1)
            z = checkpoint(block, z, use_reentrant=False, preserve_rng_state=False) if recomputes else block(z)
        y = torch.einsum("bnd,ndk->bnk", self.norm(z), self.head) + self.head_bias  # (B, N, 2), the latent z_L
        return (y[..., 1] - y[..., 0]).float()  # softmax over two states = sigmoid of the difference
