"""A narrower sparse network that begins as the shadow of a wide one.

What flows through a trained trunk lies close to fewer directions than it is wide. So tables and layers are turned into
the principal directions of the stream, and of each block's hidden units those are kept that say most: without a single
step the narrower network of nhds-adult, half as wide, is off by 0.14 of 28.7 nats (docs/decisions/0138).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from worker.engine.denoisers.sparse import SparseDenoiser
from worker.engine.denoisers.trunk import ResidualBlock

SAME = ("sizes.", "pairwise.", "out.bias")  # weights that do not hang on the width


@torch.no_grad()
def project(wide: SparseDenoiser, narrow: SparseDenoiser, x_t: Tensor, t: Tensor, size: Tensor) -> None:
    """Give `narrow`, which has as many blocks, its weights, by what flows through `wide` when it reads records."""
    streams, hidden = _flows(wide, x_t, t, size)
    together = torch.cat(streams).double()
    _, ascending = torch.linalg.eigh(together.T @ together)
    directions = ascending.flip(1)[:, : narrow.norm.normalized_shape[0]].float()  # (wide, narrow)
    narrow.load_state_dict(
        {name: value for name, value in wide.state_dict().items() if name.startswith(SAME)}, strict=False
    )
    narrow.present.weight.copy_(wide.present.weight @ directions)
    narrow.absent.weight.copy_(directions.T @ wide.absent.weight)
    narrow.counts.weight.copy_(directions.T @ wide.counts.weight)
    narrow.counts.bias.copy_(wide.counts.bias @ directions)
    if wide.remaining is not None and narrow.remaining is not None:
        narrow.remaining.weight.copy_(wide.remaining.weight @ directions)
    for block, small, stream, units in zip(wide.blocks, narrow.blocks, streams, hidden, strict=False):
        assert isinstance(block, ResidualBlock) and isinstance(small, ResidualBlock)
        _project_block(block, small, stream, units, directions)
    _project_linear(wide.out, wide.norm, narrow.out, streams[-1], directions)


def _flows(wide: SparseDenoiser, x_t: Tensor, t: Tensor, size: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What goes into each block and, last, into the norm after them, (B, width) each; what each block's hidden units
    say, (B, width) each."""
    streams: list[Tensor] = []
    hidden: list[Tensor] = []

    def note_input(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        streams.append(inputs[0].float())

    def note_hidden(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        hidden.append(inputs[0].float())

    handles = [module.register_forward_pre_hook(note_input) for module in (*wide.blocks, wide.norm)]
    handles += [block.down.register_forward_pre_hook(note_hidden) for block in _blocks(wide)]
    wide(x_t, t, size)
    for handle in handles:
        handle.remove()
    return streams, hidden


def _blocks(network: SparseDenoiser) -> list[ResidualBlock]:
    return [block for block in network.blocks if isinstance(block, ResidualBlock)]


def _project_block(
    wide: ResidualBlock, narrow: ResidualBlock, stream: Tensor, units: Tensor, directions: Tensor
) -> None:
    says = units.std(0) * wide.down.weight.norm(dim=0)
    kept = says.argsort(descending=True)[: narrow.up.out_features]
    few = nn.Linear(wide.up.in_features, len(kept), device=stream.device)
    few.weight.copy_(wide.up.weight[kept])
    few.bias.copy_(wide.up.bias[kept])
    _project_linear(few, wide.norm, narrow.up, stream, directions)
    narrow.down.weight.copy_(directions.T @ wide.down.weight[:, kept])
    mean = units.mean(0)  # units that are left out say what they say on average
    silent = F.linear(mean, wide.down.weight) - F.linear(mean[kept], wide.down.weight[:, kept])
    narrow.down.bias.copy_((wide.down.bias + silent) @ directions)


def _project_linear(wide: nn.Linear, norm: nn.LayerNorm, narrow: nn.Linear, stream: Tensor, directions: Tensor) -> None:
    """A layer behind a norm; the narrower one's norm has no weights of its own yet, and another scale."""
    scale = (stream @ directions).std(1).mean() / stream.std(1).mean()
    narrow.weight.copy_((wide.weight * norm.weight) @ directions * scale)
    narrow.bias.copy_(wide.bias + wide.weight @ norm.bias)
